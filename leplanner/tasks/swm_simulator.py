"""stable-worldmodel's four environments behind one small interface: start, state, set_state, set_goal, step, render."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .pusht import random_state
from .reacher import random_joints
from .spec import Array, Simulator, Task
from .swm_runtime import GL_PACKAGES, make_env
from .tworoom import free_position


@dataclass(frozen=True)
class Visuals:
    """How MuJoCo draws. Stored with every dataset; evaluation must use the same."""

    shadows: bool = False
    antialias: int = 0  # samples a pixel
    supersample: int = 2  # render this many times larger and average
    merge_m: float = 0.0  # vertices of a mesh within a cell of this size are drawn as one

    @staticmethod
    def of(recorded: dict[str, Any]) -> Visuals:
        """As a world's frames were drawn; released worlds record nothing and saw native ones."""
        return Visuals(**recorded) if recorded else Visuals.native()

    @staticmethod
    def light() -> Visuals:
        """For small frames made on a CPU: an arm of 185,000 triangles has most of them in the same few pixels."""
        return Visuals(merge_m=0.004)

    @staticmethod
    def native() -> Visuals:
        """As the environments draw by themselves, and as the released datasets were drawn."""
        return Visuals(shadows=True, antialias=4, supersample=1)


def _shrink(frame: Array, size: int) -> Array:
    import cv2

    if frame.shape[0] == size:
        return np.ascontiguousarray(frame)
    return cv2.resize(frame, (size, size), interpolation=cv2.INTER_AREA)


def _rendering_failed(error: Exception) -> RuntimeError:
    return RuntimeError(
        f"MuJoCo could not start rendering ({type(error).__name__}: {error}). On a headless Debian or Ubuntu, "
        f"install: apt-get install {' '.join(GL_PACKAGES)}; or choose another backend with MUJOCO_GL=egl|osmesa|glfw."
    )


class MujocoCamera:
    """Draws through MuJoCo's own renderer, which makes its GL context current for every frame. dm_control's does not
    when another renderer took over, and then draws one environment's frames into another's."""

    def __init__(self, model: Any, data: Any, camera: int | str, visuals: Visuals):
        self.model, self.data, self.camera, self.visuals = model, data, camera, visuals
        model.vis.quality.offsamples = visuals.antialias
        if visuals.merge_m:
            merge_vertices(model, visuals.merge_m)
        self.renderers: dict[int, Any] = {}

    def render(self, size: int) -> Array:
        import mujoco

        drawn = size * self.visuals.supersample
        if drawn not in self.renderers:
            self.model.vis.global_.offwidth = self.model.vis.global_.offheight = drawn
            try:
                self.renderers[drawn] = mujoco.Renderer(self.model, drawn, drawn)
            except (ImportError, AttributeError, OSError, RuntimeError) as error:
                raise _rendering_failed(error) from error
        renderer = self.renderers[drawn]
        renderer.update_scene(self.data, camera=self.camera)
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = self.visuals.shadows
        return _shrink(renderer.render(), size)

    def close(self) -> None:
        for renderer in self.renderers.values():
            renderer.close()
        self.renderers.clear()


def merge_vertices(model: Any, cell_m: float) -> None:
    """Draw each mesh with one vertex a cell, without the triangles that vanish by that. Contacts are computed from vertices
    and hulls, which stay as they are."""
    for mesh in range(model.nmesh):
        vertices = model.mesh_vertadr[mesh] + np.arange(model.mesh_vertnum[mesh])
        first = model.mesh_faceadr[mesh]
        faces = first + np.arange(model.mesh_facenum[mesh])
        cells = np.floor(model.mesh_vert[vertices] / cell_m).astype(np.int64)
        _, chosen, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        corners = chosen[cell.reshape(-1)][model.mesh_face[faces]]
        a, b, c = corners.T
        _, distinct = np.unique(np.sort(corners, axis=1), axis=0, return_index=True)
        kept = np.intersect1d(np.flatnonzero((a != b) & (b != c) & (c != a)), distinct)
        if len(kept) == 0:  # smaller than a cell
            continue
        for name, values in (
            ("mesh_face", corners[kept]),
            ("mesh_facenormal", model.mesh_facenormal[faces[kept]]),
            ("mesh_facetexcoord", model.mesh_facetexcoord[faces[kept]]),
        ):
            getattr(model, name)[first : first + len(kept)] = values
        model.mesh_facenum[mesh] = len(kept)


