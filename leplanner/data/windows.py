"""Draws training samples: windows of frames for the world model, (context, past blocks, goal, offset) for planners."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from .episodes import Array, Episodes, read_frames


@dataclass(frozen=True)
class ActionScale:
    """Actions are standardised per raw dimension, then packed into blocks."""

    mean: Array  # (d_a,)
    std: Array  # (d_a,)

    def standardise(self, actions: Array) -> Array:
        return ((actions - self.mean) / self.std).astype(np.float32)

    def zero_block(self, block: int) -> Array:
        """A block of raw zero actions, (A,)."""
        return np.tile(self.standardise(np.zeros_like(self.mean)), block)


@dataclass(frozen=True)
class WorldBatch:
    frames: Array  # (B, N+1, S, S, 3) uint8
    blocks: Array  # (B, N, A) standardised; block k leaves frame k
    rows: Array  # (B, N+1)


@dataclass(frozen=True)
class PlanBatch:
    context: Array  # (B, N, D)
    past_blocks: Array  # (B, N-1, A)
    goal: Array  # (B, D)
    offset: Array  # (B,) q, in blocks
    first_block: Array  # (B, A) the block the data took next: for densities and diagnostics, never a target
    way: Array  # (B, H, D) where the data was after each block, at the goal from q on
    way_known: Array  # (B,) bool; nothing in the data shows the way of a second attempt


@dataclass(frozen=True)
class RolloutBatch:
    context: Array  # (B, N, D)
    past_blocks: Array  # (B, N-1, A)
    blocks: Array  # (B, H, A) what the data did next
    latents: Array  # (B, H, D) where that led


ASTRAY = 0.01  # farther from the goal than this share of how far apart any two rows are


class BlockTable:
    """Standardised action blocks by the row they leave."""

    def __init__(self, episodes: Episodes, scale: ActionScale, block: int):
        self.stride = episodes.rows_per_block(block)
        self.actions = scale.standardise(episodes.actions).reshape(episodes.rows, -1)
        self.zero = scale.zero_block(block)
        last = episodes.starts + episodes.lengths - 1
        inner = np.ones(episodes.rows, bool)
        inner[last] = False
        broken = inner & ~np.isfinite(self.actions).all(axis=1)
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            raise ValueError(
                f"Column 'action' is not finite in {int(broken.sum())} rows inside episodes (first: row {row}); only an "
                "episode's last row may be NaN. Repair or re-collect the dataset."
            )

    def leaving(self, rows: Array) -> Array:
        """(...,) rows -> (..., A)"""
        steps = rows[..., None] + np.arange(self.stride)
        return self.actions[steps].reshape(*rows.shape, -1)


class WorldWindows:
    """N+1 frames a block apart, and the N blocks between them."""

    def __init__(self, episodes: Episodes, chosen: Array, scale: ActionScale, block: int, context: int):
        self.episodes, self.context = episodes, context
        self.table = BlockTable(episodes, scale, block)
        self.starts = episodes.episode_rows(chosen, ahead=context * self.table.stride)
        if len(self.starts) == 0:
            longest = int(episodes.lengths[chosen].max()) if len(chosen) else 0
            raise ValueError(
                f"No window fits: {context + 1} frames {self.table.stride} rows apart need episodes of at least "
                f"{context * self.table.stride + 1} rows; {len(chosen)} episodes were given, the longest of {longest}."
            )

    def draw(self, rng: np.random.Generator, count: int) -> WorldBatch:
        return self.at(self.starts[rng.integers(len(self.starts), size=count)])

    def at(self, starts: Array) -> WorldBatch:
        rows = starts[:, None] + self.table.stride * np.arange(self.context + 1)
        return WorldBatch(read_frames(self.episodes, rows), self.table.leaving(rows[:, :-1]), rows)


class PlanWindows:
    """Planning samples over cached latents.

    A share of the contexts is cut short and padded as at the start of an episode (the first frame repeated,
    raw zero actions between), so that a controller's first decisions are in distribution. Of practised data, a share may
    be second attempts: from where a planner had got to when the data had arrived, again to the goal that it was played for.
    """

    def __init__(
        self,
        latents: Array,
        episodes: Episodes,
        chosen: Array,
        scale: ActionScale,
        block: int,
        context: int,
        pad_share: float = 0.25,
        retry_share: float = 0.0,
        far_share: float = 0.0,
    ):
        self.latents, self.context = latents, context
        self.pad_share, self.retry_share, self.far_share = pad_share, retry_share, far_share
        for name in ("pad_share", "retry_share", "far_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a share of the problems, from 0 to 1; got {getattr(self, name)}.")
        self.table = BlockTable(episodes, scale, block)
        stride = self.table.stride
        self.current = episodes.episode_rows(chosen, ahead=stride)
        if len(self.current) == 0:
            raise ValueError(
                f"No planning sample fits: none of {len(chosen)} episodes has {stride + 1} rows. Collect more or longer episodes."
            )
        self.history, self.future = _blocks_around(episodes, stride)
        by_planner = np.zeros(len(episodes.starts), bool) if episodes.played is None else episodes.played[:, 1] >= 0
        self.was_played = np.repeat(by_planner, episodes.lengths)  # by row
        if retry_share:
            self.astray, self.wanted = self._find_astray(episodes, chosen)

    def draw(self, rng: np.random.Generator, count: int, max_offset: int, horizon: int | None = None) -> PlanBatch:
        """The offset is uniform over what the episode still holds, up to `max_offset` blocks; a share has the farthest. No data
        says when second attempts can arrive: they are asked to by `horizon`, the end of a plan."""
        retries = int(rng.binomial(count, self.retry_share)) if self.retry_share else 0
        current = self.current[rng.integers(len(self.current), size=count - retries)]
        farthest = np.minimum(self.future[current], max_offset)
        offset = 1 + (rng.random(count - retries) * farthest).astype(np.int64)
        if self.far_share:
            offset = np.where(rng.random(count - retries) < self.far_share, farthest, offset)
        horizon = horizon or max_offset
        batch = self.at(current, offset, self._draw_history(rng, current), horizon)
        return _joined(batch, self._draw_retries(rng, retries, horizon)) if retries else batch

    def _draw_retries(self, rng: np.random.Generator, count: int, horizon: int) -> PlanBatch:
        chosen = rng.integers(len(self.astray), size=count)
        current, wanted = self.astray[chosen], self.wanted[chosen]
        context, past_blocks = self._contexts(current, self._draw_history(rng, current))
        goal = self.latents[wanted].astype(np.float32)
        return PlanBatch(
            context,
            past_blocks,
            goal,
            offset=np.full(count, horizon),
            first_block=self.table.leaving(current),
            way=np.repeat(goal[:, None], horizon, axis=1),
            way_known=np.zeros(count, bool),
        )

    def _find_astray(self, episodes: Episodes, chosen: Array) -> tuple[Array, Array]:
        """Rows of played episodes that are not at their goals although the data would be by then, and the rows of these goals."""
        played = np.full((len(episodes.starts), 2), -1) if episodes.played is None else episodes.played
        chosen = chosen[played[chosen, 1] >= 0]
        if len(chosen) == 0:
            raise ValueError(
                "Second attempts need practised data, and here no episode was played towards a goal. Make some (leplanner "
                "practice TASK), or set --retry-share 0."
            )
        rows = episodes.episode_rows(chosen, ahead=self.table.stride)
        episode = np.searchsorted(episodes.starts, rows, side="right") - 1
        (begun, wanted), within = played[episode].T, rows - episodes.starts[episode]
        here, there = (self.latents[at].astype(np.float32) for at in (rows, wanted))
        apart = np.square(here - there).mean(axis=1)
        astray = (within >= wanted - begun) & (apart > ASTRAY * np.square(here - here[::-1]).mean())
        if not astray.any():
            raise ValueError(
                f"Second attempts were asked for, but all {len(chosen)} played episodes were at their goals when the data was. "
                "Set --retry-share 0."
            )
        return rows[astray], wanted[astray]

    def draw_rollouts(
        self, rng: np.random.Generator, count: int, horizon: int, played_share: float | None = None
    ) -> RolloutBatch:
        """`played_share`: of the rollouts, drawn from what a planner played instead of from all."""
        far = self.current[self.future[self.current] >= horizon]
        if len(far) == 0:
            raise ValueError(
                f"No episode is {horizon} blocks long; ask for shorter rollouts or collect longer episodes."
            )
        current = far[rng.integers(len(far), size=count)]
        if played_share is not None:
            played = far[self.was_played[far]]
            if len(played) == 0:
                raise ValueError(
                    f"A share of {played_share} of the rollouts was asked for from what a planner played, but no episode of the data "
                    "was played by one. Make some (leplanner practice TASK), or leave --played-share out."
                )
            current = np.where(rng.random(count) < played_share, played[rng.integers(len(played), size=count)], current)
        context, past_blocks = self._contexts(current, self._draw_history(rng, current))
        rows = current[:, None] + self.table.stride * np.arange(horizon)
        after = self.latents[rows + self.table.stride].astype(np.float32)
        return RolloutBatch(context, past_blocks, self.table.leaving(rows), after)

    def _draw_history(self, rng: np.random.Generator, current: Array) -> Array:
        count = len(current)
        history = np.minimum(self.history[current], self.context - 1)
        cut = rng.random(count) < self.pad_share
        return np.where(cut, np.minimum(history, rng.integers(0, self.context, size=count)), history)

    def at(self, current: Array, offset: Array, history: Array, horizon: int | None = None) -> PlanBatch:
        """`history`: how many blocks before `current` are real; what lies before is padding. `horizon`: blocks of the way that
        are told, the farthest offset if none is given."""
        beyond = (offset > self.future[current]) | (history > self.history[current])
        if beyond.any():
            i = int(np.flatnonzero(beyond)[0])
            raise ValueError(
                f"A planning sample would leave its episode: row {current[i]} has {self.history[current[i]]} blocks behind and "
                f"{self.future[current[i]]} ahead; {history[i]} and {offset[i]} were asked for."
            )
        context, past_blocks = self._contexts(current, history)
        ahead = np.minimum(np.arange(1, (horizon or int(offset.max())) + 1), offset[:, None])
        return PlanBatch(
            context=context,
            past_blocks=past_blocks,
            goal=self.latents[current + self.table.stride * offset].astype(np.float32),
            offset=offset,
            first_block=self.table.leaving(current),
            way=self.latents[current[:, None] + self.table.stride * ahead].astype(np.float32),
            way_known=np.ones(len(current), bool),
        )

    def _contexts(self, current: Array, history: Array) -> tuple[Array, Array]:
        """Latents (B, N, D) up to now and the blocks (B, N-1, A) between them, padded where history ends."""
        back = np.arange(self.context - 1, -1, -1)  # N-1, ..., 0
        rows = current[:, None] - self.table.stride * np.minimum(back, history[:, None])
        blocks = self.table.leaving(rows[:, :-1])
        blocks[back[:-1] > history[:, None]] = self.table.zero
        return self.latents[rows].astype(np.float32), blocks


def _joined(one: PlanBatch, other: PlanBatch) -> PlanBatch:
    parts = ((getattr(batch, field.name) for batch in (one, other)) for field in fields(PlanBatch))
    return PlanBatch(*(np.concatenate(list(part)) for part in parts))


def _blocks_around(episodes: Episodes, stride: int) -> tuple[Array, Array]:
    """For every row, how many whole blocks of its episode lie behind and ahead."""
    within = np.arange(episodes.rows) - np.repeat(episodes.starts, episodes.lengths)
    length = np.repeat(episodes.lengths, episodes.lengths)
    return within // stride, (length - 1 - within) // stride
