"""The machine's own limit for a plan: its arithmetic at the speed of one large matrix multiplication, or
its weights streamed at the speed of a memory copy, whichever takes longer. Weights that stay in a cache
may be read faster than that."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ..core.dynamics import imagination
from ..planner.engines import random_problem
from ..planner.fast import FastPlanner, fast_dynamics
from ..planner.planner import Planner
from ..training.precision import matmul_gflops


@dataclass(frozen=True)
class PlanWork:
    gflop: float
    weights_mb: (
        float  # weights read, each time they are: a refinement reads the planner's again, a block the predictor's
    )


@dataclass(frozen=True)
class Machine:
    matmul_gflop_per_s: float
    copy_gb_per_s: float  # read and written

    def least_ms(self, work: PlanWork) -> float:
        return max(1e3 * work.gflop / self.matmul_gflop_per_s, work.weights_mb / self.copy_gb_per_s)


class _WeightsRead(TorchDispatchMode):
    """Sums the bytes of the matrix that every product with a bias or without takes second."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        products = {torch.ops.aten.addmm.default: 2, torch.ops.aten.mm.default: 1}
        if func in products:
            weight = args[products[func]]
            self.bytes += weight.numel() * weight.element_size()
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def plan_work(planner: Planner, batch: int = 1) -> PlanWork:
    """Of the planner and the world in their fast forms; an ONNX graph may differ by one more pass over the context."""
    fast, rollout = FastPlanner(planner.model, compiled=False), fast_dynamics(planner.dynamics, compiled=False)
    problem = random_problem(planner.model, planner.world.device, batch)
    with FlopCounterMode(display=False) as flops, _WeightsRead() as weights:
        fast(problem, imagination(rollout, problem))
    return PlanWork(flops.get_total_flops() / 1e9, weights.bytes / 1e6)


def measure_machine() -> Machine:
    source = torch.ones(64 * 2**20)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(6):
        began = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - began)
    return Machine(matmul_gflops(torch.float32, size=2048), 2 * source.numel() * source.element_size() / best / 1e9)
