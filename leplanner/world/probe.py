"""Reads the physical state off the latents by a linear map: how much of the world a latent holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..data.episodes import Episodes, action_statistics, split
from ..data.windows import ActionScale, WorldWindows, read_frames
from ..tasks import Task
from .train import validate
from .world import World


@dataclass(frozen=True)
class ProbeReport:
    rmse: dict[str, float]  # held-out error of each quantity, in the task's own unit
    std: dict[str, float]  # its spread: the error of knowing nothing
    one_step_error: float  # prediction error as a share of copying the last latent
    unit: str
    train_rows: int
    held_out_rows: int


def probe_world(world: World, task: Task, episodes: Episodes, max_rows: int = 16_000) -> ProbeReport:
    """Ridge regression fitted on training episodes, measured on held-out ones."""
    if episodes.states is None:
        raise ValueError("A probe needs the physical state, but the dataset has no 'state' column.")
    train, held_out = split(episodes)
    rng = np.random.default_rng(0)
    sides = []
    for chosen in (train, held_out):
        rows = episodes.episode_rows(chosen)
        rows = np.sort(rng.permutation(rows)[:max_rows])
        sides.append((encode_rows(world, episodes, rows), task.probe(episodes.states[rows])))
    (x, y), (x_test, y_test) = sides
    predicted = ridge(x, y)(x_test)
    rmse = np.sqrt(np.square(predicted - y_test).mean(axis=0))
    scale = ActionScale(*action_statistics(episodes, train))
    windows = WorldWindows(episodes, held_out, scale, world.spec.block, world.spec.model.context)
    return ProbeReport(
        rmse=dict(zip(task.probe_names, rmse.tolist(), strict=True)),
        std=dict(zip(task.probe_names, y_test.std(axis=0).tolist(), strict=True)),
        one_step_error=validate(world.model, world.spec, windows, count=1024)["held_out_error"],
        unit=task.probe_unit,
        train_rows=len(x),
        held_out_rows=len(x_test),
    )


def encode_rows(world: World, episodes: Episodes, rows: np.ndarray, batch: int = 256) -> np.ndarray:
    parts = [
        world.encode(torch.from_numpy(read_frames(episodes, rows[i : i + batch]))).float().cpu().numpy()
        for i in range(0, len(rows), batch)
    ]
    return np.concatenate(parts)


def ridge(x: np.ndarray, y: np.ndarray, strength: float = 1e-4):
    """Least squares with an intercept; `strength` is relative to the mean variance of a feature."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    centre, level = x.mean(axis=0), y.mean(axis=0)
    gram = (x - centre).T @ (x - centre)
    gram += strength * np.trace(gram) / len(gram) * np.eye(len(gram))
    weights = np.linalg.solve(gram, (x - centre).T @ (y - level))
    return lambda new: (new.astype(np.float64) - centre) @ weights + level
