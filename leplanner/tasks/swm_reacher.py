"""stable-worldmodel's Reacher as a simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .reacher import random_joints
from .spec import Array
from .swm_mujoco import MujocoCamera, Visuals
from .swm_runtime import make_env


class ReacherSimulator:
    def __init__(self, visuals: Mapping[str, Any]):
        self.env: Any = make_env("swm/ReacherDMControl-v0", task="qpos_match")
        self.env.reset(seed=0, options={"variation": ()})
        physics = self.env.env.physics
        self.camera = MujocoCamera(physics.model.ptr, physics.data.ptr, self.env.camera_id, Visuals.of(visuals))
        self.env.env._env._step_limit = float("inf")  # dm_control would reset the arm after 500 steps

    def start(self, rng: np.random.Generator) -> None:
        self.set_state(np.concatenate([random_joints(rng), np.zeros(2)]))

    def state(self) -> Array:
        data = self.env.env.physics.data
        return np.concatenate([data.qpos, data.qvel])

    def set_state(self, state: Array) -> None:
        self.env.env.reset()  # leaves nothing of an earlier episode
        state = np.asarray(state, dtype=np.float64)
        self.env.set_state(state[:2], state[2:])

    def step(self, action: Array) -> None:
        self.env.step(np.asarray(action))

    def render(self, size: int) -> Array:
        return self.camera.render(size)

    def close(self) -> None:
        self.camera.close()
        self.env.close()
