"""What a trial protocol is: which starts and goals of a dataset become trials, and what they run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...core.actions import Array
from ...core.registry import Registry
from ...data.episodes import Episodes
from ...tasks import Task
from ...tasks.spec import Simulator


@dataclass(frozen=True)
class TrialRequest:
    """What a protocol is asked for."""

    task: Task
    episodes: Episodes  # with states
    count: int
    seed: int
    ahead: int  # rows from a start to its goal
    budget: int  # environment actions a trial may take
    simulator: Callable[[], Simulator] | None

    def candidates(self, chosen: Array | None = None) -> Array:
        """Every row of the chosen episodes, of all by default, whose goal lies in its episode; in the data's order."""
        return self.episodes.episode_rows(
            np.arange(len(self.episodes.starts)) if chosen is None else chosen, self.ahead
        )

    def pairs(self, rows: Array) -> tuple[Array, Array]:
        """States at the starts and at the goals."""
        assert self.episodes.states is not None
        return self.episodes.states[rows], self.episodes.states[rows + self.ahead]


def as_it_is(task: Task) -> Task:
    return task


def recorded(task: Task, state: Array) -> Array:
    return state


@dataclass(frozen=True)
class Protocol:
    name: str
    about: str  # which trials, in a few words
    draw: Callable[[TrialRequest], Array]  # rows where trials start; fewer than `count` if there are no more
    continues: bool = False  # the first trials of a draw do not depend on how many follow
    history: bool = True  # a trial knows what came before its start
    start: Callable[[Task, Array], Array] = recorded  # (S,) -> (S,): where a trial starts, of what was recorded there
    adapt: Callable[[Task], Task] = as_it_is  # the task as its trials are drawn and run


PROTOCOLS: Registry[Protocol] = Registry("protocol", "leplanner.protocols")
