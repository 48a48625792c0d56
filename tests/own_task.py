"""A task of one's own, as another package would bring it: a dot with inertia on a square table, drawn with numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from leplanner.core.config import changed
from leplanner.tasks import Task

TABLE = 1.0
PUSH = (0.1, 0.05)  # how far a unit action moves the dot: the two axes differ, and so do their bounds


class Dot:
    def __init__(self, visuals: Mapping[str, Any]):
        self.place = np.zeros(2)

    def start(self, rng: np.random.Generator) -> None:
        self.place = rng.uniform(-TABLE, TABLE, 2)

    def state(self) -> np.ndarray:
        return self.place.copy()

    def set_state(self, state: np.ndarray) -> None:
        self.place = np.array(state, float)

    def step(self, action: np.ndarray) -> None:
        self.place = np.clip(self.place + np.array(PUSH) * np.asarray(action, float), -TABLE, TABLE)

    def render(self, size: int) -> np.ndarray:
        axis = np.linspace(-1.2, 1.2, size)
        x, y = np.meshgrid(axis, axis)
        near = np.exp(-((x - self.place[0]) ** 2 + (y - self.place[1]) ** 2) / 0.02)
        return np.repeat((255 * near).astype(np.uint8)[..., None], 3, axis=-1)

    def close(self) -> None: ...


class Wander:
    """To random places, one after another."""

    def __init__(self, sim: Dot, rng: np.random.Generator):
        self.sim, self.rng = sim, rng
        self.goal = rng.uniform(-TABLE, TABLE, 2)

    def act(self, frame: np.ndarray | None = None) -> np.ndarray:
        if np.linalg.norm(self.goal - self.sim.state()) < 0.1:
            self.goal = self.rng.uniform(-TABLE, TABLE, 2)
        return np.clip((self.goal - self.sim.state()) / np.array(PUSH), TASK.low, TASK.high)


def _quicker(preset: Any) -> Any:
    """Twenty steps of everything: these tests ask whether stages fit together, not how good they are."""
    short = {"steps": 20, "validate_every": 10}
    return replace(
        preset,
        world=changed(preset.world, **short),
        finetune=changed(preset.finetune, **short),
        density=changed(preset.density, **short),
        training=changed(preset.training, **short),
        baselines=changed(preset.baselines, **short),
        decoder=changed(preset.decoder, **short),
    )


TASK = Task(
    name="dot",
    action_dim=2,
    state_dim=2,
    simulator=Dot,
    behavior=Wander,
    success=lambda state, goal: np.linalg.norm(state - goal, axis=-1) < 0.2,
    action_low=(-1.0, -0.5),
    action_high=(1.0, 2.0),
    scales={"tiny": _quicker},
)
