"""Draws training samples: windows of frames for the world model, (context, past blocks, goal, offset) for planners."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from ..core.actions import ActionSpec
from .cache import LatentCache
from .context import context_places
from .episodes import Array, Episodes, read_frames, split


@dataclass(frozen=True)
class WorldBatch:
    frames: Array  # (B, T, S, S, 3) uint8
    blocks: Array  # (B, T-1, A) standardized; block k leaves frame k
    rows: Array  # (B, T)


@dataclass(frozen=True)
class PlanBatch:
    context: Array  # (B, N, *Z)
    past_blocks: Array  # (B, N-1, A)
    goal: Array  # (B, *Z)
    offset: Array  # (B,) q, in blocks
    first_block: Array  # (B, A) the block the data took next: for densities and diagnostics, never a target
    reference: Array  # (B, H, *Z) the reference trajectory: where the data was after each block, at the goal from q on
    reference_known: Array  # (B,) bool; recovery problems have none


@dataclass(frozen=True)
class RolloutBatch:
    context: Array  # (B, N, *Z)
    past_blocks: Array  # (B, N-1, A)
    blocks: Array  # (B, H, A) what the data did next
    latents: Array  # (B, H, *Z) where that led


MISSED = 0.01  # a goal is missed by more than this share of how far apart any two rows are


class BlockTable:
    """Standardized action blocks by the row they leave."""

    def __init__(self, episodes: Episodes, actions: ActionSpec):
        self.stride = episodes.rows_per_block(actions.block)
        self.steps_per_row = episodes.steps_per_row
        self.actions = actions.standardize(episodes.actions).reshape(episodes.rows, -1)
        self.zero = actions.zero_block()
        last = episodes.starts + episodes.lengths - 1
        inner = np.ones(episodes.rows, bool)
        inner[last] = False
        broken = inner & ~np.isfinite(self.actions).all(axis=1)
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            raise ValueError(
                f"Column 'action' is not finite in {int(broken.sum())} rows inside episodes (first: row {row}); only "
                "an episode's last row may be NaN. Repair or re-collect the dataset."
            )

    def leaving(self, rows: Array) -> Array:
        """(...,) rows -> (..., A)"""
        steps = rows[..., None] + np.arange(self.stride)
        return self.actions[steps].reshape(*rows.shape, self.stride * self.actions.shape[1])


class WorldWindows:
    """`frames` frames a block apart, and the blocks between them."""

    def __init__(self, episodes: Episodes, chosen: Array, actions: ActionSpec, frames: int):
        self.episodes, self.frames = episodes, frames
        self.table = BlockTable(episodes, actions)
        self.starts = episodes.episode_rows(chosen, ahead=(frames - 1) * self.table.stride)
        if len(self.starts) == 0:
            longest = int(episodes.lengths[chosen].max()) if len(chosen) else 0
            raise ValueError(
                f"No window fits: {frames} frames {self.table.stride} rows apart need episodes of at least "
                f"{(frames - 1) * self.table.stride + 1} rows; {len(chosen)} episodes were "
                f"given, the longest of {longest}."
            )

    def draw(self, rng: np.random.Generator, count: int) -> WorldBatch:
        return self.at(self.starts[rng.integers(len(self.starts), size=count)])

    def at(self, starts: Array) -> WorldBatch:
        rows = starts[:, None] + self.table.stride * np.arange(self.frames)
        return WorldBatch(read_frames(self.episodes, rows), self.table.leaving(rows[:, :-1]), rows)


class PlanWindows:
    """Planning samples over cached latents.

    A share of the contexts is cut short and padded as at the start of an episode, so that a controller's first
    decisions are in distribution. Of data that a planner collected, a share may be recovery problems: from where an
    episode was when the data had arrived, again to the goal that it missed.
    """

    def __init__(
        self,
        latents: Array,
        episodes: Episodes,
        chosen: Array,
        actions: ActionSpec,
        context: int,
        pad_prob: float = 0.25,
        recovery_prob: float = 0.0,
        far_goal_prob: float = 0.0,
    ):
        self.latents, self.context = latents, context
        self.pad_prob, self.recovery_prob, self.far_goal_prob = pad_prob, recovery_prob, far_goal_prob
        for name in ("pad_prob", "recovery_prob", "far_goal_prob"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is a probability, from 0 to 1; got {getattr(self, name)}.")
        self.table = BlockTable(episodes, actions)
        stride = self.table.stride
        self.current = episodes.episode_rows(chosen, ahead=stride)
        if len(self.current) == 0:
            raise ValueError(
                f"No planning sample fits: none of {len(chosen)} episodes has {stride + 1} rows. "
                "Collect more or longer episodes."
            )
        behind, self.rows_ahead = _rows_around(episodes)
        self.history, self.future = behind // stride, self.rows_ahead // stride  # whole blocks
        self.by_planner = np.repeat(episodes.by_planner, episodes.lengths)  # by row
        if recovery_prob:
            self.missed, self.missed_goals = self._find_missed(episodes, chosen)

    def draw(self, rng: np.random.Generator, count: int, max_offset: int, horizon: int | None = None) -> PlanBatch:
        """The offset is uniform over what the episode still holds, up to `max_offset` blocks; a share has the farthest.
        No data says when recovery problems can arrive: they are asked to by `horizon`, the end of a plan."""
        recoveries = int(rng.binomial(count, self.recovery_prob)) if self.recovery_prob else 0
        current = self.current[rng.integers(len(self.current), size=count - recoveries)]
        farthest = np.minimum(self.future[current], max_offset)
        offset = 1 + (rng.random(count - recoveries) * farthest).astype(np.int64)
        if self.far_goal_prob:
            offset = np.where(rng.random(count - recoveries) < self.far_goal_prob, farthest, offset)
        horizon = horizon or max_offset
        batch = self.at(current, offset, self._draw_history(rng, current), horizon)
        return _joined(batch, self._draw_recoveries(rng, recoveries, horizon)) if recoveries else batch

    def _draw_recoveries(self, rng: np.random.Generator, count: int, horizon: int) -> PlanBatch:
        chosen = rng.integers(len(self.missed), size=count)
        current, goal_rows = self.missed[chosen], self.missed_goals[chosen]
        context, past_blocks = self._contexts(current, self._draw_history(rng, current))
        goal = self.latents[goal_rows].astype(np.float32)
        return PlanBatch(
            context,
            past_blocks,
            goal,
            offset=np.full(count, horizon),
            first_block=self.table.leaving(current),
            reference=np.repeat(goal[:, None], horizon, axis=1),
            reference_known=np.zeros(count, bool),
        )

    def _find_missed(self, episodes: Episodes, chosen: Array) -> tuple[Array, Array]:
        """Rows of a planner's episodes that are not at their goals although the data would be
        by then, and the goals' rows."""
        chosen = chosen[episodes.by_planner[chosen]]
        if len(chosen) == 0:
            raise ValueError(
                "Recovery problems need on-policy data, and here no episode was steered towards a goal. Collect some "
                "(leplanner collect TASK --policy BUNDLE), or set --recovery-prob 0."
            )
        assert episodes.goal_rows is not None
        rows = episodes.episode_rows(chosen, ahead=self.table.stride)
        episode = np.searchsorted(episodes.starts, rows, side="right") - 1
        (begun, goals), within = episodes.goal_rows[episode].T, rows - episodes.starts[episode]
        missed = (within >= goals - begun) & (self._apart(rows, goals) > MISSED * self._apart(rows, rows[::-1]).mean())
        if not missed.any():
            raise ValueError(
                f"Recovery problems were requested, but all {len(chosen)} on-policy episodes were at their goals when "
                "the data was. Set --recovery-prob 0."
            )
        return rows[missed], goals[missed]

    def _apart(self, rows: Array, others: Array) -> Array:
        """Mean squared differences of latents, a part at a time: all of them in float32 may not fit in memory."""
        pairs = zip(*(np.array_split(at, len(rows) // 1024 + 1) for at in (rows, others)), strict=True)
        changes = (self.latents[a].astype(np.float32) - self.latents[b] for a, b in pairs)
        return np.concatenate([np.square(change).reshape(len(change), -1).mean(axis=1) for change in changes])

    def draw_rollouts(
        self, rng: np.random.Generator, count: int, horizon: int, on_policy_prob: float | None = None
    ) -> RolloutBatch:
        """`on_policy_prob`: of a rollout being drawn from what a planner collected instead of from all."""
        far = self.current[self.future[self.current] >= horizon]
        if len(far) == 0:
            raise ValueError(
                f"No episode is {horizon} blocks long; ask for shorter rollouts or collect longer episodes."
            )
        current = far[rng.integers(len(far), size=count)]
        if on_policy_prob is not None:
            own = far[self.by_planner[far]]
            if len(own) == 0:
                raise ValueError(
                    f"--on-policy-prob {on_policy_prob} was requested, but no episode of the data was collected by a "
                    "planner. Collect some (leplanner collect TASK --policy BUNDLE), or leave --on-policy-prob out."
                )
            current = np.where(rng.random(count) < on_policy_prob, own[rng.integers(len(own), size=count)], current)
        context, past_blocks = self._contexts(current, self._draw_history(rng, current))
        rows = current[:, None] + self.table.stride * np.arange(horizon)
        after = self.latents[rows + self.table.stride].astype(np.float32)
        return RolloutBatch(context, past_blocks, self.table.leaving(rows), after)

    def _draw_history(self, rng: np.random.Generator, current: Array) -> Array:
        count = len(current)
        history = np.minimum(self.history[current], self.context - 1)
        cut = rng.random(count) < self.pad_prob
        return np.where(cut, np.minimum(history, rng.integers(0, self.context, size=count)), history)

    def at(self, current: Array, offset: Array, history: Array, horizon: int | None = None) -> PlanBatch:
        """`history`: how many blocks before `current` are real; what lies before is padding. `horizon`: blocks of the
        reference trajectory, the farthest offset if none is given."""
        beyond = (offset > self.future[current]) | (history > self.history[current])
        if beyond.any():
            i = int(np.flatnonzero(beyond)[0])
            raise ValueError(
                f"A planning sample would leave its episode: row {current[i]} has {self.history[current[i]]} blocks "
                f"behind and {self.future[current[i]]} ahead; {history[i]} and {offset[i]} were requested."
            )
        context, past_blocks = self._contexts(current, history)
        ahead = np.minimum(np.arange(1, (horizon or int(offset.max())) + 1), offset[:, None])
        return PlanBatch(
            context=context,
            past_blocks=past_blocks,
            goal=self.latents[current + self.table.stride * offset].astype(np.float32),
            offset=offset,
            first_block=self.table.leaving(current),
            reference=self.latents[current[:, None] + self.table.stride * ahead].astype(np.float32),
            reference_known=np.ones(len(current), bool),
        )

    def _contexts(self, current: Array, history: Array) -> tuple[Array, Array]:
        """Latents (B, N, *Z) up to now and the blocks (B, N-1, A) between them, padded where history ends."""
        places, real = context_places(history + 1, self.context)
        rows = current[:, None] - self.table.stride * (history[:, None] - places)
        blocks = self.table.leaving(rows[:, :-1])
        blocks[~real] = self.table.zero
        return self.latents[rows].astype(np.float32), blocks


class Encoder(Protocol):
    """What windows need to know about a world."""

    @property
    def spec(self) -> Any: ...  # with `actions` and `context`
    @property
    def encoder_digest(self) -> str: ...


def plan_windows(
    world: Encoder,
    cache: LatentCache,
    pad_prob: float = 0.25,
    recovery_prob: float = 0.0,
    far_goal_prob: float = 0.0,
    behavior_only: bool = False,
) -> tuple[PlanWindows, PlanWindows]:
    """Planning samples of a world's latent cache: from training episodes, and from held-out ones. Recovery
    problems and far goals are of the training ones alone. `behavior_only`: without what a planner collected, for
    those who learn what the data does."""
    if cache.encoder_digest != world.encoder_digest:
        raise ValueError(
            f"The latent cache was made by another encoder ({cache.encoder_digest[:12]}, this world's is "
            f"{world.encoder_digest[:12]}). Encode the dataset with this world: leplanner cache TASK --out DIR"
        )
    shape = (world.spec.actions, world.spec.context, pad_prob)
    train, held_out = split(cache.episodes)
    if behavior_only:
        train = train[~cache.episodes.by_planner[train]]
    return (
        PlanWindows(cache.latents, cache.episodes, train, *shape, recovery_prob, far_goal_prob),
        PlanWindows(cache.latents, cache.episodes, held_out, *shape),
    )


def _joined(one: PlanBatch, other: PlanBatch) -> PlanBatch:
    parts = ((getattr(batch, field.name) for batch in (one, other)) for field in fields(PlanBatch))
    return PlanBatch(*(np.concatenate(list(part)) for part in parts))


def _rows_around(episodes: Episodes) -> tuple[Array, Array]:
    """For every row, how many rows of its episode lie behind and ahead."""
    within = np.arange(episodes.rows) - np.repeat(episodes.starts, episodes.lengths)
    length = np.repeat(episodes.lengths, episodes.lengths)
    return within, length - 1 - within
