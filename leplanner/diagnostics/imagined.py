"""What a planner does in imagination, on held-out problems: when plans arrive, and what refinements gain."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.dynamics import Dynamics, Imagine, imagination
from ..core.problem import Plan, PlanProblem
from ..data.windows import PlanBatch
from ..density.mixture import Density
from ..planner.model import LePlanner
from ..planner.objectives import arrival
from ..planner.validate import as_sample, off_support, report_on


@dataclass(frozen=True)
class DepthRow:
    """What refinement k returns; beyond the trained depth the loop goes on with its last step size."""

    k: int
    terminal: float  # mean d_H
    arrival: float  # mean d_q
    gain: float | None  # how much less the terminal distance is than before
    change: float | None  # mean absolute change of the blocks


@dataclass(frozen=True)
class BesideTheData:
    """Our first block and the data's, in standardized units; distances are imagined."""

    cosine_mean: float
    cosine_median: float
    difference: float  # mean absolute
    magnitude: float  # mean absolute value of the data's block
    plan_ends: float  # mean distance where our plan ends
    our_block_ends: float  # mean distance after our first block
    data_block_ends: float  # mean distance after the data's
    plan_nearer: float  # share of problems whose plan ends nearer the goal than the data's block does
    our_block_nearer: float  # the same of our first block alone


@dataclass(frozen=True)
class ImaginedTables:
    problems: int
    trained_depth: int  # K
    start: float  # mean distance to the goal before anything is done
    profile: list[list[float] | None]  # [q - 1][j - 1]: mean d_j for goals that the data reached after q blocks
    profile_counts: list[int]
    depth: list[DepthRow]
    magnitudes: list[float]  # mean absolute standardized action, by block of the final plan
    off_support: float | None  # share of blocks that the density does not support; None without density or refinements
    beside_the_data: BesideTheData


@torch.no_grad()
def imagined_tables(
    model: LePlanner, dynamics: Dynamics, batch: PlanBatch, density: Density | None, depth: int = 10
) -> ImaginedTables:
    device = next(model.parameters()).device
    sample = as_sample(batch, device)
    problem, offset = sample.problem, sample.offset
    imagine = imagination(dynamics, problem)
    report = report_on(model, dynamics, sample, density)
    plans = deeper_plans(model, problem, imagine, max(depth, model.config.refinements))
    final = plans[model.config.refinements]
    return ImaginedTables(
        problems=len(offset),
        trained_depth=model.config.refinements,
        start=report.start,
        profile=report.profile,
        profile_counts=[int((offset == q).sum()) for q in range(1, model.config.horizon + 1)],
        depth=depth_rows(plans, offset),
        magnitudes=final.blocks.abs().mean(dim=(0, 2)).tolist(),
        off_support=off_support(tuple(plans[: model.config.refinements + 1]), problem, density) if density else None,
        beside_the_data=beside_the_data(final, torch.from_numpy(batch.first_block).to(device), problem, dynamics),
    )


def deeper_plans(model: LePlanner, problem: PlanProblem, imagine: Imagine, depth: int) -> list[Plan]:
    """As `LePlanner.forward`, for any number of refinements."""
    C = model.conditioning(problem.context, problem.goal)
    Y = model.initial_plan(C)
    plans: list[Plan] = []
    for k in range(depth + 1):
        b = model.decode(Y)
        z, d = imagine(b)
        plans.append(Plan(b, z, d))
        if k < depth and model.config.refinements:
            step = model.eta[min(k, model.config.refinements - 1)].sigmoid()
            Y = Y + step * model.plan_update(Y, model.interpret(Y, z, d, problem.goal, C), C)
    return plans


def depth_rows(plans: list[Plan], offset: Tensor) -> list[DepthRow]:
    rows: list[DepthRow] = []
    for k, plan in enumerate(plans):
        terminal = plan.distances[:, -1].mean().item()
        gain = rows[-1].terminal - terminal if rows else None
        change = (plan.blocks - plans[k - 1].blocks).abs().mean().item() if rows else None
        rows.append(DepthRow(k, terminal, arrival(plan.distances, offset).mean().item(), gain, change))
    return rows


def beside_the_data(plan: Plan, taken: Tensor, problem: PlanProblem, dynamics: Dynamics) -> BesideTheData:
    first = plan.blocks[:, 0]
    cosine = torch.nn.functional.cosine_similarity(first, taken, dim=-1)
    data_latents = dynamics.rollout(problem.context, problem.past_blocks, taken.unsqueeze(1))
    after_data = dynamics.distance(data_latents, problem.goal)[:, 0]
    after_ours, at_end = plan.distances[:, 0], plan.distances[:, -1]
    return BesideTheData(
        cosine_mean=cosine.mean().item(),
        cosine_median=cosine.median().item(),
        difference=(first - taken).abs().mean().item(),
        magnitude=taken.abs().mean().item(),
        plan_ends=at_end.mean().item(),
        our_block_ends=after_ours.mean().item(),
        data_block_ends=after_data.mean().item(),
        plan_nearer=(at_end < after_data).float().mean().item(),
        our_block_nearer=(after_ours < after_data).float().mean().item(),
    )
