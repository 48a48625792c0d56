"""One self-contained HTML page about evaluations, diagnostics and ablations: tables, figures, videos, and a browser of
all trials. Reads files only; no network."""

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
from ..control.methods import DEFAULT, METHODS, REQUIREMENTS, capability_table, methods_of
from ..evaluation.metrics import HEADLINE, HOLD_STEPS
from ..evaluation.videos import Video, load_video
from ..tasks import get_task
from . import figures, picture_figures
from .browser import OUTCOMES, browsable
from .pictures import FRAME_MS, REACHED, animation, data_uri, framed, with_unit
from .tables import Evaluation, MethodRow, counted_trials, find_video, metric_title, read_evaluation

STRIPS = 4  # videos of ours that are also laid out as strips
PROFILED = ("arrival-hold", "fixed-terminal")  # variants whose arrival profiles are drawn beside each other
MARKS = {"yes": "✓", "no": "✗", "partly": "◐"}


@dataclass(frozen=True)
class Clip:
    method: str
    title: str
    animation: str  # data URI
    still: str  # its last frame, for readers who prefer less motion
    outcome_text: str


@dataclass(frozen=True)
class TrialClips:
    trial: int
    goal: str  # data URI
    clips: list[Clip]


@dataclass(frozen=True)
class Headline:
    """What a reader must see first."""

    ours: MethodRow | None  # at the smallest m that was measured
    rarely: MethodRow | None  # at the largest, if that is another
    references: dict[str, MethodRow]  # floors and ceilings that were measured, by name


@dataclass(frozen=True)
class Picture:
    caption: str
    uri: str
    wide: bool = False


def write_page(folders: list[Path], out: Path, title: str = "leplanner", figure_folder: Path | None = None) -> Path:
    """`folders` are those that `leplanner evaluate`, `diagnose` and `ablate` made; figures are also kept in
    `figure_folder`, as SVG and PNG."""
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
        planner = {row.weights for row in evaluation.methods if row.role == "ours"}
        comparable[(evaluation.task, evaluation.protocol, *sorted(planner))].append(evaluation)
        videos = _videos(folder, evaluation)
        pictures = _pictures(evaluation_figures(evaluation) | video_figures(evaluation, videos), number, figure_folder)
        shown = {"e": evaluation, "task": get_task(evaluation.task), "trials": video_table(videos, evaluation)}
        measured.append(shown | {"pictures": pictures, "headline": headline(evaluation)})
        rows += browsable(folder, evaluation)
    for number, ((task, *_), evaluations) in enumerate(comparable.items(), start=len(folders) + 1):
        if len({evaluation.offset for evaluation in evaluations}) > 1:
            name = get_task(task).title
            drawn = {f"{task}_reach": ("Success by distance of the goal", figures.reach(evaluations, name))}
            pictures = _pictures(drawn, number, figure_folder)
            budgets = ", ".join(f"{one.budget} for {one.offset} ahead" for one in evaluations)
            about = f"The same planner; budgets in actions: {budgets}"
            drawn_sections.append({"title": f"{name}: goal distance", "pictures": pictures, "about": about})
    references = {name: METHODS.get(name).title for name in _references()}
    context = {
        "title": title,
        "sections": measured,
        "headline": HEADLINE,
        "headline_metrics": {name: metric_title(name) for name in (HEADLINE, figures.HELD)},
        "hold_steps": HOLD_STEPS,
        "references": {
            name: text for name, text in references.items() if any(name in s["headline"].references for s in measured)
        },
        "drawn": drawn_sections,
        "hex_reached": "#{:02x}{:02x}{:02x}".format(*REACHED),
        "rows_json": json.dumps(rows, allow_nan=False).replace("<", "\\u003c"),
        "row_count": len(rows),
        "outcomes": OUTCOMES,
        "frame_ms": FRAME_MS,
        "requirements": list(REQUIREMENTS.values()),
        "capabilities": capability_table(),
        "our_properties": [METHODS.get(name).properties for name in methods_of("ours")],
        "marks": MARKS,
    }
    with atomic_path(out) as temporary:
        temporary.write_text(template.render(**context))
    return out


def headline(evaluation: Evaluation) -> Headline:
    """Of ours, the method that controllers use by default, if it was measured."""
    ours = _ours({row.method for row in evaluation.methods})
    rows = sorted((row for row in evaluation.methods if row.method == ours), key=lambda row: row.replan)
    smallest = {row.method: row for row in sorted(evaluation.methods, key=lambda row: -row.replan)}
    return Headline(
        ours=rows[0] if rows else None,
        rarely=rows[-1] if len(rows) > 1 else None,
        references={name: smallest[name] for name in _references() if name in smallest},
    )


def _references() -> tuple[str, ...]:
    return (*methods_of("floor"), *methods_of("ceiling"))


def _ours(methods: Collection[str]) -> str | None:
    """Which of our methods to show where there is room for one."""
    measured = [name for name in (DEFAULT, *methods_of("ours")) if name in methods]
    return measured[0] if measured else None


