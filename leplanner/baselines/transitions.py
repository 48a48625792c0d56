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
    horizon: Array  # (B,) environment actions from latent to goal; 0 where the goal is of another episode
    reached: Array  # (B,) float: the goal is `following` itself


def draw_transitions(
    windows: PlanWindows,
    rng: np.random.Generator,
    count: int,
    max_offset: int,
    random_share: float = 0.0,
    every_row: bool = False,
) -> Transitions:
    """Goals uniform over the next `max_offset` blocks of the episode, at the ends of blocks or, with `every_row`, at
    any row; a share of them from anywhere."""
    table = windows.table
    stride = table.stride
    apart = 1 if every_row else stride  # rows between possible goals
    current = windows.current[rng.integers(len(windows.current), size=count)]
    ahead = np.minimum(windows.rows_ahead[current] // apart, max_offset * stride // apart)
    rows = apart * (1 + (rng.random(count) * ahead).astype(np.int64))
    elsewhere = rng.random(count) < random_share
    goal = np.where(elsewhere, windows.current[rng.integers(len(windows.current), size=count)], current + rows)
    rows = np.where(elsewhere, 0, rows)
    latent, following, reached = (windows.latents[at].astype(np.float32) for at in (current, current + stride, goal))
    return Transitions(
        latent,
        table.leaving(current),
        following,
        reached,
        rows * table.steps_per_row,
        (rows == stride).astype(np.float32),
    )
