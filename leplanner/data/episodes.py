"""Episodes: one view over datasets of every format.

A *row* is a stored frame. A row holds the actions taken between it and the next row: one action in
released files, a block of several in files that keep only every f-th frame. `steps_per_row` says which.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..core.actions import Array


class Frames(Protocol):
    """Random access to uint8 frames by a row, a slice, or an array of rows in any order; an
    array, or a file read on demand."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True)
class Episodes:
    frames: Frames  # (R, H, W, 3) uint8
    actions: Array  # (R, steps_per_row, d_a) raw; NaN in an episode's last row
    states: Array | None  # (R, S) physical state, for evaluation and probes only
    starts: Array  # (E,) first row of each episode
    lengths: Array  # (E,) rows of each episode
    ids: Array  # (E,) what an episode is called; the split depends on it alone
    steps_per_row: int
    digest: str
    meta: dict[str, Any] = field(default_factory=dict)
    # (E, 2) of on-policy episodes: the rows it started from and was steered to; -1 where the behavior policy acted
    goal_rows: Array | None = None
    columns: tuple[str, ...] = ()  # that the file has, to be named where one is missing

    def __repr__(self) -> str:
        return (
            f"<Episodes: {len(self.starts)} of {self.rows} rows, {self.steps_per_row} actions of {self.action_dim} "
            f"numbers a row; {self.digest[:12]}>"
        )

    @property
    def action_dim(self) -> int:
        return self.actions.shape[-1]

    @property
    def rows(self) -> int:
        return len(self.actions)

    @property
    def for_trials_only(self) -> bool:
        """Test episodes: nothing is trained or chosen on them."""
        return self.meta.get("config", {}).get("split") == "test"

    @property
    def by_planner(self) -> Array:
        """(E,) bool: episodes that a planner steered towards a goal."""
        return np.zeros(len(self.starts), bool) if self.goal_rows is None else self.goal_rows[:, 1] >= 0

    def need_states(self, purpose: str) -> Array:
        """The physical states, or an error that says how they can be found."""
        if self.states is None:
            found = f" (it has {', '.join(self.columns)})" if self.columns else ""
            raise ValueError(
                f"{purpose}, but the dataset has no physical states: no column is one that the task knows{found}. Name "
                "the column, or those that make it up: --columns state=NAME, or state=NAME+NAME."
            )
        return self.states

    def rows_per_block(self, block: int) -> int:
        if block % self.steps_per_row:
            raise ValueError(
                f"A block of {block} actions was requested, but a row of this dataset spans {self.steps_per_row} "
                f"actions, which does not divide it. Collect with --every {block} or --every 1."
            )
        return block // self.steps_per_row

    def episode_rows(self, chosen: Array, ahead: int = 0) -> Array:
        """All rows of the chosen episodes that have at least `ahead` rows after them."""
        starts, counts = self.starts[chosen], np.maximum(self.lengths[chosen] - ahead, 0)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(starts, counts) + within


def is_validation(ids: Array, share: float = 0.05) -> Array:
    """(E,) bool: the held-out episodes. A hash of the episode's own id decides, so adding episodes, reordering
    them or asking twice never moves one from one side to the other."""
    mixed = np.asarray(ids, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return mixed.astype(np.float64) / 2.0**64 < share


def split(episodes: Episodes, share: float = 0.05) -> tuple[Array, Array]:
    """Indices of the training and of the validation episodes."""
    if episodes.for_trials_only:
        raise ValueError(
            f"These {len(episodes.starts)} episodes are a test set, which nothing is trained or chosen on: only trials "
            "are drawn from it. Give the dataset for training (leplanner collect TASK)."
        )
    held_out = is_validation(episodes.ids, share)
    if held_out.all() or not held_out.any():
        raise ValueError(
            f"Of {len(held_out)} episodes, {int(held_out.sum())} fall into the held-out {share:.0%}, which leaves one "
            "side empty. An episode's own id decides, so more episodes are the cure: collect at least 20."
        )
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def episodes_for_trials(episodes: Episodes) -> Array:
    """Indices of the episodes that nothing was trained on: all of a test set; else the validation episodes."""
    return np.arange(len(episodes.starts)) if episodes.for_trials_only else split(episodes)[1]


def action_statistics(episodes: Episodes, train: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each raw action dimension over the training episodes."""
    actions = episodes.actions[episodes.episode_rows(train)].reshape(-1, episodes.action_dim)
    actions = actions[np.isfinite(actions).all(axis=1)].astype(np.float64)
    if len(actions) == 0:
        raise ValueError("The dataset's training episodes hold no finite action. Column 'action' seems to be empty.")
    mean, std = actions.mean(axis=0), actions.std(axis=0)
    return mean, np.where(std < 1e-6, 1.0, std)


def read_frames(episodes: Episodes, rows: Array) -> Array:
    """Frames at any rows, in any order, repeats allowed."""
    return np.asarray(episodes.frames[rows])