def evaluation_figures(evaluation: Evaluation) -> dict[str, tuple[str, Any]]:
    """Name -> caption and figure."""
    title = get_task(evaluation.task).title
    drawn = {f"{evaluation.task}_success": ("Success with 95 % Wilson intervals", figures.success(evaluation, title))}
    if any(row.costs["transitions"] >= 1 for row in evaluation.methods):
        drawn[f"{evaluation.task}_cost"] = ("What a decision costs", figures.cost(evaluation, title))
    return drawn


def video_figures(evaluation: Evaluation, videos: dict[tuple[str, int, int], Video]) -> dict[str, tuple[str, Any]]:
    """Of our videos at the smallest m: strips of the first trials, and a trajectory where there is a floor plan."""
    task = get_task(evaluation.task)
    shown = _ours({name for name, _, _ in videos})
    replan = min((m for name, m, _ in videos if name == shown), default=None)
    ours = [(f"trial {n}", video) for (name, m, n), video in videos.items() if (name, m) == (shown, replan)][:STRIPS]
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
        path = picture_figures.trajectory(ours[0][1], task, f"{task.title}, {ours[0][0]}")
        drawn[f"{task.name}_trajectory"] = ("The trajectory over the floor plan, dots at replans", path)
    return drawn


def _difference(row: dict[str, Any]) -> str:
    shown = [
        f"{100 * d['difference']:+.0f} ({100 * d['low']:+.0f} to {100 * d['high']:+.0f}), "
        f"p = {d['p_value']:.2g} at m = {m}"
        for m, d in row["difference"].items()
    ]
    return f"{row['name']}: {', '.join(shown)}"


def other_section(folder: Path) -> tuple[str, dict[str, tuple[str, Any]], str] | None:
    """Of a folder that is no evaluation: its heading, figures by name with captions, and where its tables came from."""
    if (folder / "ablation.json").exists():
        table = read_json(folder / "ablation.json")
        name = get_task(table["task"]).title
        drawn = {f"{table['task']}_ablation": ("What each part contributes", figures.hold_ablation(table, name))}
        for row in table["variants"]:
            if row["name"] in PROFILED:
                profile = figures.arrival_profiles(row, f"{name}, {row['name']}")
                drawn[f"{table['task']}_arrival_{row['name']}"] = (f"When plans arrive: {row['name']}", profile)
        about = (
            f"{table['trials']} trials of manifest {table['manifest'][:12]}, world {table['world'][:12]}, "
            f"{table['steps']} training steps each. Paired differences to {table['variants'][0]['name']} in points "
            "(95 % bootstrap interval, exact McNemar p, not corrected for multiple comparisons): "
            + "; ".join(_difference(row) for row in table["variants"][1:])
        )
        return f"{name}: ablations", drawn, about
    if not (folder / "imagined.json").exists():
        return None
    imagined = read_json(folder / "imagined.json")
    task = imagined["task"]
    title = get_task(task).title
    drawn = {
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
                "Where the plan ends after each refinement",
                picture_figures.decoder_refinement(panel, heading),
            )
    return f"{title}: diagnostics", drawn, about


def _pictures(drawn: dict[str, tuple[str, Any]], number: int, folder: Path | None) -> list[Picture]:
    pictures = []
    for name, (caption, figure) in drawn.items():
        if folder is not None:
            figures.save(figure, folder, f"{number}_{name}")
        encoded = base64.b64encode(figures.rendered(figure, "svg")).decode()
        wide = figure.get_figwidth() > figures.COLUMN_IN
        pictures.append(Picture(caption, f"data:image/svg+xml;base64,{encoded}", wide))
    return pictures


def check_installed() -> None:
    try:
        import imageio.v3  # noqa: F401
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("A report needs jinja2, imageio and matplotlib: pip install 'leplanner[report]'") from error


def _videos(folder: Path, evaluation: Evaluation) -> dict[tuple[str, int, int], Video]:
    """By method, m and trial, in the table's order."""
    videos = {}
    for row in evaluation.methods:
        for trial in counted_trials(folder, row.trials):
            path = find_video(folder, evaluation, row, trial)
            if path is not None:
                videos[row.method, row.replan, trial] = load_video(path)
    return videos


def video_table(videos: dict[tuple[str, int, int], Video], evaluation: Evaluation) -> list[TrialClips]:
    """Every trial that was recorded, with the clips of all methods beside each other, in the table's order."""
    unit = get_task(evaluation.task).error_unit
    titles = {(row.method, row.replan): row.label for row in evaluation.methods}
    table = []
    for trial in sorted({trial for _, _, trial in videos}):
        shown = {(name, m): video for (name, m, n), video in videos.items() if n == trial}
        clips = [
            Clip(
                name, titles[name, m], animation(video), data_uri(framed(video)[-1:], ".png"), outcome_text(video, unit)
            )
            for (name, m), video in shown.items()
        ]
        table.append(TrialClips(trial, data_uri(next(iter(shown.values())).goal[None], ".png"), clips))
    return table


def outcome_text(video: Video, unit: str) -> str:
    reached = video.reached[1:]  # the start does not count
    away = f"{with_unit(video.error[-1], unit)} away at the end"
    if not reached.any():
        return f"not reached; {away}"
    first = int(np.argmax(reached)) + 1
    if reached[-HOLD_STEPS:].all():
        return f"reached at step {first}, there at the end"
    return f"reached at step {first}, did not stay; {away}"
