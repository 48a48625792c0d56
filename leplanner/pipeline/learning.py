"""The stages from a dataset to a planner: the same for a whole run, each of its rounds, and every family of a
comparison."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..execution.executor import Executor
from ..tasks import Task
from ..training.runtime import Runtime
from ..worlds import load_world
from . import stages
from .paths import RunPaths
from .presets import Preset
from .stage import Show, Stage


@dataclass(frozen=True)
class Learned:
    """The stages from a world and a dataset to a planner, and what they make."""

    stages: list[Stage]
    parts: dict[str, Path]
    world: Path  # that the planner plans through


def collect(task: Task, preset: Preset, data: Path, executor: Executor | None, show: Show) -> Stage:
    return Stage(
        "collect", (), data, lambda: stages.collect_data(task, preset.collect, data, None, None, executor, show)
    )


def collect_test(task: Task, preset: Preset, data: Path, executor: Executor | None, show: Show) -> Stage:
    run = partial(stages.collect_data, task, preset.test_collect, data, None, None, executor, show)
    return Stage("collect test episodes", (), data, run)


def train_world(task: Task, preset: Preset, data: Path, world: Path, runtime: Runtime, show: Show) -> Stage:
    network = (preset.family, preset.network, preset.objective, preset.world)
    return Stage(
        "train world",
        (data,),
        world,
        lambda: stages.make_world(task, data, *network, world, preset.block, runtime, show),
    )


def prepare(
    task: Task,
    preset: Preset,
    world: Path,
    data: Path,
    folder: RunPaths,
    finetunes: bool,
    runtime: Runtime,
    show: Show,
    earlier: RunPaths | None = None,  # where the planner that collected and its latents are
    suffix: str = "",
) -> list[Stage]:
    """All that a planner is trained with: latents, the finetuned world, a density."""
    used = folder.finetuned if finetunes else world
    latents, density = folder.latents, folder.density
    known = earlier.latents if earlier else None
    finetune = preset.on_policy_finetune if earlier else preset.finetune
    plan = [
        Stage(
            "cache" + suffix,
            (world, data),
            latents,
            lambda: stages.cache_latents(task, load_world(world), data, latents, known, runtime=runtime, show=show),
        )
    ]
    if finetunes:
        plan.append(
            Stage(
                "finetune world" + suffix,
                (world, latents),
                used,
                lambda: stages.finetune(task, world, latents, finetune, used, runtime, show),
            )
        )
    plan.append(
        Stage(
            "density" + suffix,
            (used, latents),
            density,
            lambda: stages.fit_density(task, used, latents, preset.density, density, runtime, show),
        )
    )
    return plan


def learn(
    task: Task,
    preset: Preset,
    world: Path,
    data: Path,
    folder: RunPaths,
    finetunes: bool,
    earlier: RunPaths | None,  # where the planner that collected and its latents are
    suffix: str,
    runtime: Runtime,
    show: Show,
) -> Learned:
    used = folder.finetuned if finetunes else world
    latents, density, planner = folder.latents, folder.density, folder.planner
    init = earlier.planner if earlier else None
    training = preset.on_policy_training if earlier else preset.training
    plan = prepare(task, preset, world, data, folder, finetunes, runtime, show, earlier, suffix)
    plan.append(
        Stage(
            "train planner" + suffix,
            (used, latents, density),
            planner,
            lambda: stages.make_planner(
                task, used, latents, density, preset.planner, training, planner, runtime, init, show
            ),
        )
    )
    parts = {"Finetuned predictor" + suffix: used} if finetunes else {}
    return Learned(plan, parts | {"Density" + suffix: density, "Planner" + suffix: planner}, used)
