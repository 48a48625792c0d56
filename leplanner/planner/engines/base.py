"""What an engine is, how one is chosen, and the names that are known."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ...core.dynamics import Dynamics, capability
from ...core.problem import Plan, PlanProblem
from ...core.registry import Registry, match_name
from ..model import LePlanner

AUTO = "auto"
HALF_TOLERANCE = 1e-2  # how far bf16 may move a plan, in standardized units


class Engine(Protocol):
    """Computes the plain model's plans in its own way."""

    precision: str

    def plan(self, problem: PlanProblem) -> Plan: ...
    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        """(B, H, A) -> (B, H, *Z)"""
        ...

    def encode(self, frames: Tensor) -> Tensor:
        """uint8 (B, S, S, 3) -> (B, *Z); for planners in a world that encodes."""
        ...


@dataclass(frozen=True)
class EngineKind:
    name: str
    make: Callable[[Dynamics, LePlanner], Engine]
    missing: Callable[[Dynamics, LePlanner], str | None]  # what keeps this planner from using it, if anything does
    suits: Callable[[Dynamics, str], str | None]  # (world, device): why it is the one to take there, if it is


@dataclass(frozen=True)
class EngineReport:
    engine: str
    precision: str
    reason: str


ENGINES: Registry[EngineKind] = Registry("engine", "leplanner.engines")  # in the order in which auto tries them


def engine_names() -> list[str]:
    return [AUTO, *ENGINES]


def pick_engine(requested: str, dynamics: Dynamics, model: LePlanner) -> tuple[str, str]:
    """The engine to use, and why."""
    requested = match_name("engine", requested, engine_names())
    if requested != AUTO:
        lacking = ENGINES.get(requested).missing(dynamics, model)
        if lacking:
            raise ValueError(f'engine="{requested}": {lacking}. Use engine="eager", or "auto".')
        return requested, "requested"
    device = next(model.parameters()).device.type
    passed: list[str] = []
    for kind in ENGINES.values():
        reason = kind.suits(dynamics, device)
        if reason is None:
            continue
        lacking = kind.missing(dynamics, model)
        if lacking is None:
            return kind.name, "; ".join([*passed, reason])
        passed.append(lacking)
    raise ValueError(f"No engine can be used: {'; '.join(passed)}.")


def offers_onnx(dynamics: Dynamics) -> bool:
    """Whether the world lays out its rollout as ONNX nodes, or says that torch can trace it."""
    return capability(dynamics, "onnx_rollout") is not None or getattr(dynamics, "traceable", False)


def layout(*modules: nn.Module) -> Hashable:
    """What an engine was laid out from: where the weights are, and how often they were changed in place."""
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    return tensors[0].device, sum(tensor._version for tensor in tensors)


def random_problem(model: LePlanner, device: torch.device | str = "cpu", batch: int = 1) -> PlanProblem:
    generator = torch.Generator().manual_seed(0)
    latent, n = model.latent.shape, model.context
    shapes = ((n, *latent), (n - 1, model.actions.block_dim), latent)
    return PlanProblem(*(torch.randn(batch, *shape, generator=generator).to(device) for shape in shapes))
