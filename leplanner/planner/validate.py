"""Looks at a planner on held-out problems: distances by refinement, profiles by goal offset, support."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.dynamics import Dynamics, imagination
from ..core.problem import Plan, PlanProblem
from ..data.windows import PlanBatch
from ..density.mixture import Density
from .model import LePlanner
from .objectives import Sample, arrival, block_scores


def as_sample(batch: PlanBatch, device: torch.device) -> Sample:
    context, past, goal, offset, reference, known = (
        torch.as_tensor(part).to(device)
        for part in (
            batch.context,
            batch.past_blocks,
            batch.goal,
            batch.offset,
            batch.reference,
            batch.reference_known,
        )
    )
    return Sample(PlanProblem(context, past, goal), offset, reference, known)


@dataclass(frozen=True)
class PlannerReport:
    start: float  # mean distance from the current latent to the goal
    arrival: list[float]  # mean d_q, for each k
    terminal: list[float]  # mean d_H, for each k
    profile: list[list[float] | None]  # [q - 1][j - 1]: mean d_j of the final plan for goals q blocks away, if any
    off_support: float | None  # share of the refined plans' blocks that score above the threshold
    step_sizes: list[float]  # sigma(eta_k)

    @property
    def profile_minimum(self) -> list[int | None]:
        """The block at which each profile is lowest: q itself, if plans arrive when the data did."""
        return [min(range(len(row)), key=row.__getitem__) + 1 if row else None for row in self.profile]


def _profile(distances: Tensor) -> list[float] | None:
    return [float(d) for d in distances.mean(dim=0)] if len(distances) else None


@torch.no_grad()
def report_on(model: LePlanner, dynamics: Dynamics, sample: Sample, density: Density | None) -> PlannerReport:
    problem, offset = sample.problem, sample.offset
    plans = model(problem, imagination(dynamics, problem))
    final = plans[-1].distances
    return PlannerReport(
        start=dynamics.distance(problem.context[:, -1:], problem.goal).mean().item(),
        arrival=[arrival(plan.distances, offset).mean().item() for plan in plans],
        terminal=[plan.distances[:, -1].mean().item() for plan in plans],
        profile=[_profile(final[offset == q]) for q in range(1, final.shape[1] + 1)],
        off_support=off_support(plans, problem, density) if density else None,
        step_sizes=[float(eta) for eta in model.eta.sigmoid()],
    )


def off_support(plans: tuple[Plan, ...], problem: PlanProblem, density: Density) -> float | None:
    if len(plans) == 1:
        return None
    return (block_scores(plans, problem, density) > density.threshold).float().mean().item()
