"""`moderate` and `strict`: trials as CLEAR-LeWM's evaluation specification draws and runs them.

A pair is solved when the verdict of the same name would count its start. What is left is drawn evenly over episodes,
from all of a dataset. Specification v0.9 (commit 0c9d94d of its repository) starts every trial at rest. v0.5 and v0.8,
which published tables follow, start with the recorded velocities; their pairs and verdicts are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from ...core.actions import Array
from ...tasks import TASKS, Task
from ...tasks.spec import ClearLewm
from .base import Protocol, TrialRequest, recorded

CHUNK = 100_000  # pairs scored at once
Name = Literal["moderate", "strict"]


def _rules(task: Task) -> ClearLewm:
    if task.clear_lewm is None:
        known = ", ".join(known.name for known in TASKS.values() if known.clear_lewm)
        raise ValueError(
            f"CLEAR-LeWM's trials were requested for {task.name}, which it does not define; it defines {known}. "
            "Draw trials with --protocol nontrivial, or give the task its `clear_lewm`."
        )
    return task.clear_lewm


def _corrected(task: Task) -> Task:
    """With its corrected physics, where CLEAR-LeWM corrects them."""
    return replace(task, simulator=_rules(task).simulator or task.simulator)


def _at_rest(task: Task, state: Array) -> Array:
    return _rules(task).at_rest(state)


def _draw(name: Name) -> Callable[[TrialRequest], Array]:
    def draw(request: TrialRequest) -> Array:
        rules, episodes = _rules(request.task), request.episodes
        assert episodes.states is not None
        rows = request.candidates()
        if rules.pairs is not None:
            rows = rows[rules.pairs(episodes.states, rows, request.ahead)]
        solved = getattr(rules, name).reached
        parts = [solved(*request.pairs(part)) for part in np.split(rows, range(CHUNK, len(rows), CHUNK))]
        rows = rows[~np.concatenate(parts)]
        episode = np.searchsorted(episodes.starts, rows, side="right")
        return draw_evenly(rows, episode, request.count, np.random.default_rng(request.seed))

    return draw


def draw_evenly(rows: Array, episode: Array, count: int, rng: np.random.Generator) -> Array:
    """One row of each of `count` episodes, or as evenly as there are episodes, without repeating a row while its
    episode has others. The calls of the generator and their order are CLEAR-LeWM's, so that a seed draws its pairs;
    here they stay in the order of the draw, so that the first of them are a draw too."""
    if len(rows) < count:
        return rows
    _, first, sizes = np.unique(episode, return_index=True, return_counts=True)
    if count <= len(first):
        groups = rng.choice(len(first), size=count, replace=False)
    else:
        rounds, rest = divmod(count, len(first))
        turns = [rng.permutation(len(first)) for _ in range(rounds)]
        groups = np.concatenate([*turns, rng.choice(len(first), size=rest, replace=False)])
    chosen: list[int] = []
    for group in groups:
        own = rows[first[group] : first[group] + sizes[group]]
        left = own[~np.isin(own, chosen)]
        chosen.append(int(rng.choice(left if len(left) else own)))
    return np.array(chosen)


def _protocol(name: Name, version: str, about: str, start: Callable[[Task, Array], Array]) -> Protocol:
    return Protocol(name + version, about, _draw(name), history=False, start=start, adapt=_corrected)


_MODERATE = "CLEAR-LeWM's: evenly over all episodes, without pairs solved at the start"
_STRICT = "the same, by its strict verdict"
MODERATE = _protocol("moderate", "", f"{_MODERATE}; from rest (v0.9)", _at_rest)
STRICT = _protocol("strict", "", f"{_STRICT}; from rest (v0.9)", _at_rest)
MODERATE_V08 = _protocol("moderate", "-v0.8", f"{_MODERATE}; with the recorded velocities (v0.5 to v0.8)", recorded)
STRICT_V08 = _protocol("strict", "-v0.8", f"{_STRICT}; with the recorded velocities (v0.5 to v0.8)", recorded)
