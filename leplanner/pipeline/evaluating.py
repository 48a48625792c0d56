"""An evaluation's folder: its manifest, its rows, its summary."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import atomic_path, folder_lock, write_json
from ..control.methods import METHODS
from ..data.formats import open_episodes
from ..evaluation.manifest import Manifest, draw_manifest, load_manifest, save_manifest
from ..evaluation.metrics import HEADLINE
from ..evaluation.protocols import PROTOCOLS
from ..evaluation.runner import EvaluationConfig, TrialRow, evaluate, method_names
from ..evaluation.summary import MethodSummary, plain, summarize
from ..evaluation.videos import video_path
from ..execution.executor import Executor
from ..planner.planner import load_bundle
from ..tasks import Task
from ..worlds import WorldSpec
from .stage import Show, silent

MANIFEST = "manifest.json"
GROWN = "manifest.grown.json"  # there only while a folder takes on more trials
Setting = tuple[str, str, int, int, int]  # Manifest.setting


@dataclass(frozen=True)
class Draw:
    """Which trials: drawn once from a dataset, and frozen in the folder."""

    trials: int = 200
    seed: int = 42
    protocol: str = "nontrivial"
    offset: int = 25
    budget: int = 50

    def setting(self, task: Task) -> Setting:
        return (task.name, self.protocol, self.offset, self.budget, self.seed)

    def serves(self, known: int) -> bool:
        """Whether a draw of so many trials holds these. Where a protocol's draws do not continue one another, it holds
        others unless it is as large."""
        return known == self.trials or (known > self.trials and PROTOCOLS.get(self.protocol).continues)

    def advice(self, known: int) -> str:
        fewer = PROTOCOLS.get(self.protocol).continues
        return f"Ask for --trials {known}{' or fewer' if fewer else ', all that were drawn together,'}"


@dataclass(frozen=True)
class Evaluated:
    manifest: Manifest
    rows: list[TrialRow]
    summaries: list[MethodSummary]
    report: dict[str, Any]  # as in summary.json

    @property
    def raised(self) -> list[TrialRow]:
        return [row for row in self.rows if row.error is not None]

    def require_all(self) -> None:
        """For results that must not leave a trial out."""
        if self.raised:
            raise ValueError(
                f"{len(self.raised)} trials raised an error ({self.raised[0].error}); run the same command to try "
                "them again."
            )


def new_manifest(task: Task, data: Path, spec: WorldSpec | None, draw: Draw) -> Manifest:
    """With histories in the blocks and context of a world; without any, and so for every world, if none is given."""
    episodes = open_episodes(data, task, in_memory=False)
    return draw_manifest(
        task,
        episodes,
        draw.trials,
        draw.seed,
        draw.protocol,
        draw.offset,
        draw.budget,
        block=spec.actions.block if spec else episodes.steps_per_row,
        context=spec.context if spec else 1,
        simulator=task.simulate,
    )


def find_manifest(
    folder: Path, task: Task, data: Path, spec: WorldSpec | None, draw: Draw, bundle: Path | None = None
) -> tuple[Manifest, str]:
    """The trials, and where they are from: those that the folder has; else those that the bundle, if one is given, was
    measured on, if they are of this protocol, offset, budget and seed; else a new draw from the dataset."""
    path, setting = folder / MANIFEST, draw.setting(task)
    brought = _brought_manifest(bundle)
    if path.exists():
        manifest = _frozen_manifest(path, task, draw)
        others = brought is not None and brought.setting == setting and brought.digest != manifest.digest
        return manifest, f"frozen in {path}" + (f"; {bundle} was measured on others" if others else "")
    if brought is not None and brought.setting == setting:
        if not draw.serves(len(brought.trials)):
            raise ValueError(
                f"{draw.trials} trials were requested; {bundle} brings {len(brought.trials)}. "
                f"{draw.advice(len(brought.trials))} or draw others from a dataset with --data, such as {data}."
            )
        manifest, source = brought, f"which {bundle} was measured on"
    elif brought is not None and not data.exists():
        raise ValueError(
            f"{draw.trials} trials of {setting} were requested. There is no dataset at {data} to draw them from, "
            f"and {bundle} brings {len(brought.trials)} of {brought.setting}. Ask for those, or collect: "
            f"leplanner collect {task.name}"
        )
    else:
        manifest, source = new_manifest(task, data, spec, draw), f"drawn from {data}"
    with folder_lock(folder):
        if path.exists():  # drawing takes a while, and another process was faster
            return _frozen_manifest(path, task, draw), f"frozen in {path}"
        save_manifest(manifest, path)
    return manifest, source


def _brought_manifest(bundle: Path | None) -> Manifest | None:
    return load_manifest(bundle / MANIFEST) if bundle is not None and (bundle / MANIFEST).exists() else None


def _frozen_manifest(path: Path, task: Task, draw: Draw) -> Manifest:
    manifest, setting = load_manifest(path), draw.setting(task)
    known = len(manifest.trials)
    if manifest.setting != setting:
        raise ValueError(
            f"{path} holds {known} trials of {manifest.setting}; {draw.trials} of {setting} were requested. Choose "
            "another --out."
        )
    if not draw.serves(known):
        raise ValueError(
            f"{path} holds {known} trials of {setting}; {draw.trials} were requested. {draw.advice(known)} or choose "
            "another --out."
        )
    return manifest


def grow_manifest(
    folder: Path, task: Task, data: Path, spec: WorldSpec | None, draw: Draw, bundle: Path | None = None
) -> None:
    """More trials for a folder that has some: the same draw, continued, where the protocol continues draws. The first
    trials do not depend on how many follow, so the folder becomes what it would have been had all been drawn at once,
    and its rows stay."""
    path = folder / MANIFEST
    if not path.exists() or (not (folder / GROWN).exists() and _is_enough(path, task, draw)):
        return
    with folder_lock(folder):
        if (folder / GROWN).exists():
            _take_on_grown(folder)  # what a killed process began
        if _is_enough(path, task, draw):
            return
        known, brought = load_manifest(path), _brought_manifest(bundle)
        if brought is not None and brought.setting == known.setting and len(brought.trials) >= draw.trials:
            grown, source = brought, bundle
        elif data.exists():
            grown, source = new_manifest(task, data, spec, draw), data
        else:
            raise ValueError(
                f"{draw.trials} trials were requested; {path} holds {len(known.trials)}, and there is no dataset at "
                f"{data} to draw more from. Ask for fewer --trials, or give the dataset with --data."
            )
        if (grown.data_digest, grown.trials[: len(known.trials)]) != (known.data_digest, known.trials):
            raise ValueError(
                f"{draw.trials} trials were requested; {path} holds {len(known.trials)}, which are not the first of "
                f"{source}'s: they are of other data or of another world's blocks. Choose another --out, or give the "
                "dataset they were drawn from with --data."
            )
        save_manifest(grown, folder / GROWN)
        _take_on_grown(folder)


def _is_enough(path: Path, task: Task, draw: Draw) -> bool:
    """Or none can be added: what does not fit is refused later."""
    known = load_manifest(path)
    continues = PROTOCOLS.get(draw.protocol).continues
    return known.setting != draw.setting(task) or len(known.trials) >= draw.trials or not continues


def _take_on_grown(folder: Path) -> None:
    """Videos and rows name the manifest they are of: they follow, and the manifest last. Each step may be repeated."""
    known, grown = (load_manifest(folder / name).digest for name in (MANIFEST, GROWN))
    rows = folder / "rows.jsonl"
    text = rows.read_text() if rows.exists() else ""
    for line in text.splitlines():
        try:
            row = TrialRow(**json.loads(line))
        except json.JSONDecodeError:  # half-written by a killed process; dropped when the evaluation continues
            continue
        trial, identity = (row.method, row.replan, row.trial), (row.seed, row.settings, row.weights)
        old, new = (video_path(folder, *trial, digest, *identity) for digest in (known, grown))
        for kept in (old, folder / "imagined" / old.name):
            if kept.exists():
                kept.replace(kept.with_name(new.name))
    if rows.exists():
        with atomic_path(rows) as temporary:
            temporary.write_text(text.replace(known, grown))
    (folder / GROWN).replace(folder / MANIFEST)


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
    named_data: bool = False,  # trials must be of `data`, also where the bundle brings its own
    shared: Path | None = None,  # a folder whose manifest it must be, whatever the bundle brings
    say: Callable[[str], None] = lambda text: None,  # told which trials are used
) -> Evaluated:
    """Run what is missing, and write OUT/summary.json. The reference is the first method unless it is named."""
    methods = method_names(config.methods)
    reference = METHODS.get(reference).name if reference else methods[0]
    if reference not in methods:
        raise ValueError(f"The reference {reference!r} is not among the methods {', '.join(methods)}.")
    spec, brings = load_bundle(bundle).world.spec, shared or (None if named_data else bundle)
    grow_manifest(folder, task, data, spec, draw, brings)
    manifest, source = find_manifest(folder, task, data, spec, draw, brings)
    if named_data and manifest.data_digest != (digest := open_episodes(data, task, in_memory=False).digest):
        raise ValueError(
            f"{folder / MANIFEST} was drawn from data {manifest.data_digest[:12]}, not from {data} ({digest[:12]}). "
            "Choose another --out, or leave --data out to use those trials."
        )
    if shared is not None and manifest.digest != load_manifest(shared / MANIFEST).digest:
        raise ValueError(
            f"{folder / MANIFEST} holds other trials than {shared / MANIFEST}, which all share. Delete {folder}, or "
            "choose another --out."
        )
    say(f"{task.name}: {draw.trials} of {len(manifest.trials)} trials of manifest {manifest.digest[:12]}, {source}")
    with show(title or f"evaluate {task.name}", "trials") as update:
        solved: dict[str, list[bool]] = defaultdict(list)

        def on_row(row: TrialRow, done: int, total: int) -> None:
            if row.error is None:
                solved[f"{row.method} m={row.replan}"].append(bool(row.outcome[HEADLINE]))
            update(done, total, "  ".join(f"{name} {np.mean(won):.0%}" for name, won in solved.items()))

        rows = evaluate(bundle, folder / MANIFEST, config, folder / "rows.jsonl", baselines, executor, on_row)
    summaries = summarize(rows, reference)
    report = plain(summaries, task.name, reference, manifest.digest, config.settings, rows)
    write_json(folder / "summary.json", report)
    return Evaluated(manifest, rows, summaries, report)
