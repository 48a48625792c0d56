"""One self-contained HTML page about evaluations, diagnostics and ablations: tables, figures, films, and a browser of all trials.
Reads files only; no torch, no network."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import atomic_path, read_json
from ..evaluation.films import Film, film_path, load_film
from ..evaluation.metrics import HOLD_STEPS
from ..evaluation.properties import DEFAULT, OURS, REQUIREMENTS, families
from ..tasks import get_task
from . import figures, picture_figures
from .browser import OUTCOMES, browsable
from .pictures import FRAME_MS, REACHED, animation, data_uri, framed
from .tables import Evaluation, MethodRow, counted_trials, read_evaluation

STRIPS = 4  # films of ours that are also laid out as strips
FLOORS = ("random", "nothing")
PROFILED = ("arrival-hold", "fixed-terminal")  # variants whose arrival profiles are drawn beside each other
MARKS = {"yes": "✓", "no": "✗", "partly": "◐"}


@dataclass(frozen=True)
class Clip:
    method: str
    title: str
    animation: str  # data URI
    still: str  # its last frame, for those who asked for less motion
    verdict: str


@dataclass(frozen=True)
class TrialClips:
    trial: int
    goal: str  # data URI
    clips: list[Clip]


@dataclass(frozen=True)
class Picture:
    caption: str
    uri: str
    wide: bool = False


def write_page(folders: list[Path], out: Path, title: str = "leplanner", figure_folder: Path | None = None) -> Path:
    """`folders` are those that `leplanner evaluate`, `diagnose` and `ablate` made; figures are also kept in `figure_folder`, as
    SVG and PNG."""
    check_installed()
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string((Path(__file__).parent / "page.html.j2").read_text())
    measured, drawn_sections, rows = [], [], []
    comparable: dict[tuple[str, ...], list[Evaluation]] = defaultdict(list)  # one planner, one protocol
    for number, folder in enumerate(folders, start=1):
        section = other_section(folder)
        if section is not None:
            heading, drawn, about = section
            pictures = _pictures(drawn, number, figure_folder)
            drawn_sections.append({"title": heading, "pictures": pictures, "about": about})
            continue
        evaluation = read_evaluation(folder)
        planner = {row.weights for row in evaluation.methods if row.method in OURS}
        comparable[(evaluation.task, evaluation.protocol, *sorted(planner))].append(evaluation)
        films = _films(folder, evaluation)
        pictures = _pictures(evaluation_figures(evaluation) | film_figures(evaluation, films), number, figure_folder)
        section = {"e": evaluation, "task": get_task(evaluation.task), "trials": film_table(films, evaluation)}
        measured.append(section | {"pictures": pictures, "headline": headline(evaluation)})
        rows += browsable(folder, evaluation)
    for number, ((task, *_), evaluations) in enumerate(comparable.items(), start=len(folders) + 1):
        if len({evaluation.offset for evaluation in evaluations}) > 1:
            name = get_task(task).title
            drawn = {f"{task}_reach": ("How far planners reach", figures.reach(evaluations, name))}
            pictures = _pictures(drawn, number, figure_folder)
            budgets = ", ".join(f"{one.budget} for {one.offset} ahead" for one in evaluations)
            about = f"The same planner; budgets in actions: {budgets}"
            drawn_sections.append({"title": f"{name}: reach", "pictures": pictures, "about": about})
    shown = {
        "title": title,
        "ours": OURS,
        "sections": measured,
        "drawn": drawn_sections,
        "hex_reached": "#{:02x}{:02x}{:02x}".format(*REACHED),
        "rows_json": json.dumps(rows, allow_nan=False).replace("<", "\\u003c"),
        "row_count": len(rows),
        "outcomes": OUTCOMES,
        "frame_ms": FRAME_MS,
        "requirements": list(REQUIREMENTS.values()),
        "families": [(one.family, [MARKS[mark] for mark in one.marks], one.marks) for one in families()],
    }
    with atomic_path(out) as temporary:
        temporary.write_text(template.render(**shown))
    return out


def headline(evaluation: Evaluation) -> dict[str, MethodRow | None]:
    """Ours at both intervals, the floors and the ceiling: what a reader must see first. Of ours, what controllers do unless told
    otherwise, if it was measured."""
    rows = {(row.method, row.replan): row for row in evaluation.methods}
    first = {row.method: row for row in reversed(evaluation.methods)}  # of each method its smallest m
    ours = _ours(first)
    found = {"ours": rows.get((ours, 1)), "rarely": rows.get((ours, 5))}
    return found | {name: first.get(name) for name in (*FLOORS, "replay")}


def _ours(methods: Collection[str]) -> str:
    return DEFAULT if DEFAULT in methods else OURS[0]


def evaluation_figures(evaluation: Evaluation) -> dict[str, tuple[str, Any]]:
    """Name -> caption and figure."""
    title = get_task(evaluation.task).title
    found = {f"{evaluation.task}_success": ("Success with 95 % Wilson intervals", figures.success(evaluation, title))}
    if any(row.costs["rows"] >= 1 for row in evaluation.methods):
        found[f"{evaluation.task}_cost"] = ("What a decision costs", figures.cost(evaluation, title))
    return found


def film_figures(evaluation: Evaluation, films: dict[tuple[str, int, int], Film]) -> dict[str, tuple[str, Any]]:
    """Of our films at the smallest m: strips of the first trials, and the first one's way where there is a floor plan."""
    task = get_task(evaluation.task)
    shown = _ours({name for name, _, _ in films})
    replan = min((m for name, m, _ in films if name == shown), default=None)
    ours = [(f"trial {n}", film) for (name, m, n), film in films.items() if (name, m) == (shown, replan)][:STRIPS]
    if not ours:
        return {}
    title = f"{task.title}, executed, m = {replan}"
    drawn = {
        f"{task.name}_strips": (
            "Executed episodes, the target outlined",
            picture_figures.episode_strips(ours, task.error_unit, title),
        )
    }
    if task.plan_view is not None:
        way = picture_figures.trajectory(ours[0][1], task, f"{task.title}, {ours[0][0]}")
        drawn[f"{task.name}_trajectory"] = ("The way over the floor plan, dots where it was planned again", way)
    return drawn


