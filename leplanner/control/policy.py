"""The one protocol between a controller and whatever decides: planners, search, learned policies, floors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..core.actions import Array
from ..core.dynamics import Dynamics
from ..core.latent import LatentSpec
from ..core.problem import Plan, PlanProblem
from ..planner.planner import Planner


@dataclass(frozen=True)
class Request:
    """What is known when a decision is due."""

    problem: PlanProblem
    remaining: int | None  # environment actions until the deadline, this one included, if there is one
    remaining_plan: Tensor | None  # what is left of the last plan: standardized blocks (B, t, A)
    seeds: tuple[int, ...]  # one a row: whatever a policy draws, it draws from these


class Policy(Protocol):
    """Decides for a batch. Rows must not influence each other.

    One that imagines may also say `calls`: predictor calls one after another for one problem, so far.
    """

    @property
    def name(self) -> str: ...
    @property
    def frames(self) -> int: ...  # how many context frames it looks at; 0: it never needs a picture
    @property
    def stride(
        self,
    ) -> int | None: ...  # environment actions between decisions; None: the controller's choice of blocks
    @property
    def transitions(self) -> int: ...  # of the predictor, imagined so far

    def decide(self, request: Request) -> Array:
        """Raw environment actions (B, T, d_a), T at least as many as will be executed."""
        ...


class TransitionCounter:
    """Counts predictor transitions, one for each plan of a batch and block: the cost of a plan, wherever it is made.
    And rollouts, each of them a whole batch."""

    def __init__(self, dynamics: Dynamics):
        self.dynamics, self.transitions, self.rollouts = dynamics, 0, 0
        self.latent: LatentSpec = dynamics.latent

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        self.transitions += plan.shape[0] * plan.shape[1]
        self.rollouts += 1
        return self.dynamics.rollout(context, past_blocks, plan)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return self.dynamics.distance(latents, goal)


class PlannerPolicy:
    """Ours. With `reuse`, what remains of the last plan is imagined again from where it really led, one rollout
    more, and followed where it is now imagined to end nearer the goal than the new plan. Without, as in the
    paper, the new plan always wins."""

    stride = None

    def __init__(self, planner: Planner, reuse: bool = False):
        self.planner, self.reuse, self.transitions, self.calls = planner, reuse, 0, 0
        self.name = "leplanner-reuse" if reuse else "leplanner"
        self.frames = planner.model.context

    def decide(self, request: Request) -> Array:
        problem = request.problem
        plan = self.planner.plan(problem)
        self.transitions += self.planner.transitions_per_plan * len(plan.blocks)
        self.calls += self.planner.calls_per_plan
        if self.reuse and request.remaining_plan is not None:
            self.transitions += plan.distances.numel()
            self.calls += self.planner.calls_per_rollout
            plan = select_better_plan(self.planner, problem, plan, request.remaining_plan)
        return self.planner.model.actions.raw_actions(plan.blocks)


def select_better_plan(planner: Planner, problem: PlanProblem, new: Plan, remaining_plan: Tensor) -> Plan:
    """For each problem the new plan, or what remains of the last one (B, t, A) where that is imagined to end nearer the
    goal. It is made as long as the new plan with the end of that, so that both are scored at the same time."""
    blocks = torch.cat([remaining_plan, new.blocks[:, remaining_plan.shape[1] :]], dim=1)
    latents = planner.imagine(problem, blocks)
    distances = planner.dynamics.distance(latents, problem.goal)
    nearer = distances[:, -1] < new.distances[:, -1]

    def pick(old: Tensor, fresh: Tensor) -> Tensor:
        return torch.where(nearer.view(-1, *[1] * (fresh.ndim - 1)), old, fresh)

    return Plan(pick(blocks, new.blocks), pick(latents, new.latents), pick(distances, new.distances))


def imagined_distance(dynamics: Dynamics, problem: PlanProblem, blocks: Tensor) -> Tensor:
    """Every method's plan by one scorer: the distance of its last imagined latent to the goal (B,). What solvers call
    cost differs from one to the next."""
    with torch.no_grad():
        return dynamics.distance(dynamics.rollout(problem.context, problem.past_blocks, blocks), problem.goal)[:, -1]
