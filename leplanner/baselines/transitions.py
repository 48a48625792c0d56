"""Goal-conditioned transitions from a latent cache, as goal-conditioned policies and values learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.actions import Array
from ..data.windows import PlanWindows


@dataclass(frozen=True)
class Transitions:
    latent: Array  # (B, D)
    block: Array  # (B, A) standardized, leaving it
    following: Array  # (B, D) the latent one block later
    goal: Array  # (B, D) a latent of the same episode, later; sometimes the following one, for values also another's
    offset: Array  # (B,) blocks from latent to goal; 0 where the goal is of another episode
    reached: Array  # (B,) float: the goal is `following` itself


def draw_transitions(
    windows: PlanWindows, rng: np.random.Generator, count: int, max_offset: int, random_share: float = 0.0
) -> Transitions:
    """Goals uniform over the next `max_offset` blocks of the episode; a share of them from anywhere."""
    stride = windows.table.stride
    current = windows.current[rng.integers(len(windows.current), size=count)]
    offset = 1 + (rng.random(count) * np.minimum(windows.future[current], max_offset)).astype(np.int64)
    goal = current + stride * offset
    elsewhere = rng.random(count) < random_share
    goal = np.where(elsewhere, windows.current[rng.integers(len(windows.current), size=count)], goal)
    offset = np.where(elsewhere, 0, offset)
    latent, following, reached = (
        windows.latents[rows].astype(np.float32) for rows in (current, current + stride, goal)
    )
    return Transitions(
        latent, windows.table.leaving(current), following, reached, offset, (offset == 1).astype(np.float32)
    )
