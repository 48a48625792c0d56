"""What a plan is rewarded for. Each term is a function of imagined distances or of density scores, nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def arrival_and_hold(distances: Tensor, offset: Tensor, hold_weight: float = 0.5) -> Tensor:
    """Be at the goal when the data was, and stay: d_q + lambda_h * mean(d_{q+1}, ..., d_H). (B, H), (B,) -> (B,).

    The hold term is zero for q = H. The offset only indexes the loss; a planner never sees it.
    """
    return arrival(distances, offset) + hold_weight * hold(distances, offset)


def arrival(distances: Tensor, offset: Tensor) -> Tensor:
    """d_q: (B, H), (B,) -> (B,)."""
    _check_offsets(distances, offset)
    return distances.gather(1, offset.unsqueeze(1) - 1).squeeze(1)


def hold(distances: Tensor, offset: Tensor) -> Tensor:
    """Mean distance after q: (B, H), (B,) -> (B,)."""
    horizon = distances.shape[1]
    after = torch.arange(1, horizon + 1, device=distances.device) > offset.unsqueeze(1)
    return (distances * after).sum(dim=1) / (horizon - offset).clamp(min=1)


def off_the_way(latents: Tensor, way: Tensor, offset: Tensor, known: Tensor) -> Tensor:
    """Mean distance, before q, to where the data was after each block: (B, H, D), (B, H, D), (B,), (B,) -> (B,).

    Latents that the data passed through, never its actions: where a goal lies behind a detour, imagined distance to the goal
    alone gives no gradient that leads around. Zero for q = 1, and where no way is known.
    """
    apart = (latents - way).float().square().mean(dim=-1)
    before = (torch.arange(1, way.shape[1] + 1, device=way.device) < offset.unsqueeze(1)) & known.unsqueeze(1)
    return (apart * before).sum(dim=1) / (offset - 1).clamp(min=1)


def fixed_terminal(distances: Tensor, path_weight: float = 0.0) -> Tensor:
    """Be at the goal when the plan ends, whenever the data was there: d_H + alpha * mean(d_1, ..., d_{H-1})."""
    return distances[:, -1] + path_weight * distances[:, :-1].mean(dim=1)


def deep_supervision_weights(refinements: int) -> Tensor:
    """rho_k = 2^k over their sum, for k = 0..K: later corrections count more, every one counts."""
    rho = 2.0 ** torch.arange(refinements + 1)
    return rho / rho.sum()


def deep_supervision(losses: Sequence[Tensor]) -> Tensor:
    """The weighted mean of the losses of the draft and of each correction."""
    weights = deep_supervision_weights(len(losses) - 1)
    return sum((weight * loss for weight, loss in zip(weights.tolist(), losses, strict=True)), torch.zeros(()))


def support_penalty(scores: Tensor, threshold: float) -> Tensor:
    """max(0, r - c95)^2, averaged over all blocks: exactly zero for plans that the data supports."""
    return (scores - threshold).clamp(min=0).square().mean()


def roughness(blocks: Tensor, steps: int) -> Tensor:
    """Mean squared change from one action to the next over a plan (B, H, A) with `steps` actions a block.

    A world sees only where a block ends; a plan may wiggle inside blocks without being charged for it.
    """
    return blocks.unflatten(-1, (steps, -1)).flatten(1, 2).diff(dim=1).square().mean()


def contexts_before(context: Tensor, latents: Tensor) -> Tensor:
    """What precedes each block of a plan: (B, N, D), (B, H, D) -> (B, H, N, D), imagined as far as it must be."""
    frames = torch.cat([context, latents[:, :-1]], dim=1)
    return frames.unfold(1, context.shape[1], 1).transpose(-1, -2)


def _check_offsets(distances: Tensor, offset: Tensor) -> None:
    horizon = distances.shape[1]
    if torch.compiler.is_compiling():
        return
    if int(offset.min()) < 1 or int(offset.max()) > horizon:
        raise ValueError(
            f"Goal offsets must lie in 1..{horizon}, the plan's blocks; got {int(offset.min())}..{int(offset.max())}. "
            "Lower the curriculum's offsets or lengthen the plan."
        )
