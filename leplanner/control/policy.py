"""The one protocol between a controller and whatever decides: planners, search, learned policies, floors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..planner.actions import ActionBox
from ..planner.planner import Planner
from ..planner.problem import LatentDynamics, PlanProblem, goal_distances

Array = np.ndarray


@dataclass(frozen=True)
class Request:
    """What is known when a decision is due."""

    problem: PlanProblem
    remaining: int | None  # environment actions until the deadline, this one included, if there is one
    rest: Tensor | None  # what is left of the last plan: standardised blocks (B, t, A)
    seeds: tuple[int, ...]  # one a row: whatever a policy draws, it draws from these


class Policy(Protocol):
    """Decides for a batch. Rows must not influence each other."""

    @property
    def name(self) -> str: ...
    @property
    def frames(self) -> int: ...  # how many context frames it looks at; 0: it never needs a picture
    @property
    def stride(
        self,
    ) -> int | None: ...  # environment actions between decisions; None: the controller's choice of blocks
    @property
    def rows(self) -> int: ...  # predictor transitions imagined so far

    def decide(self, request: Request) -> Array:
        """Raw environment actions (B, T, d_a), T at least as many as will be executed."""
        ...


class RowCounter:
    """Counts predicted transitions, one for each row of a batch and block: the cost of a plan, wherever it is made."""

    def __init__(self, dynamics: LatentDynamics):
        self.dynamics, self.rows = dynamics, 0

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        self.rows += plan.shape[0] * plan.shape[1]
        return self.dynamics.rollout(context, past_blocks, plan)


class PlannerPolicy:
    """Ours."""

    name, stride = "leplanner", None

    def __init__(self, planner: Planner):
        self.planner, self.rows = planner, 0
        self.frames = planner.model.config.context

    def decide(self, request: Request) -> Array:
        self.rows += self.planner.rows * len(request.problem.goal)
        return raw_actions(self.planner.plan(request.problem).blocks, self.planner.model.box)


def raw_actions(blocks: Tensor, box: ActionBox) -> Array:
    """Standardised blocks (B, H, A) -> raw actions (B, H * f, d_a) inside the environment's box."""
    return box.raw(blocks.detach().float().cpu()).flatten(1, 2).numpy()


def imagined_distance(dynamics: LatentDynamics, problem: PlanProblem, blocks: Tensor) -> Tensor:
    """Every method's plan by one scorer: the distance of its last imagined latent to the goal (B,). What solvers call
    cost differs from one to the next."""
    with torch.no_grad():
        return goal_distances(dynamics.rollout(problem.context, problem.past_blocks, blocks), problem.goal)[:, -1]
