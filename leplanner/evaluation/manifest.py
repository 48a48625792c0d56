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
from ..core.registry import match_name
from ..data.episodes import Episodes, split
from ..tasks import Task
from ..tasks.spec import Simulator

PROTOCOLS = ("official", "heldout", "nontrivial")
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
    """official: from all episodes; heldout: from validation episodes; nontrivial: those, without pairs that are solved
    at the start or by the no-op policy."""
    protocol = match_name("protocol", protocol, PROTOCOLS)
    states = episodes.need_states("Trials are set up from physical states")
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
    chosen = np.arange(len(episodes.starts)) if protocol == "official" else split(episodes)[1]
    rows = episodes.episode_rows(chosen, ahead=ahead)  # a goal beyond its episode's end is no trial
    rows = np.random.default_rng(seed).permutation(rows)
    sim = simulator() if protocol == "nontrivial" and simulator is not None else None
    if protocol == "nontrivial" and sim is None:
        raise ValueError("The nontrivial protocol needs a simulator, to try whether the no-op policy succeeds.")
    trials: list[Trial] = []
    try:
        for row in rows:
            if len(trials) == count:
                break
            start, goal = states[row], states[row + ahead]
            if sim is not None and (task.success(start, goal) or no_op_succeeds(task, sim, start, goal, budget)):
                continue
            trials.append(_trial(len(trials), episodes, int(row), ahead, block, context))
    finally:
        if sim is not None:
            sim.close()
    if len(trials) < count:
        raise ValueError(
            f"{count} trials were requested, but the {len(chosen)} episodes of protocol {protocol!r} hold only "
            f"{len(trials)} at offset {offset}. Ask for fewer --trials, a shorter --offset, or collect more episodes."
        )
    return Manifest(task.name, protocol, offset, budget, seed, episodes.digest, tuple(trials))


def no_op_succeeds(task: Task, sim: Simulator, start: Array, goal: Array, budget: int) -> bool:
    """At any step, as the published convention counts."""
    sim.set_state(start)
    for _ in range(budget):
        sim.step(np.zeros(task.action_dim, np.float32))
        if task.success(sim.state(), goal):
            return True
    return False


def _trial(index: int, episodes: Episodes, row: int, ahead: int, block: int, context: int) -> Trial:
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
        start_state=_numbers(episodes.states[row]),
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
