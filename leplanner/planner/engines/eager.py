"""The plain model: the reference that every other engine must equal."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...core.dynamics import Dynamics, imagination
from ...core.problem import Plan, PlanProblem
from ..model import LePlanner
from .base import EngineKind


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


EAGER = EngineKind(
    "eager",
    EagerEngine,
    missing=lambda dynamics, model: None,
    suits=lambda dynamics, device: "the plain model runs everywhere",
)
