"""Floors and the ceiling: random actions, no action, and the data's own actions replayed."""

from __future__ import annotations

import numpy as np

from ..control.policy import Array, Request
from ..planner.actions import ActionBox

LONGEST = 100  # actions returned at once; more than any controller executes between decisions


class RandomPolicy:
    """Uniform in the action box."""

    name, frames, stride, rows = "random", 0, None, 0

    def __init__(self, box: ActionBox):
        self.box = box

    def decide(self, request: Request) -> Array:
        shape = (LONGEST, len(self.box.mean))
        drawn = [np.random.default_rng(seed).uniform(self.box.low, self.box.high, shape) for seed in request.seeds]
        return np.stack(drawn).astype(np.float32)


class DoNothing:
    """Raw zero actions."""

    name, frames, stride, rows = "nothing", 0, None, 0

    def __init__(self, box: ActionBox):
        self.action_dim = len(box.mean)

    def decide(self, request: Request) -> Array:
        return np.zeros((len(request.seeds), LONGEST, self.action_dim), np.float32)


class Replay:
    """The data's own actions for one trial, then none: what the behaviour policy could do. Looks at nothing."""

    name, frames, rows = "replay", 0, 0

    def __init__(self, actions: Array, budget: int):
        padding = np.zeros((max(0, budget - len(actions)), actions.shape[1]))
        self.actions = np.concatenate([actions, padding]).astype(np.float32)
        self.stride = len(self.actions)

    def decide(self, request: Request) -> Array:
        return np.repeat(self.actions[None], len(request.seeds), axis=0)
