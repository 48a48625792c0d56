"""stable-worldmodel's own dataset-driven `World.evaluate` on our tasks: how its environments are told start and goal,
and how they draw what a planner's world was trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..core.actions import Array
from ..data.episodes import Episodes, read_frames
from ..tasks import Task
from ..tasks.swm_cube import OPTIONS as CUBE_OPTIONS
from ..tasks.swm_mujoco import MujocoCamera, Visuals
from ..tasks.swm_runtime import import_swm, shrink
from .manifest import default_budget

Scene = Callable[[Any], tuple[Any, Any, int | str]]  # environment -> MuJoCo's model, data and camera


def _call(method: str, /, *fixed: tuple[str, Any], **columns: str) -> dict[str, Any]:
    """One of swm's `callables`: a method of the environment, its arguments taken from columns of the dataset."""
    given = {name: {"value": value, "in_dataset": False} for name, value in fixed}
    return {"method": method, "args": given | {name: {"value": column} for name, column in columns.items()}}


@dataclass(frozen=True)
class _Setup:
    """Columns, as parts of our state, and the calls that put an environment at start and goal."""

    columns: Mapping[str, slice]
    calls: tuple[dict[str, Any], ...]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the environment
    scene: Scene | None = None


_POINT = _Setup(
    {"state": slice(None)},
    (_call("_set_state", state="state"), _call("_set_goal_state", goal_state="goal_state")),
)
_SETUPS = {
    "tworoom": _POINT,
    "pusht": _POINT,
    "reacher": _Setup(
        {"qpos": slice(0, 2), "qvel": slice(2, 4)},
        (_call("set_state", qpos="qpos", qvel="qvel"), _call("set_target_qpos", target_qpos="goal_qpos")),
        {"task": "qpos_match"},
        lambda env: (env.env.physics.model.ptr, env.env.physics.data.ptr, env.camera_id),
    ),
    "cube": _Setup(
        {"qpos": slice(0, 21), "qvel": slice(21, 41), "cube_pos": slice(14, 17), "cube_quat": slice(17, 21)},
        (
            _call("set_state", qpos="qpos", qvel="qvel"),
            _call("set_target_pos", ("cube_id", 0), target_pos="goal_cube_pos", target_quat="goal_cube_quat"),
        ),
        CUBE_OPTIONS,
        lambda env: (env.model, env.data, "front_pixels"),
    ),
}


def make_world(task: Task, count: int, size: int, visuals: Mapping[str, Any]) -> Any:
    """A `World` with an environment for each of `count` trials; its frames are those of our simulators."""
    setup = _setup(task)
    return import_swm().World(
        task.env_id,
        num_envs=count,
        image_shape=(size, size),
        pre_wrappers=[_drawn_alike(setup.scene, visuals, size)],
        disable_env_checker=True,
        **setup.options,
    )


def evaluate_arguments(task: Task, episodes: Episodes, count: int, offset: int = 25) -> dict[str, Any]:
    """What `World.evaluate` takes: for each of the first `count` episodes that has one, the first start whose goal,
    `offset` actions later in the data, is not reached already."""
    setup, ahead = _setup(task), offset // episodes.steps_per_row
    states = episodes.need_states("Trials are set up from physical states")
    if offset % episodes.steps_per_row:
        raise ValueError(
            f"Trials {offset} actions long need rows that divide them; the dataset has {episodes.steps_per_row} "
            f"actions a row. Collect one with: leplanner collect {task.name}"
        )
    chosen: list[tuple[int, int]] = []
    for number in range(len(episodes.starts)):
        rows = episodes.episode_rows(np.array([number]), ahead)
        apart = rows[~task.success(states[rows], states[rows + ahead])]
        if len(apart) and len(chosen) < count:
            chosen.append((number, int(apart[0] - episodes.starts[number])))
    if len(chosen) < count:
        raise ValueError(
            f"{count} trials were requested, but only {len(chosen)} of {len(episodes.starts)} episodes have a goal "
            f"{offset} actions away that is not reached already. Ask for fewer, or collect more episodes."
        )
    numbers, starts = zip(*chosen, strict=True)
    return {
        "dataset": _Dataset(episodes, setup.columns),
        "episodes_idx": list(numbers),
        "start_steps": list(starts),  # rows of the dataset, as is the offset
        "goal_offset": ahead,
        "eval_budget": default_budget(offset),
        "callables": list(setup.calls),
    }


class _Dataset:
    """All that `World.evaluate` asks of a dataset, over episodes of any format. No action is given: a row may hold
    several, and swm would show them to the policy as one."""

    def __init__(self, episodes: Episodes, columns: Mapping[str, slice]):
        self.episodes, self.columns = episodes, columns

    @property
    def column_names(self) -> list[str]:
        return ["pixels", *self.columns]

    def load_chunk(self, numbers: Array, starts: Array, ends: Array) -> list[dict[str, torch.Tensor]]:
        return [self._load(*where) for where in zip(numbers, starts, ends, strict=True)]

    def _load(self, number: int, start: int, end: int) -> dict[str, torch.Tensor]:
        assert self.episodes.states is not None
        rows = self.episodes.starts[number] + np.arange(start, end)
        frames = torch.from_numpy(read_frames(self.episodes, rows)).permute(0, 3, 1, 2)
        states = self.episodes.states[rows]
        return {"pixels": frames} | {name: torch.from_numpy(states[:, part]) for name, part in self.columns.items()}


def _setup(task: Task) -> _Setup:
    if task.name not in _SETUPS:
        raise ValueError(
            f"stable-worldmodel's World was requested for {task.name!r}, whose environment it does not have; it has "
            f"{', '.join(_SETUPS)}. Evaluate yours with: leplanner evaluate {task.name}"
        )
    return _SETUPS[task.name]


def _drawn_alike(scene: Scene | None, visuals: Mapping[str, Any], size: int) -> Callable[[Any], Any]:
    """A wrapper for `World`: the environment draws what our simulator draws, with the same shadows and the same way of
    shrinking; a world knows no other frames."""

    def wrap(env: Any) -> Any:
        raw, cameras = env.unwrapped, list[MujocoCamera]()
        render_env, close_env = raw.render, raw.close

        def render(*_: Any, **__: Any) -> Array:
            if scene is None:
                return shrink(render_env(), size)
            model, data, place = scene(raw)
            if not cameras or cameras[0].model is not model:  # a reset may have compiled another
                close_cameras()
                cameras.append(MujocoCamera(model, data, place, Visuals.of(visuals)))
            return cameras[0].render(size)

        def close_cameras() -> None:
            while cameras:
                cameras.pop().close()

        def close() -> None:
            close_cameras()
            close_env()

        raw.render, raw.render_multiview, raw.close = render, None, close
        return env

    return wrap
