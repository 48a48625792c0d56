"""Floors and the ceiling: random actions, no action, and the data's own actions replayed."""

from __future__ import annotations

import numpy as np

from ..control.methods import Method, MethodInputs, PolicyFor
from ..control.policy import Array, Request
from ..core.actions import ActionSpec

LONGEST = 100  # actions returned at once; more than any controller executes between decisions


class RandomPolicy:
    """Uniform in the action box."""

    name, frames, stride, transitions = "random", 0, None, 0

    def __init__(self, actions: ActionSpec):
        self.actions = actions

    def decide(self, request: Request) -> Array:
        low, high, shape = self.actions.low, self.actions.high, (LONGEST, self.actions.dim)
        drawn = [np.random.default_rng(seed).uniform(low, high, shape) for seed in request.seeds]
        return np.stack(drawn).astype(np.float32)


class NoOp:
    """Raw zero actions."""

    name, frames, stride, transitions = "no-op", 0, None, 0

    def __init__(self, actions: ActionSpec):
        self.action_dim = actions.dim

    def decide(self, request: Request) -> Array:
        return np.zeros((len(request.seeds), LONGEST, self.action_dim), np.float32)


class Replay:
    """The data's own actions for one trial, then none: what the behavior policy could do. Looks at nothing."""

    name, frames, transitions = "replay", 0, 0

    def __init__(self, actions: Array, budget: int):
        padding = np.zeros((max(0, budget - len(actions)), actions.shape[1]))
        self.actions = np.concatenate([actions, padding]).astype(np.float32)
        self.stride = len(self.actions)

    def decide(self, request: Request) -> Array:
        return np.repeat(self.actions[None], len(request.seeds), axis=0)


def _random(inputs: MethodInputs) -> PolicyFor:
    policy = RandomPolicy(inputs.planner.model.actions)
    return lambda trial: policy


def _no_op(inputs: MethodInputs) -> PolicyFor:
    policy = NoOp(inputs.planner.model.actions)
    return lambda trial: policy


def _replay(inputs: MethodInputs) -> PolicyFor:
    return lambda trial: Replay(np.array(trial.actions), inputs.budget)


METHODS = (
    Method("random", "random", "floor", _random),
    Method("no-op", "no-op", "floor", _no_op, replan=1),
    Method("replay", "replay of the data", "ceiling", _replay, replan=1),
)
