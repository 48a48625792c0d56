"""Families of world models side by side: the same data, stages, trials and budgets for all, each with the planner of
its authors and with LePlanner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..artifacts import (
    atomic_path,
    command_line,
    is_whole,
    other_values,
    provenance,
    read_artifact,
    to_dict,
    write_json,
)
from ..control.methods import METHODS, MethodInputs, SearchBudget
from ..data.cache import open_cache
from ..data.episodes import split
from ..data.formats import open_episodes
from ..data.windows import plan_windows
from ..evaluation.latency import measure_side_by_side
from ..evaluation.limits import measure_machine
from ..evaluation.manifest import Manifest, default_budget
from ..evaluation.metrics import metrics_of
from ..evaluation.runner import EvaluationConfig, TrialRow, fingerprint
from ..evaluation.summary import Group, difference
from ..execution.executor import Executor
from ..planner.planner import Planner, load_bundle
from ..report import figures
from ..report.comparison import comparison_tables
from ..report.page import check_installed
from ..tasks import Task
from ..training.runtime import Runtime
from ..worlds import FAMILIES, find_family
from ..worlds.finetune import rollout_errors
from ..worlds.pretraining import training_minutes
from ..worlds.validate import probe_latents
from .evaluating import Draw, Evaluated, evaluate_folder, find_manifest, grow_manifest
from .learning import collect, collect_test, learn, train_world
from .own_planner import check_own_planner, own_methods, own_planner
from .paths import RunPaths
from .presets import Preset, get_preset
from .stage import Show, Stage, run_stages, silent

WINDOWS = 1024  # held-out rollouts of the world's error
PROBE_ROWS = 16_000


@dataclass(frozen=True)
class CompareOptions:
    """What a comparison is told besides its presets."""

    data: Path | None = None  # a dataset to use instead of collecting one; trials are then from its held-out episodes
    trials: int = 200
    search_trials: int = 50  # of own planners that search with the shared budget; 0: none of them
    offset: int = 25
    search: SearchBudget = field(default_factory=SearchBudget)


@dataclass(frozen=True)
class Rival:
    """A family in the comparison."""

    preset: Preset
    paths: RunPaths

    @property
    def name(self) -> str:
        return self.preset.family

    @property
    def controller(self) -> str:
        return self.preset.controller

    @property
    def replans(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((1, self.preset.planner.horizon)))

    def methods(self, options: CompareOptions) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.controller, *own_methods(self.name, options.search_trials))))

    def stages(self, task: Task, data: Path, runtime: Runtime, show: Show) -> list[Stage]:
        """Of a run, without rounds on policy: those would give every family other data. An imported world is used as
        it is."""
        world, finetunes = self.paths.world, self.preset.finetune.optim.steps > 0
        imported = is_whole(world) and "source" in read_artifact(world, "world")["training"]
        begin = [] if imported else [train_world(task, self.preset, data, world, runtime, show)]
        learned = learn(task, self.preset, world, data, self.paths, finetunes, None, "", runtime, show)
        return [*begin, *learned.stages]


def find_rivals(
    task: Task, names: Sequence[str], scale: str, recipe: str | None, paths: RunPaths, effort: float = 1.0
) -> list[Rival]:
    """Families by name or as package.module:FAMILY, each with the preset of this scale, recipe and effort."""
    families = [find_family(name).name for name in names]
    twice = sorted({name for name in families if families.count(name) > 1})
    if twice:
        raise ValueError(f"Give each family once; {', '.join(twice)} is listed twice.")
    return [Rival(get_preset(task, scale, recipe, name, effort), paths.family(name)) for name in families]


def run_comparison(
    task: Task,
    rivals: Sequence[Rival],
    paths: RunPaths,
    out: Path,
    options: CompareOptions,
    runtime: Runtime | None = None,
    executor: Executor | None = None,
    show: Show = silent,
    on_stage: Callable[[str], None] = lambda title: None,
) -> dict[str, Any]:
    """Resumable; families can be added later. Returns and keeps OUT/comparison.json, with its tables and figure."""
    _check(rivals, options)
    preset = rivals[0].preset
    runtime, data = runtime or Runtime(), options.data or paths.data
    drawn_from = options.data or paths.test_data
    if options.data is None:
        gather = [
            collect(task, preset, data, executor, show),
            collect_test(task, preset, drawn_from, executor, show),
        ]
        run_stages(gather, paths.minutes, lambda number, stage: on_stage(stage.name))
    manifest = _shared_trials(task, drawn_from, out, options)
    digest = open_episodes(data, task, in_memory=False).digest
    _check_worlds(rivals, digest, data)
    evaluated: list[Evaluated] = []
    for rival in rivals:
        plan = rival.stages(task, data, runtime, show)
        run_stages(plan, rival.paths.minutes, lambda number, stage, name=rival.name: on_stage(f"{name}: {stage.name}"))
        on_stage(f"{rival.name}: evaluate")
        evaluated.append(_evaluate(task, rival, drawn_from, out, manifest, options, executor, show))
    on_stage("compare")
    families = [_family(task, rival, one) for rival, one in zip(rivals, evaluated, strict=True)]
    groups = [_groups(one.rows) for one in evaluated]
    ours = preset.controller
    for family, mine in zip(families, groups, strict=True):
        family["minus_own"] = _differences(mine, ours, mine, family["own_planner"], family["replans"])
        family["minus_first"] = _differences(mine, ours, groups[0], ours, family["replans"])
    report = {
        "task": task.name,
        "scale": preset.scale,
        "recipe": preset.recipe,
        "effort": preset.effort,
        "data": digest,
        "trials_from": manifest.data_digest,
        "manifest": manifest.digest,
        "protocol": manifest.protocol,
        "offset": manifest.offset,
        "budget": manifest.budget,
        "seed": manifest.seed,
        "trials": options.trials,
        "search_trials": options.search_trials,
        "settings": evaluated[0].report["settings"],
        "leplanner": ours,
        "reference": rivals[0].name,
        "families": families,
        "latency": _latency(rivals, options, manifest),
        "command": command_line(),
        "provenance": provenance(manifest=manifest.digest, data=digest),
    }
    write_json(out / "comparison.json", report)
    with atomic_path(out / "table.md") as temporary:
        temporary.write_text("\n\n".join(table.markdown for table in comparison_tables(report)) + "\n")
    figures.save(figures.family_comparison(report, task.title), out, "comparison")
    return report


def _check(rivals: Sequence[Rival], options: CompareOptions) -> None:
    """What the end would refuse is refused now, not after hours."""
    check_installed()
    if not rivals:
        raise ValueError(f"Give at least one family: {', '.join(FAMILIES)}.")
    if options.trials < 1 or options.search_trials < 0:
        raise ValueError(
            f"--trials must be at least 1 and --search-trials at least 0 (no searches); got {options.trials} and "
            f"{options.search_trials}."
        )
    for rival in rivals:
        check_own_planner(rival.preset)
        if not is_whole(rival.paths.world):
            FAMILIES.get(rival.name).check_ready(rival.preset.network)
        elif others := _other_settings(rival.paths.world, rival.preset):
            raise ValueError(
                f"{rival.paths.world} was trained with other settings than this comparison's: {'; '.join(others)}. Say "
                "the --scale, --recipe and --effort that it was trained with, choose another --base, or delete "
                f"{rival.paths.base} to train {rival.name} again."
            )
    if options.data is None and len({rival.preset.collect for rival in rivals}) > 1:
        raise ValueError(
            f"The presets of {', '.join(rival.name for rival in rivals)} collect different data, but all families "
            "learn from the same. Give one dataset with --data."
        )


def _check_worlds(rivals: Sequence[Rival], digest: str, data: Path) -> None:
    """Worlds that are there already are of this data; other settings are refused where they would be trained."""
    for rival in rivals:
        folder = rival.paths.world
        known = read_artifact(folder, "world")["provenance"]["inputs"].get("data") if is_whole(folder) else digest
        if known is None:
            raise ValueError(
                f"{folder} does not say which data it was trained on. Import it again with --data "
                "(leplanner world import)."
            )
        if known != digest:
            raise ValueError(
                f"{folder} was trained on data {known[:12]}; this comparison is on {data} ({digest[:12]}). Choose "
                f"another --base, give --data, or delete {rival.paths.base} to train {rival.name} again."
            )


def _other_settings(folder: Path, preset: Preset) -> list[str]:
    """Of a world that was trained here: what its preset says otherwise now."""
    config = read_artifact(folder, "world")
    trained: Any = config["training"]
    if "source" in trained:
        return []
    actual = {"network": config["spec"]["network"], "objective": trained["objective"], "training": trained["config"]}
    parts = {"network": preset.network, "objective": preset.objective, "training": preset.world}
    return other_values(actual, {name: to_dict(part) for name, part in parts.items()})


def _shared_trials(task: Task, data: Path, out: Path, options: CompareOptions) -> Manifest:
    """Drawn once from the data, without the histories that worlds differ in; more of them continue the draw."""
    draw = Draw(options.trials, offset=options.offset, budget=default_budget(options.offset))
    grow_manifest(out, task, data, None, draw)
    manifest, _ = find_manifest(out, task, data, None, draw)
    digest = open_episodes(data, task, in_memory=False).digest
    if manifest.data_digest != digest:
        raise ValueError(
            f"{out} compares on trials of data {manifest.data_digest[:12]}; {data} is {digest[:12]}. Choose another "
            "--out, or give the data of that comparison."
        )
    return manifest


def _evaluate(
    task: Task,
    rival: Rival,
    data: Path,
    out: Path,
    manifest: Manifest,
    options: CompareOptions,
    executor: Executor | None,
    show: Show,
) -> Evaluated:
    config = EvaluationConfig(
        methods=rival.methods(options),
        replan=rival.replans,
        seed=manifest.seed,
        search=options.search,
        trials=options.trials,
        search_trials=options.search_trials or None,
    )
    draw = Draw(len(manifest.trials), manifest.seed, manifest.protocol, manifest.offset, manifest.budget)
    planner, baselines = rival.paths.planner, _baselines(rival)
    title, folder = f"evaluate {rival.name}", out / rival.name
    evaluated = evaluate_folder(
        task, planner, data, draw, config, folder, baselines, None, executor, show, title, shared=out
    )
    evaluated.require_all()
    return evaluated


def _baselines(rival: Rival) -> Path | None:
    return rival.paths.baselines if rival.paths.baselines.exists() else None


def _family(task: Task, rival: Rival, evaluated: Evaluated) -> dict[str, Any]:
    planner, cache = load_bundle(rival.paths.planner), open_cache(rival.paths.latents)
    world = planner.world
    _, held_out = plan_windows(world, cache, pad_prob=0.0)
    rollouts = held_out.draw_rollouts(np.random.default_rng(0), WINDOWS, rival.preset.planner.horizon)
    rmse, spread, _ = probe_latents(
        lambda rows: cache.latents[rows], task, cache.episodes, *split(cache.episodes), PROBE_ROWS
    )
    folders = {name: getattr(rival.paths, name) for name in ("world", "finetuned", "density", "planner")}
    methods = [
        {name: value for name, value in row.items() if name != "differences"} for row in evaluated.report["methods"]
    ]
    return {
        "name": rival.name,
        "title": FAMILIES.get(rival.name).title,
        "own_planner": own_planner(rival.name).name,
        "replans": list(rival.replans),
        "world": world.digest,
        "bundle": planner.digest,
        "latent": list(world.latent.shape),
        "context": world.spec.context,
        "parameters": sum(p.numel() for p in world.model.parameters()),
        "planner_parameters": sum(p.numel() for p in planner.model.parameters()),
        "minutes": {name: training_minutes(folder) for name, folder in folders.items() if folder.exists()},
        "rollout_error": rollout_errors(world.model, rollouts)["held_out_rollout"],
        "probe": {"rmse": dict(zip(task.probe_names, rmse.tolist(), strict=True)), "unit": task.probe_unit}
        | {"std": dict(zip(task.probe_names, spread.tolist(), strict=True))},
        "methods": methods,
    }


Groups = dict[tuple[str, int], Group]  # method and m -> rows by trial


def _groups(rows: Sequence[TrialRow]) -> Groups:
    groups: Groups = {}
    for row in rows:
        groups.setdefault((row.method, row.replan), {})[row.trial] = row
    return groups


def _differences(
    ours: Groups, our_method: str, theirs: Groups, their_method: str, replans: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """By m and metric, over the trials that both ran; a method that has a pace of its own is compared at that."""
    own_pace = METHODS.get(their_method).replan
    compared: dict[str, dict[str, Any]] = {}
    for m in replans:
        mine, other = ours.get((our_method, m)), theirs.get((their_method, m if own_pace is None else own_pace))
        if mine is None or other is None or mine is other:
            continue
        trials = len(mine.keys() & other.keys())
        by_metric: dict[str, Any] = {}
        for metric in metrics_of("rate"):
            paired = difference(mine, other, metric.name)
            if paired is not None:
                by_metric[metric.name] = dataclasses.asdict(paired) | {"trials": trials}
        compared[str(m)] = by_metric
    return compared


def _latency(rivals: Sequence[Rival], options: CompareOptions, manifest: Manifest) -> dict[str, Any]:
    """Every family's methods at one decision in one process, in turns."""
    planners = [load_bundle(rival.paths.planner) for rival in rivals]
    pairs = [
        (rival, planner, name)
        for rival, planner in zip(rivals, planners, strict=True)
        for name in rival.methods(options)
    ]

    def policy(rival: Rival, planner: Planner, name: str) -> Any:
        inputs = MethodInputs(planner, manifest.budget, _baselines(rival), options.search)
        return METHODS.get(name).make(inputs)(None)  # no method that plans looks at its trial

    timed = measure_side_by_side([(policy(*pair), pair[1]) for pair in pairs])
    rows = [
        {"family": rival.name, **dataclasses.asdict(latency), "method": name}
        for (rival, _, name), latency in zip(pairs, timed, strict=True)
    ]
    machine = dataclasses.asdict(measure_machine()) | {"threads": torch.get_num_threads()}
    engines = {rival.name: fingerprint(planner) for rival, planner in zip(rivals, planners, strict=True)}
    return {"rows": rows, "machine": machine, "fingerprints": engines}
