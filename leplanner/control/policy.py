"""The one protocol between a controller and whatever decides: planners, search, learned policies, floors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..planner.actions import ActionBox
from ..planner.planner import Planner
from ..planner.problem import LatentDynamics, Plan, PlanProblem, goal_distances

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
    """Ours. With `keep`, the rest of the last plan is imagined again from where it really led, one rollout more, and gone on
    with where it is now imagined to end nearer the goal than the new plan. Without, as in the paper, the new one always wins."""

    stride = None

    def __init__(self, planner: Planner, keep: bool = False):
        self.planner, self.keep, self.rows = planner, keep, 0
        self.name = "leplanner-keep" if keep else "leplanner"
        self.frames = planner.model.config.context

    def decide(self, request: Request) -> Array:
        problem = request.problem
        plan = self.planner.plan(problem)
        self.rows += self.planner.rows * len(plan.blocks)
        if self.keep and request.rest is not None:
            self.rows += plan.distances.numel()
            plan = nearer_plan(self.planner, problem, plan, request.rest)
        return raw_actions(plan.blocks, self.planner.model.box)


def nearer_plan(planner: Planner, problem: PlanProblem, new: Plan, rest: Tensor) -> Plan:
    """Row by row the new plan, or the rest of the last one (B, t, A) where that is imagined to end nearer the goal. The rest is
    made as long as the new plan with the end of that, so that both are judged at the same time."""
    kept = torch.cat([rest, new.blocks[:, rest.shape[1] :]], dim=1)
    latents = planner.imagine(problem, kept)
    distances = goal_distances(latents, problem.goal)
    nearer = distances[:, -1] < new.distances[:, -1]
    return Plan(
        torch.where(nearer[:, None, None], kept, new.blocks),
        torch.where(nearer[:, None, None], latents, new.latents),
        torch.where(nearer[:, None], distances, new.distances),
    )


def raw_actions(blocks: Tensor, box: ActionBox) -> Array:
    """Standardised blocks (B, H, A) -> raw actions (B, H * f, d_a) inside the environment's box."""
    return box.raw(blocks.detach().float().cpu()).flatten(1, 2).numpy()


def imagined_distance(dynamics: LatentDynamics, problem: PlanProblem, blocks: Tensor) -> Tensor:
    """Every method's plan by one scorer: the distance of its last imagined latent to the goal (B,). What solvers call
    cost differs from one to the next."""
    with torch.no_grad():
        return goal_distances(dynamics.rollout(problem.context, problem.past_blocks, blocks), problem.goal)[:, -1]
