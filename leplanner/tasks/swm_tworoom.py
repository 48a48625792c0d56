"""stable-worldmodel's TwoRoom as a simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .spec import Array
from .swept_disk import move
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


class SweptTwoRoomSimulator(TwoRoomSimulator):
    """With the disk's whole way checked, instead of swm's look at where a step ends."""

    def __init__(self, visuals: Mapping[str, Any]):
        super().__init__(visuals)
        import torch

        def apply_collisions(start: Any, end: Any) -> Any:
            return torch.as_tensor(move(np.asarray(start), np.asarray(end)), dtype=torch.float32)

        self.env._apply_collisions = apply_collisions
