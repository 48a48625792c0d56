"""stable-worldmodel's PushT as a simulator with exact states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .pusht import random_state
from .spec import Array
from .swm_runtime import make_env, shrink


class PushTSimulator:
    def __init__(self, visuals: Mapping[str, Any]):
        self.env: Any = make_env("swm/PushT-v1")
        self.env.reset(seed=0, options={"variation": ()})

    def start(self, rng: np.random.Generator) -> None:
        self.set_state(random_state(rng))

    def state(self) -> Array:
        return self.env._get_obs()

    def set_state(self, state: Array) -> None:
        """Into a fresh physics space: no contact of an earlier episode survives, and nothing moves on setting."""
        env, state = self.env, np.asarray(state, dtype=np.float64)
        env._setup()
        env.agent.position = state[:2].tolist()
        env.agent.velocity = state[5:7].tolist()
        env.block.angle = float(state[4])
        env.block.position = state[2:4].tolist()
        env.space.reindex_shapes_for_body(env.agent)
        env.space.reindex_shapes_for_body(env.block)

    def step(self, action: Array) -> None:
        self.env.step(action)

    def render(self, size: int) -> Array:
        return shrink(self.env.render(), size)

    def close(self) -> None:
        self.env.close()
