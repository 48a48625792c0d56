"""What a plan is rewarded for: functions of imagined distances, density scores and reference trajectories, never of the
data's actions. An objective and every further term of the loss are registered by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..core.dynamics import Dynamics, pairwise_distance
from ..core.problem import Plan, PlanProblem
from ..core.registry import Registry
from ..density.mixture import Density


@dataclass(frozen=True)
class Sample:
    """Problems whose goals the data reached `offset` blocks later; recovery problems have the end of the plan."""

    problem: PlanProblem
    offset: Int[Tensor, "B"]  # q
    reference: Float[Tensor, "B H *Z"]  # where the data was after each block
    reference_known: Bool[Tensor, "B"]


@dataclass(frozen=True)
class Objective:
    """Scores a plan by its distances (B, H) and the data's offset (B,); `config` is the training configuration."""

    name: str
    loss: Callable[[Tensor, Tensor, Any], Tensor]
    chosen_by: str  # the field of a validation report by whose last value the best weights are kept


@dataclass(frozen=True)
class LossInputs:
    plans: tuple[Plan, ...]  # the draft and its refinements
    sample: Sample
    dynamics: Dynamics
    density: Density | None
    block: int  # actions in a block


@dataclass(frozen=True)
class LossTerm:
    """Added to the objective with the weight that the training configuration has for it: its field NAME_weight, or its
    entry in `extra_terms`. A term may return None where it does not apply."""

    name: str
    loss: Callable[[LossInputs], Tensor | None]


OBJECTIVES: Registry[Objective] = Registry("objective", "leplanner.objectives")
TERMS: Registry[LossTerm] = Registry("loss term", "leplanner.loss_terms")


def arrival_and_hold(
    distances: Float[Tensor, "B H"], offset: Int[Tensor, "B"], hold_weight: float = 0.5
) -> Float[Tensor, "B"]:
    """Be at the goal when the data was, and stay: d_q + lambda_h * mean(d_{q+1}, ..., d_H).

    The hold term is zero for q = H. The offset only indexes the loss; a planner never sees it.
    """
    return arrival(distances, offset) + hold_weight * hold(distances, offset)


def arrival(distances: Float[Tensor, "B H"], offset: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """d_q"""
    _check_offsets(distances, offset)
    return distances.gather(1, offset.unsqueeze(1) - 1).squeeze(1)


def hold(distances: Float[Tensor, "B H"], offset: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Mean distance after q."""
    horizon = distances.shape[1]
    after = torch.arange(1, horizon + 1, device=distances.device) > offset.unsqueeze(1)
    return (distances * after).sum(dim=1) / (horizon - offset).clamp(min=1)


def fixed_terminal(distances: Float[Tensor, "B H"], path_weight: float = 0.0) -> Float[Tensor, "B"]:
    """Be at the goal when the plan ends, whenever the data was there: d_H + alpha * mean(d_1, ..., d_{H-1})."""
    return distances[:, -1] + path_weight * distances[:, :-1].mean(dim=1)


def tracking_loss(
    apart: Float[Tensor, "B H"], offset: Int[Tensor, "B"], known: Bool[Tensor, "B"]
) -> Float[Tensor, "B"]:
    """Mean distance, before q, to the reference trajectory.

    Latents that the data passed through, never its actions: where a goal lies behind a detour, imagined distance to the
    goal alone gives no gradient that leads around. Zero for q = 1, and where no reference is known.
    """
    before = (torch.arange(1, apart.shape[1] + 1, device=apart.device) < offset.unsqueeze(1)) & known.unsqueeze(1)
    return (apart * before).sum(dim=1) / (offset - 1).clamp(min=1)


def deep_supervision_weights(refinements: int) -> Tensor:
    """rho_k = 2^k over their sum, for k = 0..K: later refinements count more, every one counts."""
    rho = 2.0 ** torch.arange(refinements + 1)
    return rho / rho.sum()


def deep_supervision(losses: Sequence[Tensor]) -> Tensor:
    """The weighted mean of the losses of the draft and of each refinement."""
    weights = deep_supervision_weights(len(losses) - 1)
    return sum((float(weight) * loss for weight, loss in zip(weights, losses, strict=True)), torch.zeros(()))


def support_penalty(scores: Tensor, threshold: float) -> Tensor:
    """max(0, r - c95)^2, averaged over all blocks: exactly zero for plans that the data supports."""
    return (scores - threshold).clamp(min=0).square().mean()


def roughness(blocks: Tensor, steps: int) -> Tensor:
    """Mean squared change from one action to the next over a plan (B, H, A) with `steps` actions a block.

    A world sees only where a block ends; a plan may wiggle inside blocks without being charged for it.
    """
    return torch.unflatten(blocks, -1, (steps, -1)).flatten(1, 2).diff(dim=1).square().mean()


def contexts_before(context: Float[Tensor, "B N *Z"], latents: Float[Tensor, "B H *Z"]) -> Float[Tensor, "B H N *Z"]:
    """What precedes each block of a plan, imagined as far as it must be."""
    frames = torch.cat([context, latents[:, :-1]], dim=1)
    return frames.unfold(1, context.shape[1], 1).movedim(-1, 2)


def block_scores(plans: tuple[Plan, ...], problem: PlanProblem, density: Density) -> Tensor:
    """Density scores of every block of the refined plans, in the contexts imagined before them: (K, B, H)."""
    contexts = torch.stack([contexts_before(problem.context, plan.latents) for plan in plans[1:]])
    return density.score(contexts, torch.stack([plan.blocks for plan in plans[1:]]))


def _check_offsets(distances: Tensor, offset: Tensor) -> None:
    horizon = distances.shape[1]
    if torch.compiler.is_compiling():
        return
    if int(offset.min()) < 1 or int(offset.max()) > horizon:
        raise ValueError(
            f"Goal offsets must lie in 1..{horizon}, the plan's blocks; got {int(offset.min())}..{int(offset.max())}. "
            "Lower the curriculum's offsets or lengthen the plan."
        )


def _support(inputs: LossInputs) -> Tensor | None:
    if inputs.density is None or len(inputs.plans) == 1:
        return None  # without refinements nothing is kept within the data's support
    return support_penalty(block_scores(inputs.plans, inputs.sample.problem, inputs.density), inputs.density.threshold)


def _tracking(inputs: LossInputs) -> Tensor:
    sample = inputs.sample
    apart = [pairwise_distance(inputs.dynamics, plan.latents, sample.reference) for plan in inputs.plans]
    return deep_supervision([tracking_loss(a, sample.offset, sample.reference_known).mean() for a in apart])


def _smooth(inputs: LossInputs) -> Tensor:
    return deep_supervision([roughness(plan.blocks, inputs.block) for plan in inputs.plans])


OBJECTIVES.register(
    Objective("arrival-hold", lambda d, offset, config: arrival_and_hold(d, offset, config.hold_weight), "arrival")
)
OBJECTIVES.register(
    Objective("fixed-terminal", lambda d, offset, config: fixed_terminal(d, config.path_weight), "terminal")
)
for term in (LossTerm("support", _support), LossTerm("tracking", _tracking), LossTerm("smooth", _smooth)):
    TERMS.register(term)
