"""Sections that are mostly figures: diagnostics, ablations, comparisons of families, success by goal distance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import read_json
from ..tasks import get_task
from . import figures, picture_figures
from .comparison import comparison_tables, preset_words
from .findings import show_p
from .reproduction import CONTENTS, reproduction_sections
from .sections import Drawn, Section
from .tables import Evaluation

PROFILED = ("arrival-hold", "fixed-terminal")  # variants whose arrival profiles are drawn beside each other


def read_sections(folder: Path) -> list[Section]:
    """Of a folder that is no evaluation; none of one that is."""
    if (folder / CONTENTS).exists():
        return reproduction_sections(folder)
    if (folder / "ablation.json").exists():
        return [_ablation(read_json(folder / "ablation.json"))]
    if (folder / "comparison.json").exists():
        return [_comparison(read_json(folder / "comparison.json"))]
    if (folder / "imagined.json").exists():
        return [_diagnostics(folder)]
    return []


def reach_section(evaluations: list[Evaluation]) -> Section:
    """Of one planner and protocol at several goal offsets."""
    task = get_task(evaluations[0].task)
    figure = figures.reach(evaluations, task.title)
    budgets = ", ".join(f"{one.budget} for {one.offset} ahead" for one in evaluations)
    return Section(
        f"{task.title}: goal distance",
        f"The same planner; budgets in actions: {budgets}.",
        [],
        {f"{task.name}_reach": ("Success by distance of the goal", figure)},
    )


def _difference(row: dict[str, Any]) -> str:
    shown = [
        f"{100 * d['difference']:+.0f} ({100 * d['low']:+.0f} to {100 * d['high']:+.0f}), "
        f"{show_p(d['p_value'])} at m = {m}"
        for m, d in row["difference"].items()
    ]
    return f"{row['name']}: {', '.join(shown)}"


def _ablation(table: dict[str, Any]) -> Section:
    name = get_task(table["task"]).title
    drawn: Drawn = {f"{table['task']}_ablation": ("What each part contributes", figures.hold_ablation(table, name))}
    for row in table["variants"]:
        if row["name"] in PROFILED:
            profile = figures.arrival_profiles(row, f"{name}, {row['name']}")
            drawn[f"{table['task']}_arrival_{row['name']}"] = (f"When plans arrive: {row['name']}", profile)
    about = (
        f"{table['trials']} trials of manifest {table['manifest'][:12]}, world {table['world'][:12]}, "
        f"{table['steps']} training steps each. Paired differences to {table['reference']} in points (95 % bootstrap "
        "interval; p by McNemar's exact test, over several seeds by sign flips of each trial's mean difference; not "
        "corrected for multiple comparisons)."
    )
    others = [row for row in table["variants"] if row["name"] != table["reference"]]
    return Section(f"{name}: ablations", about, [_difference(row) for row in others], drawn)


def _comparison(report: dict[str, Any]) -> Section:
    title = get_task(report["task"]).title
    figure = figures.family_comparison(report, title)
    about = (
        f"{report['trials']} trials of manifest {report['manifest'][:12]} ({report['search_trials']} of searches), "
        f"data {report['data'][:12]}, {preset_words(report)}; the same for every family."
    )
    drawn: Drawn = {f"{report['task']}_families": ("Success and time by family and planner", figure)}
    return Section(f"{title}: world models", about, [], drawn, comparison_tables(report))


def _diagnostics(folder: Path) -> Section:
    imagined = read_json(folder / "imagined.json")
    task = imagined["task"]
    title = get_task(task).title
    drawn: Drawn = {
        f"{task}_arrival": ("When plans arrive, in imagination", figures.arrival_profiles(imagined, title)),
        f"{task}_depth": ("What each refinement buys, in imagination", figures.refinement_depth(imagined, title)),
    }
    about = f"{imagined['problems']} held-out problems, bundle {imagined['bundle'][:12]}, data {imagined['data'][:12]}"
    if (folder / "closed_loop.json").exists():
        executed = read_json(folder / "closed_loop.json")
        if executed["bundle"] != imagined["bundle"]:
            raise ValueError(f"{folder} holds tables of two bundles. Run `leplanner diagnose` again.")
        drawn[f"{task}_closed_loop"] = ("Where the closed loop settles", figures.closed_loop(executed, title))
        drawn[f"{task}_drift"] = ("Imagination against the environment", figures.drift(executed, title))
        about += f", {executed['trials']} trials of manifest {executed['manifest'][:12]}"
        if executed["decoder"]:
            about += (
                f"; decoder: {executed['decoder']['ratio']:.1f} times nearer to held-out frames than the mean frame, "
                f"PSNR {executed['decoder']['psnr']:.1f} dB, SSIM {executed['decoder']['ssim']:.4f}"
            )
    if (folder / "panels.npz").exists():
        drawn |= _panels(folder / "panels.npz", task, title)
    return Section(
        f"{title}: diagnostics", f"{about}. Distances are between latents, in the world model's own measure.", [], drawn
    )


def _panels(file: Path, task: str, title: str) -> Drawn:
    with np.load(file) as arrays:
        panels = {name: arrays[name] for name in arrays.files}
    drawn: Drawn = {}
    for number in range(len(panels["goal"])):
        panel = {name: values[number] for name, values in panels.items()}
        heading = f"{title}, trial {number}"
        rollout = picture_figures.decoder_rollout(panel, heading)
        refinement = picture_figures.decoder_refinement(panel, heading)
        drawn[f"{task}_rollout_{number}"] = ("One whole plan, executed", rollout)
        drawn[f"{task}_refinement_{number}"] = ("Where the plan ends after each refinement", refinement)
    return drawn
