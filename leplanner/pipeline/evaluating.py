"""An evaluation's folder: its manifest, its rows, its summary."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import folder_lock, write_json
from ..data.formats import open_episodes
from ..evaluation.manifest import Manifest, draw_manifest, load_manifest, save_manifest
from ..evaluation.metrics import HEADLINE
from ..evaluation.runner import EvaluationConfig, TrialRow, evaluate
from ..evaluation.summary import MethodSummary, plain, summarize
from ..execution.executor import Executor
from ..planner.planner import load_bundle
from ..tasks import Task
from ..worlds import WorldSpec
from .stage import Show, silent


@dataclass(frozen=True)
class Draw:
    """Which trials: drawn once from a dataset, and frozen in the folder."""

    trials: int = 200
    seed: int = 42
    protocol: str = "nontrivial"
    offset: int = 25
    budget: int = 50


@dataclass(frozen=True)
class Evaluated:
    manifest: Manifest
    rows: list[TrialRow]
    summaries: list[MethodSummary]
    report: dict[str, Any]  # as in summary.json

    @property
    def raised(self) -> list[TrialRow]:
        return [row for row in self.rows if row.error is not None]


def new_manifest(task: Task, data: Path, spec: WorldSpec, draw: Draw) -> Manifest:
    """With histories in the blocks and context of a world."""
    return draw_manifest(
        task,
        open_episodes(data, task, in_memory=False),
        draw.trials,
        draw.seed,
        draw.protocol,
        draw.offset,
        draw.budget,
        block=spec.actions.block,
        context=spec.context,
        simulator=task.simulate,
    )


def find_manifest(
    folder: Path, task: Task, data: Path, spec: WorldSpec, draw: Draw, bundle: Path | None = None
) -> Manifest:
    """The one that the folder has; else, without a dataset, the one that the bundle brings; else a new draw."""
    path, expected = folder / "manifest.json", (task.name, draw.protocol, draw.offset, draw.budget, draw.seed)
    if path.exists():
        return _frozen_manifest(path, expected, draw.trials)
    if bundle is not None and (bundle / "manifest.json").exists() and not data.exists():
        manifest = load_manifest(bundle / "manifest.json")
        if manifest.setting != expected or len(manifest.trials) < draw.trials:
            raise ValueError(
                f"{draw.trials} trials of {expected} were requested. There is no dataset at {data} to draw them from, "
                f"and {bundle} brings {len(manifest.trials)} of {manifest.setting}. Ask for those, or collect: "
                f"leplanner collect {task.name}"
            )
    else:
        manifest = new_manifest(task, data, spec, draw)
    with folder_lock(folder):
        if path.exists():  # drawing takes a while, and another process was faster
            return _frozen_manifest(path, expected, draw.trials)
        save_manifest(manifest, path)
    return manifest


def _frozen_manifest(path: Path, expected: tuple[str, str, int, int, int], trials: int) -> Manifest:
    manifest = load_manifest(path)
    if manifest.setting != expected or len(manifest.trials) < trials:
        raise ValueError(
            f"{path} holds {len(manifest.trials)} trials of {manifest.setting}; {trials} of {expected} "
            "were requested. Choose another --out."
        )
    return manifest


def evaluate_folder(
    task: Task,
    bundle: Path,
    data: Path,
    draw: Draw,
    config: EvaluationConfig,
    folder: Path,
    baselines: Path | None = None,
    reference: str | None = None,
    executor: Executor | None = None,
    show: Show = silent,
    title: str = "",
) -> Evaluated:
    """Run what is missing, and write OUT/summary.json. The reference is the first method unless it is named."""
    reference = reference or config.methods[0]
    if reference not in config.methods:
        raise ValueError(f"The reference {reference!r} is not among the methods {', '.join(config.methods)}.")
    manifest = find_manifest(folder, task, data, load_bundle(bundle).world.spec, draw, bundle)
    with show(title or f"evaluate {task.name}", "trials") as update:
        solved: dict[str, list[bool]] = defaultdict(list)

        def on_row(row: TrialRow, done: int, total: int) -> None:
            if row.error is None:
                solved[f"{row.method} m={row.replan}"].append(bool(row.outcome[HEADLINE]))
            update(done, total, "  ".join(f"{name} {np.mean(won):.0%}" for name, won in solved.items()))

        rows = evaluate(bundle, folder / "manifest.json", config, folder / "rows.jsonl", baselines, executor, on_row)
    summaries = summarize(rows, reference)
    report = plain(summaries, task.name, reference, manifest.digest, config.settings, rows)
    write_json(folder / "summary.json", report)
    return Evaluated(manifest, rows, summaries, report)
