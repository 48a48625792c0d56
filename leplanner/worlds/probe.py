"""The full probe of a frozen world: how much of the physical state its latents hold, and how well it predicts."""

from __future__ import annotations

from dataclasses import dataclass

from ..data.episodes import Episodes, split
from ..data.windows import WorldWindows
from ..tasks import Task
from .base import World
from .validate import probe_rows, validate


@dataclass(frozen=True)
class ProbeReport:
    rmse: dict[str, float]  # held-out error of each quantity, in the task's own unit
    std: dict[str, float]  # its spread: the error of knowing nothing
    one_step_error: float  # prediction error as a share of copying the last latent
    unit: str
    train_rows: int
    held_out_rows: int


def probe_world(world: World, task: Task, episodes: Episodes, max_rows: int = 16_000) -> ProbeReport:
    episodes = world.spec.sized(episodes)
    train, held_out = split(episodes)
    rmse, spread, (train_rows, held_out_rows) = probe_rows(
        world.model, world.spec, task, episodes, train, held_out, max_rows
    )
    windows = WorldWindows(episodes, held_out, world.spec.actions, world.spec.context + 1)
    validation = validate(world.model, world.spec, windows, count=1024)
    return ProbeReport(
        rmse=dict(zip(task.probe_names, rmse.tolist(), strict=True)),
        std=dict(zip(task.probe_names, spread.tolist(), strict=True)),
        one_step_error=validation["held_out_error"],
        unit=task.probe_unit,
        train_rows=train_rows,
        held_out_rows=held_out_rows,
    )
