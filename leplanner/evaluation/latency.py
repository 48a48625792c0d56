"""What a decision costs in time: median and 95th percentile, warm, in this process, encoding and planning apart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ..control.policy import PlannerPolicy, Policy, Request
from ..planner.problem import PlanProblem
from ..world.world import World


@dataclass(frozen=True)
class Latency:
    method: str
    batch: int
    plan_ms: float  # median of one decision for the whole batch
    plan_ms_p95: float
    rows: int  # predictor transitions a problem
    encode_ms: float  # of the frames that one decision needs: one a problem
    encode_ms_p95: float
    repeats: int  # decisions timed


def measure_latency(
    policy: Policy, world: World, problem: PlanProblem, seconds: float = 5.0, least: int = 3
) -> Latency:
    """Every method of a table is measured by this function, in one process, on the same problems: after one decision that
    warms up, at least so many, more as long as the time lasts. With `least=0` the first decision counts if it alone
    takes longer than that: a search is warm long before its end."""
    batch = len(problem.goal)
    rest = policy.planner.plan(problem).blocks[:, 1:] if isinstance(policy, PlannerPolicy) and policy.keep else None
    request = Request(problem, remaining=50, rest=rest, seeds=tuple(range(batch)))
    size = world.spec.frame_size
    frames = np.zeros((batch, size, size, 3), np.uint8)
    before = policy.rows
    first = _times(lambda: policy.decide(request), 0.0, 1, world.device)
    rows = (policy.rows - before) // batch
    enough = least == 0 and first[0] > 1e3 * seconds
    plan = first if enough else _times(lambda: policy.decide(request), seconds, max(1, least), world.device)
    world.encode(frames)
    encode = (
        _times(lambda: world.encode(frames), seconds, max(1, least), world.device) if policy.frames else np.zeros(1)
    )
    return Latency(policy.name, batch, *_median_and_p95(plan), rows, *_median_and_p95(encode), len(plan))


def _times(run: Callable[[], object], seconds: float, least: int, device: torch.device) -> np.ndarray:
    times: list[float] = []
    while len(times) < least or (sum(times) < 1e3 * seconds and len(times) < 100):
        began = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1e3 * (time.perf_counter() - began))
    return np.array(times)


def _median_and_p95(times: np.ndarray) -> tuple[float, float]:
    return float(np.median(times)), float(np.quantile(times, 0.95))
