"""Collects episodes with a task's behaviour policy on all cores: resumable, deterministic, and written in one step."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .. import __version__
from ..artifacts import atomic_path, provenance, read_json, write_arrays, write_json
from ..parallel import in_processes
from ..tasks import Task, get_task

Array = np.ndarray
EPISODES_A_PART = 8


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    task: str
    episodes: int = 1000
    steps: int = 100  # environment actions in an episode
    every: int = 5  # a frame is rendered and kept after this many actions
    size: int = 64  # pixels
    seed: int = 0
    native_visuals: bool = False  # draw MuJoCo as released datasets do: shadows, four samples a pixel

    def __post_init__(self) -> None:
        get_task(self.task)
        if self.steps % self.every or min(self.episodes, self.steps, self.every, self.size) < 1:
            raise ValueError(
                f"steps={self.steps} must be a positive multiple of every={self.every}, "
                f"with episodes={self.episodes} and size={self.size} at least 1."
            )


def run_episode(task: Task, sim: Any, config: CollectConfig, index: int) -> dict[str, Array]:
    """One episode, a function of (seed, index) alone. The reset frame is the first row; the last row has no action."""
    rng = np.random.default_rng([config.seed, index])
    sim.start(rng)
    behaviour = task.behaviour(sim, rng)
    rows = config.steps // config.every + 1
    pixels = np.empty((rows, config.size, config.size, 3), np.uint8)
    states = np.empty((rows, task.state_dim), np.float64)
    actions = np.full((rows, config.every, task.action_dim), np.nan, np.float32)
    for row in range(rows):
        pixels[row], states[row] = sim.render(config.size), sim.state()
        for step in range(config.every if row < rows - 1 else 0):
            # stored and executed in the same precision, so that replaying is exact
            action = np.asarray(behaviour.act(), dtype=np.float32)
            actions[row, step] = action
            sim.step(action)
    return {"pixels": pixels, "state": states, "action": actions.reshape(rows, -1)}


_worker: dict[str, Any] = {}  # a process keeps its simulator between parts


def _collect_part(config: CollectConfig, folder: str, part: int) -> int:
    import torch

    from ..tasks.swm_simulator import Visuals, make_simulator

    if _worker.get("config") != config:
        torch.set_num_threads(1)
        visuals = Visuals.native() if config.native_visuals else Visuals()
        _worker.update(config=config, sim=make_simulator(get_task(config.task), visuals))
    first = part * EPISODES_A_PART
    indices = range(first, min(first + EPISODES_A_PART, config.episodes))
    episodes = [run_episode(get_task(config.task), _worker["sim"], config, index) for index in indices]
    stacked = {name: np.stack([episode[name] for episode in episodes]) for name in episodes[0]}
    write_arrays(Path(folder) / f"{part:06d}.npz", stacked)
    return len(episodes) * stacked["pixels"].shape[1]


def collect(
    config: CollectConfig,
    out: Path,
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Collect to `out`. Finished parts survive a kill in `out.parts/`; the file itself appears only when whole."""
    wanted = dataclasses.asdict(config)
    folder = out.with_name(out.name + ".parts")
    if out.exists():
        _check_same(out, wanted)
        shutil.rmtree(folder, ignore_errors=True)
        return out
    for leftover in out.parent.glob(f".{out.name}.*.tmp"):  # of a merge that was killed
        leftover.unlink()
    # parts of a shorter run with the same settings are reused, whatever number of episodes it was for
    settings = {key: value for key, value in wanted.items() if key != "episodes"} | {"leplanner": __version__}
    if (folder / "config.json").exists() and read_json(folder / "config.json") != settings:
        raise ValueError(
            f"{folder} holds parts of a collection with other settings ({read_json(folder / 'config.json')}). "
            "Finish it with those, choose another --out, or delete the folder."
        )
    write_json(folder / "config.json", settings)
    parts = range((config.episodes + EPISODES_A_PART - 1) // EPISODES_A_PART)
    missing = [part for part in parts if not _part_is_whole(folder, part, config)]
    rows_an_episode = config.steps // config.every + 1
    total = config.episodes * rows_an_episode
    done = (
        total
        - sum(min(EPISODES_A_PART, config.episodes - part * EPISODES_A_PART) for part in missing) * rows_an_episode
    )
    progress(done, total)
    for rows in in_processes(functools.partial(_collect_part, config, str(folder)), missing, workers):
        done += rows
        progress(done, total)
    _merge(config, [folder / f"{part:06d}.npz" for part in parts], out)
    shutil.rmtree(folder)
    return out


def _part_is_whole(folder: Path, part: int, config: CollectConfig) -> bool:
    path = folder / f"{part:06d}.npz"
    if not path.exists():
        return False
    with np.load(path) as arrays:
        return len(arrays["action"]) == min(EPISODES_A_PART, config.episodes - part * EPISODES_A_PART)


def _check_same(out: Path, wanted: dict[str, Any]) -> None:
    with h5py.File(out, "r") as file:
        found = json.loads(file.attrs.get("leplanner", "{}")).get("config")
    if found != wanted:
        raise ValueError(
            f"{out} exists and was made otherwise ({found}). Asked for: {wanted}. Choose another --out or delete it."
        )


def _merge(config: CollectConfig, parts: list[Path], out: Path) -> None:
    from ..tasks.swm_simulator import Visuals

    task = get_task(config.task)
    rows_an_episode = config.steps // config.every + 1
    rows = config.episodes * rows_an_episode
    visuals = Visuals.native() if config.native_visuals else Visuals()
    with atomic_path(out) as temporary, h5py.File(temporary, "w", libver="latest") as file:
        frame = (config.size, config.size, 3)
        pixels = file.create_dataset("pixels", (rows, *frame), np.uint8, chunks=(1, *frame))
        action = file.create_dataset("action", (rows, config.every * task.action_dim), np.float32)
        state = file.create_dataset("state", (rows, task.state_dim), np.float64)
        start = 0
        for path in parts:
            with np.load(path) as arrays:
                stop = start + arrays["action"].shape[0] * rows_an_episode
                for column, name in ((pixels, "pixels"), (action, "action"), (state, "state")):
                    array = arrays[name]
                    column[start:stop] = array.reshape(-1, *array.shape[2:])
            start = stop
        file["ep_len"] = np.full(config.episodes, rows_an_episode, np.int32)
        file["ep_offset"] = np.arange(config.episodes, dtype=np.int64) * rows_an_episode
        file["episode_idx"] = np.repeat(np.arange(config.episodes, dtype=np.int64), rows_an_episode)
        file["step_idx"] = np.tile(np.arange(rows_an_episode, dtype=np.int64) * config.every, config.episodes)
        finite = action[:].reshape(-1, task.action_dim)
        finite = finite[np.isfinite(finite).all(axis=1)].astype(np.float64)
        file.attrs["steps_per_row"] = config.every
        file.attrs["leplanner"] = json.dumps(
            {
                "config": dataclasses.asdict(config),
                "visuals": dataclasses.asdict(visuals),
                "action_mean": finite.mean(axis=0).tolist(),
                "action_std": finite.std(axis=0).tolist(),
                "provenance": provenance(),
            }
        )
