"""A manifest: trials drawn once from a seed and frozen, with everything a trial needs, so that
no dataset is needed later."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import digest_json, read_json, write_json
from ..core.actions import Array
from ..data.episodes import Episodes
from ..tasks import Task
from ..tasks.spec import Simulator
from .protocols import PROTOCOLS, TrialRequest

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Trial:
    index: int
    episode: int  # the id of its episode
    start_step: int
    goal_step: int
    start_state: Numbers
    goal_state: Numbers
    actions: tuple[Numbers, ...]  # the data's own, from start to goal: what `replay` executes
    history_states: tuple[Numbers, ...]  # up to N-1 states before the start, a block apart, oldest first
    history_actions: tuple[Numbers, ...]  # the raw actions of the block after each, flattened


@dataclass(frozen=True)
class Manifest:
    task: str
    protocol: str
    offset: int  # environment actions from start to goal, in the data
    budget: int  # environment actions a trial may take
    seed: int
    data_digest: str
    trials: tuple[Trial, ...]

    @cached_property
    def digest(self) -> str:
        return digest_json(dataclasses.asdict(self))

    @property
    def setting(self) -> tuple[str, str, int, int, int]:
        return (self.task, self.protocol, self.offset, self.budget, self.seed)


def default_budget(offset: int) -> int:
    """Environment actions a trial may take: twice what the data took."""
    return 2 * offset


def draw_manifest(
    task: Task,
    episodes: Episodes,
    count: int,
    seed: int,
    protocol: str = "nontrivial",
    offset: int = 25,
    budget: int | None = None,  # default: default_budget(offset)
    *,
    block: int,  # of the world: environment actions in a block, and context frames, for histories
    context: int,
    simulator: Callable[[], Simulator] | None = None,  # for nontrivial: tries whether the no-op policy succeeds
) -> Manifest:
    """Of the protocol's trials, the first `count` that this seed draws from the episodes."""
    drawn_by = PROTOCOLS.get(protocol)
    task = drawn_by.adapt(task)
    episodes.need_states("Trials are set up from physical states")
    if offset % episodes.steps_per_row:
        raise ValueError(
            f"The goal offset {offset} is not a multiple of the {episodes.steps_per_row} actions "
            "between this dataset's rows."
        )
    budget = default_budget(offset) if budget is None else budget
    if budget < offset:
        raise ValueError(
            f"A budget of {budget} actions is less than the {offset} that the data took to these goals. Ask for a "
            f"--budget of {offset} or more, or for a shorter --offset."
        )
    ahead = offset // episodes.steps_per_row
    rows = drawn_by.draw(TrialRequest(task, episodes, count, seed, ahead, budget, simulator))
    if len(rows) < count:
        raise ValueError(
            f"{count} trials were requested, but the dataset's {len(episodes.starts)} episodes hold only {len(rows)} "
            f"of protocol {drawn_by.name!r} at offset {offset}. Ask for fewer --trials, a shorter --offset, or collect "
            "more episodes."
        )
    context = context if drawn_by.history else 1

    def start(state: Array) -> Array:
        return drawn_by.start(task, state)

    trials = [_trial(index, episodes, int(row), ahead, block, context, start) for index, row in enumerate(rows)]
    return Manifest(task.name, drawn_by.name, offset, budget, seed, episodes.digest, tuple(trials))


def _trial(
    index: int,
    episodes: Episodes,
    row: int,
    ahead: int,
    block: int,
    context: int,
    start: Callable[[Array], Array],  # the recorded state -> where the trial starts
) -> Trial:
    assert episodes.states is not None
    episode = int(np.searchsorted(episodes.starts, row, side="right")) - 1
    stride = episodes.rows_per_block(block)
    within = row - int(episodes.starts[episode])
    behind = [row - stride * i for i in range(min(context - 1, within // stride), 0, -1)]
    actions = episodes.actions[row : row + ahead].reshape(-1, episodes.action_dim)
    return Trial(
        index=index,
        episode=int(episodes.ids[episode]),
        start_step=within * episodes.steps_per_row,
        goal_step=(within + ahead) * episodes.steps_per_row,
        start_state=_numbers(start(episodes.states[row].copy())),
        goal_state=_numbers(episodes.states[row + ahead]),
        actions=tuple(_numbers(action) for action in actions),
        history_states=tuple(_numbers(episodes.states[r]) for r in behind),
        history_actions=tuple(_numbers(episodes.actions[r : r + stride].reshape(-1)) for r in behind),
    )


def _numbers(values: Array) -> Numbers:
    return tuple(float(value) for value in values)


def save_manifest(manifest: Manifest, path: Path) -> None:
    value = {"kind": "leplanner manifest", "digest": manifest.digest, **dataclasses.asdict(manifest)}
    write_json(path, value, readable=False)  # it ships with bundles, and half of it would be blanks


def load_manifest(path: Path) -> Manifest:
    value: dict[str, Any] = read_json(path)
    if value.pop("kind", None) != "leplanner manifest":
        raise ValueError(f"{path} is not a leplanner manifest. Draw one with: leplanner evaluate")
    digest = value.pop("digest")
    names = {field.name for field in dataclasses.fields(Trial)}
    trials = []
    for trial in value.pop("trials"):
        if set(trial) != names:
            raise ValueError(
                f"{path}: trial {trial.get('index')} has fields {sorted(trial)}, expected {sorted(names)}."
            )
        trials.append(Trial(**{name: _frozen(field) for name, field in trial.items()}))
    manifest = Manifest(**value, trials=tuple(trials))
    if manifest.digest != digest:
        raise ValueError(f"{path} does not match its own digest: it was edited. Draw it again.")
    return manifest


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