def _difference(row: dict[str, Any]) -> str:
    shown = [
        f"{100 * d['difference']:+.0f} ({100 * d['low']:+.0f} to {100 * d['high']:+.0f}), p = {d['p_value']:.2g} at m = {m}"
        for m, d in row["difference"].items()
    ]
    return f"{row['name']}: {', '.join(shown)}"


def other_section(folder: Path) -> tuple[str, dict[str, tuple[str, Any]], str] | None:
    """Of a folder that is no evaluation: its heading, figures by name with captions, and where its tables came from."""
    if (folder / "ablation.json").exists():
        table = read_json(folder / "ablation.json")
        name = get_task(table["task"]).title
        drawn = {f"{table['task']}_ablation": ("Which part does the work", figures.hold_ablation(table, name))}
        for row in table["variants"]:
            if row["name"] in PROFILED:
                profile = figures.arrival_profiles(row, f"{name}, {row['name']}")
                drawn[f"{table['task']}_arrival_{row['name']}"] = (f"When plans arrive: {row['name']}", profile)
        about = (
            f"{table['trials']} trials of manifest {table['manifest'][:12]}, world {table['world'][:12]}, {table['steps']} training steps each. "
            f"Paired differences to {table['variants'][0]['name']} in points (95 % bootstrap interval, exact McNemar p, not corrected for "
            f"their number): {'; '.join(_difference(row) for row in table['variants'][1:])}"
        )
        return f"{name}: ablations", drawn, about
    if not (folder / "imagined.json").exists():
        return None
    imagined = read_json(folder / "imagined.json")
    task = imagined["task"]
    title = get_task(task).title
    drawn = {
        f"{task}_arrival": ("When plans arrive, in imagination", figures.arrival_profiles(imagined, title)),
        f"{task}_depth": ("What each correction buys, in imagination", figures.refinement_depth(imagined, title)),
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
                f"; decoder: {executed['decoder']['ratio']:.1f} times nearer to held-out frames than the mean frame, PSNR "
                f"{executed['decoder']['psnr']:.1f} dB, SSIM {executed['decoder']['ssim']:.4f}"
            )
    if (folder / "panels.npz").exists():
        with np.load(folder / "panels.npz") as arrays:
            panels = {name: arrays[name] for name in arrays.files}
        for number in range(len(panels["goal"])):
            panel = {name: values[number] for name, values in panels.items()}
            heading = f"{title}, trial {number}"
            drawn[f"{task}_rollout_{number}"] = (
                "One whole plan, executed",
                picture_figures.decoder_rollout(panel, heading),
            )
            drawn[f"{task}_refinement_{number}"] = (
                "Where the plan ends after each correction",
                picture_figures.decoder_refinement(panel, heading),
            )
    return f"{title}: how it thinks", drawn, about


def _pictures(drawn: dict[str, tuple[str, Any]], number: int, folder: Path | None) -> list[Picture]:
    made = []
    for name, (caption, figure) in drawn.items():
        if folder is not None:
            figures.save(figure, folder, f"{number}_{name}")
        encoded = base64.b64encode(figures.rendered(figure, "svg")).decode()
        wide = figure.get_figwidth() > figures.COLUMN_IN
        made.append(Picture(caption, f"data:image/svg+xml;base64,{encoded}", wide))
    return made


def check_installed() -> None:
    try:
        import imageio.v3  # noqa: F401
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("A report needs jinja2, imageio and matplotlib: pip install 'leplanner[report]'") from error


def _films(folder: Path, evaluation: Evaluation) -> dict[tuple[str, int, int], Film]:
    """By method, m and trial, in the table's order."""
    found = {}
    for row in evaluation.methods:
        settings = (evaluation.manifest, evaluation.seed, evaluation.settings, row.weights)
        for trial in counted_trials(folder, row.trials):
            path = film_path(folder, row.method, row.replan, trial, *settings)
            if path.exists():
                found[row.method, row.replan, trial] = load_film(path)
    return found


def film_table(films: dict[tuple[str, int, int], Film], evaluation: Evaluation) -> list[TrialClips]:
    """Every trial that was filmed, with the clips of all methods beside each other, in the table's order."""
    unit = get_task(evaluation.task).error_unit
    titles = {(row.method, row.replan): f"{row.title}, {row.pace}" for row in evaluation.methods}
    table = []
    for trial in sorted({trial for _, _, trial in films}):
        shown = {(name, m): film for (name, m, n), film in films.items() if n == trial}
        clips = [
            Clip(name, titles[name, m], animation(film), data_uri(framed(film)[-1:], ".png"), verdict(film, unit))
            for (name, m), film in shown.items()
        ]
        table.append(TrialClips(trial, data_uri(next(iter(shown.values())).goal[None], ".png"), clips))
    return table


def verdict(film: Film, unit: str) -> str:
    reached = film.reached[1:]  # the start does not count
    if not reached.any():
        return f"not reached; {film.error[-1]:.2g} {unit} away at the end"
    first = int(np.argmax(reached)) + 1
    if reached[-HOLD_STEPS:].all():
        return f"reached at step {first}, there at the end"
    return f"reached at step {first}, did not stay; {film.error[-1]:.2g} {unit} away at the end"
