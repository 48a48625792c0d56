"""stable-worldmodel's TwoRoom as a simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .spec import Array
from .swm_runtime import make_env, shrink
from .tworoom import free_position


class TwoRoomSimulator:
    def __init__(self, visuals: Mapping[str, Any]):
        self.env: Any = make_env("swm/TwoRoom-v1")
        self.env.reset(seed=0, options={"variation": ()})

    def start(self, rng: np.random.Generator) -> None:
        self.set_state(free_position(rng))

    def state(self) -> Array:
        return self.env.agent_position.numpy().astype(np.float64)

    def set_state(self, state: Array) -> None:
        self.env._set_state(np.asarray(state, dtype=np.float32))

    def step(self, action: Array) -> None:
        self.env.step(action)

    def render(self, size: int) -> Array:
        return shrink(self.env.render(), size)

    def close(self) -> None:
        self.env.close()
