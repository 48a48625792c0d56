"""Collects episodes with a task's behavior policy, or another collector, on all cores: resumable,
deterministic, and written in one step."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol

import h5py
import numpy as np

from .. import __version__
from ..artifacts import atomic_path, folder_lock, provenance, read_json, write_arrays, write_json
from ..core.actions import Array
from ..execution.executor import Executor, make_executor
from ..tasks import Task, get_task
from ..tasks.spec import Behavior, Simulator
from .episodes import is_validation
from .formats.hdf5 import GOAL_ROWS

EPISODES_A_PART = 8
STREAMS: dict[str, tuple[int, ...]] = {"train": (), "test": (1,)}  # random numbers that no other split draws
TRAIN = {"split": "train"}  # what files from before test episodes do not say


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    episodes: int = 1000
    """how many episodes"""
    steps: int = 100
    """environment actions in an episode"""
    every: int = 5
    """render and keep one frame in this many; a row then holds as many actions"""
    size: int = 64
    """frame size in pixels"""
    seed: int = 0
    """episode i is a function of (seed, i)"""
    native_visuals: bool = False
    """draw as released datasets do: shadows, four samples a pixel"""
    split: Literal["train", "test"] = "train"
    """train; or test: other episodes, that only trials are drawn from"""

    def __post_init__(self) -> None:
        if self.steps % self.every or min(self.episodes, self.steps, self.every, self.size) < 1:
            raise ValueError(
                f"steps={self.steps} must be a positive multiple of every={self.every}, "
                f"with episodes={self.episodes} and size={self.size} at least 1."
            )


class Collector(Protocol):
    """Who acts instead of the task's behavior: told of an episode's simulator, it may choose
    the start. Pickled to workers."""

    def identity(self) -> dict[str, str]:
        """What tells it from others, stored with the data."""
        ...

    def begin(self, sim: Simulator, rng: np.random.Generator) -> tuple[Behavior, tuple[int, int]]:
        """Who acts, and two rows of the file that `collect` adds to: where the episode starts, and its goal."""
        ...


def run_episode(
    task: Task, sim: Any, config: CollectConfig, index: int, collector: Collector | None = None
) -> dict[str, Array]:
    """One episode, a function of (seed, index) alone. The reset frame is the first row; the last row has no action."""
    rng = np.random.default_rng([config.seed, index, *STREAMS[config.split]])
    sim.start(rng)
    behavior, goal_rows = collector.begin(sim, rng) if collector else (task.behavior(sim, rng), (-1, -1))
    rows = config.steps // config.every + 1
    pixels = np.empty((rows, config.size, config.size, 3), np.uint8)
    states = np.empty((rows, task.state_dim), np.float64)
    actions = np.full((rows, config.every, task.action_dim), np.nan, np.float32)
    for row in range(rows):
        pixels[row], states[row] = sim.render(config.size), sim.state()
        for step in range(config.every if row < rows - 1 else 0):
            # stored and executed in the same precision, so that replaying is exact
            action = np.asarray(behavior.act(pixels[row]), dtype=np.float32)
            actions[row, step] = action
            sim.step(action)
    flat = actions.reshape(rows, -1)
    return {"pixels": pixels, "state": states, "action": flat, GOAL_ROWS: np.tile(np.array(goal_rows), (rows, 1))}


_worker: dict[str, Any] = {}  # a process keeps its simulator between parts


def _collect_part(task: str, config: CollectConfig, collector: Collector | None, folder: str, part: int) -> int:
    import torch

    if _worker.get("config") != (task, config):
        torch.set_num_threads(1)
        _worker.update(config=(task, config), sim=get_task(task).simulator(_visuals(get_task(task), config)))
    first = part * EPISODES_A_PART
    indices = range(first, min(first + EPISODES_A_PART, config.episodes))
    episodes = [run_episode(get_task(task), _worker["sim"], config, index, collector) for index in indices]
    stacked = {name: np.stack([episode[name] for episode in episodes]) for name in episodes[0]}
    write_arrays(Path(folder) / f"{part:06d}.npz", stacked)
    return len(episodes) * stacked["pixels"].shape[1]


def collect(
    task: Task,
    config: CollectConfig,
    out: Path,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    collector: Collector | None = None,
    onto: Path | None = None,
) -> Path:
    """Collect to `out`. Finished parts survive a kill in `out.parts/`; the file itself appears only when whole. `onto`:
    a file of the same task whose episodes come first."""
    expected: dict[str, Any] = (
        {"task": task.name} | dataclasses.asdict(config) | (collector.identity() if collector else {})
    )
    folder = out.with_name(out.name + ".parts")
    if onto is not None:
        check_continues(onto, task, config)
    if out.exists():
        _check_same(out, expected)
        shutil.rmtree(folder, ignore_errors=True)
        return out
    with folder_lock(folder):
        _collect_parts(task, config, expected, folder, out, executor or make_executor(), progress, collector, onto)
    shutil.rmtree(folder, ignore_errors=True)
    return out


def _collect_parts(
    task: Task,
    config: CollectConfig,
    identity: dict[str, Any],
    folder: Path,
    out: Path,
    executor: Executor,
    progress: Callable[[int, int], None],
    collector: Collector | None,
    onto: Path | None,
) -> None:
    for leftover in out.parent.glob(f".{out.name}.*.tmp"):  # of a merge that was killed
        leftover.unlink()
    # parts of a shorter run with the same settings are reused, whatever number of episodes it was for
    settings = {key: value for key, value in identity.items() if key != "episodes"} | {"leplanner": __version__}
    settings["visuals"] = _visuals(task, config)
    if (folder / "config.json").exists() and TRAIN | read_json(folder / "config.json") != settings:
        raise ValueError(
            f"{folder} holds parts of a collection with other settings ({read_json(folder / 'config.json')}). "
            "Finish it with those, choose another --out, or delete the folder."
        )
    write_json(folder / "config.json", settings)
    parts = range((config.episodes + EPISODES_A_PART - 1) // EPISODES_A_PART)
    missing = [part for part in parts if not _part_is_whole(folder, part, config)]
    rows_an_episode = config.steps // config.every + 1
    total = config.episodes * rows_an_episode
    left = sum(min(EPISODES_A_PART, config.episodes - part * EPISODES_A_PART) for part in missing)
    done = total - left * rows_an_episode
    progress(done, total)
    for rows in executor.run(functools.partial(_collect_part, task.name, config, collector, str(folder)), missing):
        done += rows
        progress(done, total)
    _merge(task, config, identity, [folder / f"{part:06d}.npz" for part in parts], out, onto)


def _part_is_whole(folder: Path, part: int, config: CollectConfig) -> bool:
    path = folder / f"{part:06d}.npz"
    if not path.exists():
        return False
    with np.load(path) as arrays:
        return GOAL_ROWS in arrays and len(arrays["action"]) == min(
            EPISODES_A_PART, config.episodes - part * EPISODES_A_PART
        )


def _check_same(out: Path, expected: dict[str, Any]) -> None:
    with h5py.File(out, "r") as file:
        actual = json.loads(file.attrs.get("leplanner", "{}")).get("config")
    if actual is None or TRAIN | actual != expected:
        raise ValueError(
            f"{out} exists and was made otherwise ({actual}). Requested: {expected}. Choose another --out or delete it."
        )


COLUMNS = ("pixels", "action", "state", "ep_len", "ep_offset", "episode_idx", "step_idx")


def _merge(
    task: Task, config: CollectConfig, identity: dict[str, Any], parts: list[Path], out: Path, onto: Path | None
) -> None:
    frame, block = (config.size, config.size, 3), config.every * task.action_dim
    file: Any
    with atomic_path(out) as temporary, h5py.File(temporary, "w", libver="latest") as file:
        pixels = file.create_dataset("pixels", (0, *frame), np.uint8, chunks=(1, *frame), maxshape=(None, *frame))
        file.create_dataset("action", (0, block), np.float32, maxshape=(None, block))
        file.create_dataset("state", (0, task.state_dim), np.float64, maxshape=(None, task.state_dim))
        for name in COLUMNS[3:]:
            file.create_dataset(name, (0,), np.int32 if name == "ep_len" else np.int64, maxshape=(None,))
        if onto is not None:
            _copy_episodes(onto, file)
        ids, first = np.arange(config.episodes), 0
        if onto is not None:
            ids = _new_ids(config.episodes, int(file["episode_idx"][:].max()) + 1)
        rows_an_episode = config.steps // config.every + 1
        for path in parts:
            with np.load(path) as arrays:
                episodes, row = len(arrays["action"]), len(pixels)
                _append(file, {name: arrays[name].reshape(-1, *arrays[name].shape[2:]) for name in COLUMNS[:3]})
                if onto is not None:
                    _append(file, {GOAL_ROWS: arrays[GOAL_ROWS].reshape(-1, 2)})
            numbers = np.arange(episodes)
            index = {"ep_len": np.full(episodes, rows_an_episode), "ep_offset": row + numbers * rows_an_episode}
            index["episode_idx"] = np.repeat(ids[first + numbers], rows_an_episode)
            index["step_idx"] = np.tile(np.arange(rows_an_episode) * config.every, episodes)
            _append(file, index)
            first += episodes
        finite = file["action"][:].reshape(-1, task.action_dim)
        finite = finite[np.isfinite(finite).all(axis=1)].astype(np.float64)
        file.attrs["steps_per_row"] = config.every
        about = {"config": identity, "visuals": _visuals(task, config), "provenance": provenance()}
        about |= {"action_mean": finite.mean(axis=0).tolist(), "action_std": finite.std(axis=0).tolist()}
        file.attrs["leplanner"] = json.dumps(about)


def _new_ids(count: int, first: int) -> Array:
    """Names for added episodes, of training episodes all: what is held out stays what it was,
    and is measured on the same."""
    ids = np.arange(first, first + 2 * count + 100)
    return ids[~is_validation(ids)][:count]


def _append(file: Any, columns: dict[str, Array]) -> None:
    for name, values in columns.items():
        start = len(file[name])
        file[name].resize(start + len(values), axis=0)
        file[name][start:] = values


def _copy_episodes(source: Path, file: Any, rows: int = 4096) -> None:
    other: Any
    with h5py.File(source, "r") as other:
        for name in COLUMNS:
            for start in range(0, len(other[name]), rows):
                _append(file, {name: other[name][start : start + rows]})
        goal_rows = other[GOAL_ROWS][:] if GOAL_ROWS in other else np.full((len(other["pixels"]), 2), -1)
        file.create_dataset(GOAL_ROWS, data=goal_rows.astype(np.int64), maxshape=(None, 2))


def check_continues(source: Path, task: Task, config: CollectConfig) -> None:
    """Whether what will be collected fits behind what a file holds: said before hours of collecting, not after."""
    expected = {
        "pixels": (config.size, config.size, 3),
        "action": (config.every * task.action_dim,),
        "state": (task.state_dim,),
        "steps_per_row": config.every,
        "visuals": _visuals(task, config),
    }
    if not (source.is_file() and h5py.is_hdf5(source)):
        raise ValueError(
            f"{source} cannot be continued: it is no HDF5 file. Collect one (leplanner collect {task.name})."
        )
    file: Any
    with h5py.File(source, "r") as file:
        actual: dict[str, Any] = {name: file[name].shape[1:] if name in file else None for name in COLUMNS[:3]}
        actual["steps_per_row"] = file.attrs.get("steps_per_row")
        actual["visuals"] = json.loads(file.attrs.get("leplanner", "{}")).get("visuals")
    if actual != expected:
        raise ValueError(
            f"{source} cannot be continued: it holds {actual}, and {expected} would be added to it. Continue it with "
            "its own settings and the version that made it, or collect it anew."
        )


def _visuals(task: Task, config: CollectConfig) -> dict[str, Any]:
    return dict(task.native_visuals if config.native_visuals else task.visuals)
