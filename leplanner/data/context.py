"""The one place where a context is filled up before enough frames exist: the first frame
repeated, raw zero actions between.

Windows, controller, solver and diagnostics all come here, so that what a planner meets at an episode's
start is what it was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..core.actions import ActionSpec, Array


def context_places(known: Array | int, context: int) -> tuple[Array, Array]:
    """`known` frames, at least one, as a context of N: for each place the frame to take (0 is the first known), and for
    each of the N-1 blocks between whether it is real. Any shape of `known`; N and N-1 are added at its end."""
    first = context - np.asarray(known)[..., None]  # the place of the first known frame
    places = np.maximum(np.arange(context) - first, 0)
    return places, np.arange(context - 1) >= first


def fill_context(
    latents: Sequence[Tensor], blocks: Sequence[Tensor], context: int, actions: ActionSpec
) -> tuple[Tensor, Tensor]:
    """Latents (B, *Z) of the last frames, a block apart and the current one last, and the blocks (B, A) between them ->
    (B, N, *Z) and (B, N-1, A)."""
    latents = latents[-context:]
    places, real = context_places(len(latents), context)
    zero = torch.from_numpy(actions.zero_block()).to(latents[0]).expand(len(latents[0]), -1)
    recent = list(blocks)[len(blocks) - len(latents) + 1 :]
    missing = context - len(latents)
    past = [recent[place - missing] if is_real else zero for place, is_real in enumerate(real)]
    filled = torch.stack([latents[place] for place in places], dim=1)
    return filled, torch.stack(past, dim=1) if past else zero.new_zeros(len(zero), 0, zero.shape[1])
