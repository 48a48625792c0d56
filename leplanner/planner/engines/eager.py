"""The plain model: the reference that every other engine must equal."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...core.dynamics import Dynamics, imagination
from ...core.problem import Plan, PlanProblem
from ..model import LePlanner
from .base import EngineKind, offers_onnx


class EagerEngine:
    precision = "fp32"

    def __init__(self, dynamics: Dynamics, model: LePlanner):
        self.dynamics, self.model = dynamics, model

    def plan(self, problem: PlanProblem) -> Plan:
        return self.model(problem, imagination(self.dynamics, problem))[-1]

    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        return imagination(self.dynamics, problem)(blocks)[0]

    def encode(self, frames: Tensor) -> Tensor:
        world: Any = self.dynamics
        return world.encode(frames)


def _suits(dynamics: Dynamics, device: str) -> str:
    if offers_onnx(dynamics):
        return "the plain model runs everywhere"
    return f"{type(dynamics).__name__} does not say that torch can trace it, and the plain model runs everywhere"


EAGER = EngineKind("eager", EagerEngine, missing=lambda dynamics, model: None, suits=_suits)