class TwoRoomSimulator:
    def __init__(self, task: Task, visuals: Visuals):
        self.env: Any = make_env(task.env_id, **task.env_options)
        self.env.reset(seed=0, options={"variation": ()})

    def start(self, rng: np.random.Generator) -> None:
        self.set_state(free_position(rng))

    def state(self) -> Array:
        return self.env.agent_position.numpy().astype(np.float64)

    def set_state(self, state: Array) -> None:
        self.env._set_state(np.asarray(state, dtype=np.float32))

    def set_goal(self, goal_state: Array) -> None:
        self.env._set_goal_state(np.asarray(goal_state, dtype=np.float32))

    def step(self, action: Array) -> None:
        self.env.step(action)

    def render(self, size: int) -> Array:
        return _shrink(self.env.render(), size)

    def close(self) -> None:
        self.env.close()


class PushTSimulator:
    def __init__(self, task: Task, visuals: Visuals):
        self.env: Any = make_env(task.env_id, **task.env_options)
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

    def set_goal(self, goal_state: Array) -> None:
        self.env._set_goal_state(np.asarray(goal_state, dtype=np.float64))

    def step(self, action: Array) -> None:
        self.env.step(action)

    def render(self, size: int) -> Array:
        return _shrink(self.env.render(), size)

    def close(self) -> None:
        self.env.close()


class ReacherSimulator:
    """The goal is kept by us: swm's own target would end and reset the episode on the first match."""

    def __init__(self, task: Task, visuals: Visuals):
        self.env: Any = make_env(task.env_id, **task.env_options)
        self.env.reset(seed=0, options={"variation": ()})
        physics = self.env.env.physics
        self.camera = MujocoCamera(physics.model.ptr, physics.data.ptr, self.env.camera_id, visuals)
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

    def set_goal(self, goal_state: Array) -> None:
        self.goal_state = np.asarray(goal_state, dtype=np.float64)

    def step(self, action: Array) -> None:
        self.env.step(np.asarray(action))

    def render(self, size: int) -> Array:
        return self.camera.render(size)

    def close(self) -> None:
        self.camera.close()
        self.env.close()


class CubeSimulator:
    """swm's reset recompiles the model; after the first one, episodes start through the environment's own parts."""

    def __init__(self, task: Task, visuals: Visuals):
        self.env: Any = make_env(task.env_id, **task.env_options)
        self.env.reset(seed=0, options={"variation": ()})
        self.camera = MujocoCamera(self.env.model, self.env.data, "front_pixels", visuals)

    def start(self, rng: np.random.Generator) -> None:
        import mujoco

        env = self.env
        mujoco.mj_resetData(env.model, env.data)
        env.np_random = rng
        self._vary("cube", "start_position", rng.uniform(*env._object_sampling_bounds)[None])
        self._vary("cube", "start_yaw", rng.uniform(0.0, 2 * np.pi, size=1))
        self._vary("agent", "ee_start_position", rng.uniform(*env._arm_sampling_bounds))
        env.initialize_episode()
        mujoco.mj_forward(env.model, env.data)

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
        mujoco.mj_resetData(env.model, env.data)
        env.set_state(state[: env.model.nq], state[env.model.nq :])
        env.pre_step()
        env.post_step()

    def set_goal(self, goal_state: Array) -> None:
        self.env.set_target_pos(0, goal_state[14:17], goal_state[17:21])

    def step(self, action: Array) -> None:
        """MuJoCo leaves site positions one substep behind the joints, and the next action is relative to a
        site. Bringing them up to date makes what follows depend on the stored state alone."""
        import mujoco

        self.env.step(action)
        mujoco.mj_kinematics(self.env.model, self.env.data)

    def render(self, size: int) -> Array:
        return self.camera.render(size)

    def close(self) -> None:
        self.camera.close()
        self.env.close()


_SIMULATORS: dict[str, Callable[[Task, Visuals], Simulator]] = {
    "tworoom": TwoRoomSimulator,
    "pusht": PushTSimulator,
    "reacher": ReacherSimulator,
    "cube": CubeSimulator,
}


def make_simulator(task: Task, visuals: Visuals | None = None) -> Simulator:
    create, visuals = _SIMULATORS[task.name], visuals or Visuals.light()
    if create not in (ReacherSimulator, CubeSimulator):
        return create(task, visuals)
    try:
        return create(task, visuals)  # MuJoCo loads GL on import
    except (ImportError, AttributeError, OSError) as error:
        raise _rendering_failed(error) from error
