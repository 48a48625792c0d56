"""Compiled regions: minutes to compile on a CPU, once a machine and batch size; replayed as CUDA graphs on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.dynamics import Dynamics, imagination
from ...core.problem import Plan, PlanProblem
from ...training.precision import autocast, pick_precision
from ..fast import FastPlanner, fast_dynamics
from ..model import LePlanner
from .base import HALF_TOLERANCE, EngineKind, random_problem
from .eager import EagerEngine


class CompiledEngine:
    """In bf16 where that is faster, unless it moves a plan too far."""

    def __init__(self, dynamics: Dynamics, model: LePlanner):
        self.device = next(model.parameters()).device
        kind = self.device.type
        options: dict[str, Any] = {"freezing": True} if kind == "cpu" else {"triton.cudagraphs": kind == "cuda"}
        self.plain = EagerEngine(dynamics, model)
        self.planner, self.rollout = FastPlanner(model, options=options), fast_dynamics(dynamics, True, options)
        self.precision = pick_precision("auto", self.device)
        if self.precision == "bf16":
            problem = random_problem(model, self.device, batch=16)
            exact = self.plain.plan(problem).blocks
            if (self.plan(problem).blocks - exact).abs().max() > HALF_TOLERANCE:
                self.precision = "fp32"

    def plan(self, problem: PlanProblem) -> Plan:
        torch.compiler.cudagraph_mark_step_begin()  # regions feed each other within a plan
        with autocast(self.precision, self.device):
            plan = self.planner(problem, imagination(self.rollout, problem))[-1]
        # a graph's memory is used again by the next plan
        return Plan(*(part.float().clone() for part in (plan.blocks, plan.latents, plan.distances)))

    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        with autocast(self.precision, self.device):
            return imagination(self.rollout, problem)(blocks)[0].float().clone()

    def encode(self, frames: Tensor) -> Tensor:
        return self.plain.encode(frames)


COMPILED = EngineKind(
    "compiled",
    CompiledEngine,
    missing=lambda dynamics, model: None,
    suits=lambda dynamics, device: "compiled regions replayed as CUDA graphs" if device == "cuda" else None,
)
