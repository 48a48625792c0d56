"""stable-worldmodel's single-cube scene of OGBench as a simulator with exact states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .spec import Array
from .swm_mujoco import MujocoCamera, Visuals
from .swm_runtime import make_env

# the target's ghost is not drawn: a planner must read its goal from the goal image
OPTIONS = {"env_type": "single", "mode": "data_collection", "visualize_info": False}


class CubeSimulator:
    """swm's reset recompiles the model; after the first one, episodes start through the environment's own parts."""

    def __init__(self, visuals: Mapping[str, Any]):
        self.env: Any = make_env("swm/OGBCube-v0", **OPTIONS)
        self.env.reset(seed=0, options={"variation": ()})
        self.camera = MujocoCamera(self.env.model, self.env.data, "front_pixels", Visuals.of(visuals))

    def start(self, rng: np.random.Generator) -> None:
        import mujoco

        env = self.env
        mujoco.mj_resetData(env.model, env.data)  # pyright: ignore[reportAttributeAccessIssue]
        env.np_random = rng
        self._vary("cube", "start_position", rng.uniform(*env._object_sampling_bounds)[None])
        self._vary("cube", "start_yaw", rng.uniform(0.0, 2 * np.pi, size=1))
        self._vary("agent", "ee_start_position", rng.uniform(*env._arm_sampling_bounds))
        env.initialize_episode()
        mujoco.mj_forward(env.model, env.data)  # pyright: ignore[reportAttributeAccessIssue]

    def _vary(self, group: str, name: str, value: Array) -> None:
        self.env.variation_space[group][name].set_value(value)

    def new_target(self, rng: np.random.Generator) -> None:
        """At least 10 cm from where the cube lies."""
        while True:
            xy = rng.uniform(*self.env._target_sampling_bounds)
            if np.linalg.norm(xy - self.env.data.joint("object_joint_0").qpos[:2]) > 0.1:
                break
        self._vary("cube", "goal_position", xy[None])
        self._vary("cube", "goal_yaw", rng.uniform(0.0, 2 * np.pi, size=1))
        self.env.np_random = rng
        self.env.set_new_target(return_info=False)

    def arm_bounds(self) -> Array:
        return self.env._arm_sampling_bounds

    def info(self) -> dict[str, Any]:
        return self.env.compute_ob_info()

    def state(self) -> Array:
        return np.concatenate([self.env.data.qpos, self.env.data.qvel])

    def set_state(self, state: Array) -> None:
        import mujoco

        env, state = self.env, np.asarray(state, dtype=np.float64)
        mujoco.mj_resetData(env.model, env.data)  # pyright: ignore[reportAttributeAccessIssue]
        env.set_state(state[: env.model.nq], state[env.model.nq :])
        env.pre_step()
        env.post_step()

    def step(self, action: Array) -> None:
        """MuJoCo leaves site positions one substep behind the joints, and the next action is relative to a
        site. Bringing them up to date makes what follows depend on the stored state alone."""
        import mujoco

        self.env.step(action)
        mujoco.mj_kinematics(self.env.model, self.env.data)  # pyright: ignore[reportAttributeAccessIssue]

    def render(self, size: int) -> Array:
        return self.camera.render(size)

    def close(self) -> None:
        self.camera.close()
        self.env.close()
