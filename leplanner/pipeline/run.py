"""A whole run: the stages from nothing to a measured bundle, for any task, scale, recipe and family."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch

from ..artifacts import is_whole
from ..control.methods import SearchBudget
from ..data.collect import check_continues
from ..data.formats import columns_text, open_episodes
from ..evaluation.manifest import default_budget, load_manifest
from ..evaluation.runner import EvaluationConfig
from ..execution.executor import Executor
from ..planner.train import pick_step_engine
from ..report.card import Making
from ..report.page import check_installed, write_page
from ..tasks import Task
from ..training.runtime import Runtime
from ..worlds import FAMILIES, load_world
from . import stages
from .bundle import make_bundle
from .evaluating import MANIFEST, Draw, evaluate_folder
from .learning import collect, collect_test, learn, train_world
from .own_planner import check_own_planner, own_methods
from .paths import RunPaths
from .presets import Preset
from .stage import Show, Stage, silent
from .stages import Made

VIDEOS = 4  # trials of every method


@dataclass(frozen=True)
class RunOptions:
    """What a run is told besides its preset."""

    world: str | None = None  # a released checkpoint to use instead of training a world; needs `data`
    data: Path | None = None  # a dataset to use instead of collecting one
    trials: int = 200
    search_trials: int = 50  # of the family's own planner, where that is a search; 0: no searches
    offset: int = 25


def plan_run(
    task: Task,
    preset: Preset,
    paths: RunPaths,
    options: RunOptions,
    runtime: Runtime | None = None,
    executor: Executor | None = None,
    show: Show = silent,
) -> list[Stage]:
    """The stages in order. What the last of them would refuse is refused now, not after hours."""
    runtime = runtime or Runtime()
    _check(task, preset, paths, options)
    data = options.data or paths.data
    trials = options.data or paths.test_data  # of a given dataset, its held-out episodes
    plan: list[Stage] = []
    if options.data is None:
        plan.append(collect(task, preset, data, executor, show))
        plan.append(collect_test(task, preset, trials, executor, show))
    if options.world is not None:
        source = options.world
        plan.append(
            Stage(
                "import world",
                (data,),
                paths.world,
                lambda: stages.import_world(source, task, preset.family, paths.world, data),
            )
        )
    else:
        plan.append(train_world(task, preset, data, paths.world, runtime, show))
    finetunes = options.world is None and preset.finetune.optim.steps > 0
    folders, files = _rounds(preset, paths, options, data)
    world, parts = paths.world, {"World": paths.world}
    for number, (folder, file) in enumerate(zip(folders, files, strict=True)):
        suffix = f", round {number}" if number else ""
        earlier = folders[number - 1] if number else None
        if earlier is not None:
            plan.append(
                _collect_on_policy(task, preset, earlier, files[number - 1], file, number, suffix, executor, show)
            )
        made = learn(task, preset, world, file, folder, finetunes, earlier, suffix, runtime, show)
        plan += made.stages
        parts |= made.parts
        world = made.world
    parts["GC-IDM, for comparison"] = paths.baselines / "gcidm"
    making = Making(
        command=_command(task, preset, options),
        scale=preset.scale,
        recipe=preset.recipe,
        family=preset.family,
        data=data,
        stages=parts,
        on_policy=tuple(files[1:]),
    )
    return [*plan, *_measured(task, preset, paths, world, data, trials, options, making, runtime, executor, show)]


def _collect_on_policy(
    task: Task,
    preset: Preset,
    earlier: RunPaths,
    data: Path,
    out: Path,
    number: int,
    suffix: str,
    executor: Executor | None,
    show: Show,
) -> Stage:
    config = replace(preset.on_policy_collect, seed=number)
    run = partial(stages.collect_data, task, config, out, str(earlier.planner), data, executor, show)
    return Stage("collect on policy" + suffix, (earlier.planner, data), out, run)


def _measured(
    task: Task,
    preset: Preset,
    paths: RunPaths,
    world: Path,
    data: Path,
    trials: Path,
    options: RunOptions,
    making: Making,
    runtime: Runtime,
    executor: Executor | None,
    show: Show,
) -> list[Stage]:
    """From a planner to a bundle with its card, and the page."""

    def measure() -> Made:
        config = EvaluationConfig(
            methods=(
                "leplanner-reuse",
                "leplanner",
                *own_methods(preset.family, options.search_trials),
                "gcidm",
                "random",
                "no-op",
                "replay",
            ),
            replan=tuple(dict.fromkeys((1, preset.planner.horizon))),
            search=SearchBudget(compiled=pick_step_engine("auto", torch.device("cpu")) == "compiled"),
            trials=options.trials,
            search_trials=options.search_trials or None,
            videos=min(VIDEOS, options.trials),
        )
        draw = Draw(options.trials, offset=options.offset, budget=default_budget(options.offset))
        evaluated = evaluate_folder(
            task, paths.planner, trials, draw, config, paths.measured, paths.baselines, None, executor, show
        )
        evaluated.require_all()
        return Made(paths.measured, f"manifest {evaluated.manifest.digest[:12]}", evaluated.report)

    def bundle() -> Made:
        drawn_from = open_episodes(trials, task, in_memory=False)
        tested = (
            drawn_from.for_trials_only and load_manifest(paths.measured / MANIFEST).data_digest == drawn_from.digest
        )
        told = replace(making, test_episodes=len(drawn_from.starts) if tested else 0)
        made = make_bundle(task, paths.planner, paths.measured, data, told, paths.bundle)
        size = sum(path.stat().st_size for path in made.iterdir())
        return Made(made, f"{size / 1e6:.1f} MB", {"bytes": size})

    return [
        Stage(
            "GC-IDM",
            (world, paths.latents),
            paths.baselines,
            lambda: stages.make_baselines(
                task, ("gcidm",), load_world(world), paths.latents, preset.baselines, paths.baselines, runtime, show
            ),
        ),
        Stage("evaluate", (paths.planner, trials, paths.baselines), paths.measured, measure),
        Stage("bundle", (paths.planner, paths.measured), paths.bundle, bundle),
        Stage("report", (paths.measured,), paths.report, lambda: Made(write_page([paths.measured], paths.report), "")),
    ]


def _rounds(preset: Preset, paths: RunPaths, options: RunOptions, data: Path) -> tuple[list[RunPaths], list[Path]]:
    """The folder and the data of every round; the last round's planner is the task's."""
    count = preset.on_policy.rounds if options.world is None else 0
    folders = [*(paths.round(number) for number in range(count)), paths]
    return folders, [data, *(folder.on_policy_data for folder in folders[1:])]


def _check(task: Task, preset: Preset, paths: RunPaths, options: RunOptions) -> None:
    if options.world is not None and options.data is None:
        raise ValueError(
            "--world needs --data: a released world comes without the statistics of the actions it was trained on. "
            "Give the dataset of that training."
        )
    folders, _ = _rounds(preset, paths, options, paths.data)
    if len(folders) > 1 and options.data is not None:
        check_continues(options.data, task, preset.on_policy_collect)
    for earlier, folder in pairwise(folders):
        _check_unmade(earlier, folder)
    if options.trials < 1 or options.search_trials < 0:
        raise ValueError(
            f"--trials must be at least 1 and --search-trials at least 0 (no searches); got {options.trials} "
            f"and {options.search_trials}."
        )
    check_installed()
    check_own_planner(preset)
    if options.world is None and not is_whole(paths.world):
        FAMILIES.get(preset.family).check_ready(preset.network)
    if options.data is not None:
        episodes = open_episodes(options.data, task, in_memory=False)
        episodes.need_states(f"A run on {options.data} ends with an evaluation, which sets up trials from states")


def _check_unmade(earlier: RunPaths, folder: RunPaths) -> None:
    """What is made of on-policy data cannot be there before them, nor they before the planner that collected them: it
    would be refused, but only after an hour."""
    outputs = [folder.on_policy_data, folder.latents, folder.finetuned, folder.density, folder.planner]
    needed = [earlier.planner / "config.json", folder.on_policy_data]
    for missing, of_it in ((needed[0], outputs), (needed[1], outputs[1:])):
        present = [str(path) for path in of_it if path.exists()]
        if present and not missing.exists():
            raise ValueError(
                f"{', '.join(present)} {'is' if len(present) == 1 else 'are'} of another run: this one makes them "
                f"last, from {missing}, which is not there yet. Choose another --out, or move them away."
            )


def _command(task: Task, preset: Preset, options: RunOptions) -> str:
    words = [
        "leplanner",
        "run",
        task.name,
        "--scale",
        preset.scale,
        "--recipe",
        preset.recipe,
        "--family",
        preset.family,
    ]
    words += ["--effort", f"{preset.effort:g}"] if preset.effort != 1 else []
    words += ["--world", options.world] if options.world else []
    words += ["--data", options.data.name] if options.data else []
    words += ["--columns", columns_text(task)] if task.columns else []
    defaults = RunOptions()
    for name in ("trials", "search_trials", "offset"):
        if getattr(options, name) != getattr(defaults, name):
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return shlex.join(words)
