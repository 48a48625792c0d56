"""What a planner is asked, what it answers, and the little it needs to know about a world model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

Imagine = Callable[[Tensor], Tensor]  # blocks (B, H, A) -> the latents they lead to (B, H, D)


@runtime_checkable
class LatentDynamics(Protocol):
    """A frozen world model, as planners see it. Gradients flow through it to the plan, never onto its weights."""

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """Latents (B, N, D), the blocks between them (B, N-1, A), the blocks to try (B, H, A) -> latents (B, H, D)."""
        ...


@dataclass(frozen=True)
class PlanProblem:
    context: Tensor  # (B, N, D) the last N latents, oldest first
    past_blocks: Tensor  # (B, N-1, A) the blocks between them, standardised
    goal: Tensor  # (B, D)


@dataclass(frozen=True)
class Plan:
    blocks: Tensor  # (B, H, A) standardised; the first leaves the current frame
    latents: Tensor  # (B, H, D) where the world model imagines they lead
    distances: Tensor  # (B, H) mean squared distance of each to the goal


@dataclass(frozen=True)
class PlanTrace:
    """The draft and every correction of it."""

    plans: tuple[Plan, ...]  # K+1

    @property
    def final(self) -> Plan:
        return self.plans[-1]


def imagination(dynamics: LatentDynamics, problem: PlanProblem) -> Imagine:
    """The world model as a function of the plan alone. A world that offers `prepare(context, past_blocks)` may
    compute there, once, what every plan for this problem shares."""
    prepare = getattr(dynamics, "prepare", None)
    if prepare is not None:
        return prepare(problem.context, problem.past_blocks)
    return lambda plan: dynamics.rollout(problem.context, problem.past_blocks, plan)


def goal_distances(latents: Tensor, goal: Tensor) -> Tensor:
    """(B, H, D), (B, D) -> (B, H): d_j = |z_j - z_G|^2 / D."""
    return (latents - goal.unsqueeze(1)).float().square().mean(dim=-1)
