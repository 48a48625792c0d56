"""What a decision costs in time: median and 95th percentile, warm, in this process, encoding and planning apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ..control.methods import METHODS, MethodInputs, SearchBudget
from ..control.policy import PlannerPolicy, Policy, Request
from ..core.problem import PlanProblem
from ..planner.engines import random_problem
from ..planner.planner import Planner


@dataclass(frozen=True)
class Latency:
    method: str
    batch: int
    plan_ms: float  # median of one decision for the whole batch
    plan_ms_p95: float
    transitions: int  # of the predictor, a problem
    encode_ms: float  # of the frames that one decision needs: one a problem
    encode_ms_p95: float
    repeats: int  # decisions timed
    calls: int | None = None  # predictor calls one after another, where the method says so


def measure_latency(
    policy: Policy, planner: Planner, problem: PlanProblem, seconds: float = 5.0, least: int = 3
) -> Latency:
    """Every method of a table is measured by this function, in one process, on the same problems: after one decision
    that warms up, at least so many, more as long as the time lasts. With `least=0` the first decision counts if it
    alone takes longer than that: a search is warm long before its end."""
    batch, device = len(problem.goal), planner.world.device
    request, frames = _request(policy, planner, problem), _frames(planner, batch)
    before, calls = policy.transitions, _calls(policy)
    first = _times(lambda: policy.decide(request), 0.0, 1, device)
    transitions = (policy.transitions - before) // batch
    called = None if calls is None else (_calls(policy) or 0) - calls
    enough = least == 0 and first[0] > 1e3 * seconds
    plan = first if enough else _times(lambda: policy.decide(request), seconds, max(1, least), device)
    planner.encode(frames)
    encode = _times(lambda: planner.encode(frames), seconds, max(1, least), device) if policy.frames else np.zeros(1)
    return Latency(policy.name, batch, *_median_and_p95(plan), transitions, *_median_and_p95(encode), len(plan), called)


def measure_side_by_side(
    rivals: Sequence[tuple[Policy, Planner]], seconds: float = 5.0, least: int = 3, most: int = 30
) -> list[Latency]:
    """A decision of each at batch 1, in turns: what else the machine does meets all alike. Each takes its turn at least
    so many times, and no more once its own decisions took so many seconds."""
    timed = [_Timed(policy, planner) for policy, planner in rivals]
    for turn in range(most):
        for one in timed:
            if turn < least or sum(one.plan) < 1e3 * seconds:
                one.decide()
    return [one.latency for one in timed]


class _Timed:
    """A method at one decision, again and again."""

    def __init__(self, policy: Policy, planner: Planner):
        problem = random_problem(planner.model, planner.world.device)
        self.policy, self.planner = policy, planner
        self.request, self.frames = _request(policy, planner, problem), _frames(planner, 1)
        self.first = measure_latency(policy, planner, problem, 0.0, least=0)  # warms up, and counts
        self.plan: list[float] = []
        self.encode: list[float] = []

    def decide(self) -> None:
        device = self.planner.world.device
        if self.policy.frames:
            self.encode += _times(lambda: self.planner.encode(self.frames), 0.0, 1, device).tolist()
        self.plan += _times(lambda: self.policy.decide(self.request), 0.0, 1, device).tolist()

    @property
    def latency(self) -> Latency:
        (plan, plan_p95), (encode, encode_p95) = (
            _median_and_p95(np.array(times or [0.0])) for times in (self.plan, self.encode)
        )
        times = {"plan_ms": plan, "plan_ms_p95": plan_p95, "encode_ms": encode, "encode_ms_p95": encode_p95}
        return replace(self.first, repeats=len(self.plan), **times)


def _request(policy: Policy, planner: Planner, problem: PlanProblem) -> Request:
    """As at a replan after one block: where a plan may be reused, one is left."""
    batch = len(problem.goal)
    remaining_plan = planner.plan(problem).blocks[:, 1:] if isinstance(policy, PlannerPolicy) else None
    return Request(problem, remaining=50, remaining_plan=remaining_plan, seeds=tuple(range(batch)))


def _frames(planner: Planner, batch: int) -> np.ndarray:
    size = planner.world.spec.frame_size
    return np.zeros((batch, size, size, 3), np.uint8)


def _calls(policy: Policy) -> int | None:
    return getattr(policy, "calls", None)


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


def measure_methods(
    names: tuple[str, ...], planner: Planner, baselines: Path | None, budget: int, search: SearchBudget
) -> list[Latency]:
    """On random problems: time does not depend on them. Floors and ceilings decide nothing. A search takes one problem
    after another, so its batch of 50 is 50 times its batch of 1 and not measured."""
    timed = []
    inputs = MethodInputs(planner, budget, baselines, search)
    for batch in (1, 50):
        problem = random_problem(planner.model, batch=batch)
        for method in map(METHODS.get, names):
            if method.role in ("floor", "ceiling") or (batch > 1 and method.role == "search"):
                continue
            timed.append(measure_latency(method.make(inputs)(None), planner, problem))
    return timed
