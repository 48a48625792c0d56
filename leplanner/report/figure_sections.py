"""Sections that are mostly figures: diagnostics, ablations, comparisons of families, success by goal distance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import read_json
from ..tasks import get_task
from . import figures, picture_figures
from .comparison import Sheet, comparison_tables, preset_words
from .findings import show_p
from .tables import Evaluation

PROFILED = ("arrival-hold", "fixed-terminal")  # variants whose arrival profiles are drawn beside each other
Drawn = dict[str, tuple[str, Any]]  # name -> caption and figure


@dataclass(frozen=True)
class Picture:
    caption: str
    svg: str  # an element to stand in the page, in the page's own colors
    wide: bool = False


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    lines: list[str]  # what the figures do not show
    drawn: Drawn
    tables: Sequence[Sheet] = ()


def read_section(folder: Path) -> Section | None:
    """Of a folder that is no evaluation."""
    if (folder / "ablation.json").exists():
        return _ablation(read_json(folder / "ablation.json"))
    if (folder / "comparison.json").exists():
        return _comparison(read_json(folder / "comparison.json"))
    if (folder / "imagined.json").exists():
        return _diagnostics(folder)
    return None


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


def to_pictures(drawn: Drawn, number: int, folder: Path | None) -> list[Picture]:
    """Figures as elements of section `number`; also kept in `folder`, as SVG and PNG."""
    pictures = []
    for name, (caption, figure) in drawn.items():
        if folder is not None:
            figures.save(figure, folder, f"{number}_{name}")
        svg = inline(figures.rendered(figure, "svg").decode(), f"f{number}-{name}-")
        pictures.append(Picture(caption, svg, figure.get_figwidth() > figures.COLUMN_IN))
    return pictures


def inline(svg: str, prefix: str) -> str:
    """An SVG file as an element: ink and paper are the page's, so that the dark suits it too, and ids are unique."""
    element = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    element = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", element)
    element = element.replace("#000000", "currentColor").replace("#ffffff", "var(--surface)")
    return element.replace("<svg", '<svg aria-hidden="true"', 1)


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
