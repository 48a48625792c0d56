"""One self-contained HTML page about evaluations, diagnostics and ablations: who won, tables, figures, and a player of
the recorded trials. Reads files only; no network."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from ..artifacts import atomic_path
from ..control.methods import METHODS, REQUIREMENTS, capability_table, methods_of
from ..evaluation.metrics import HEADLINE, METRICS
from ..evaluation.videos import Video, load_video
from ..tasks import get_task
from . import figures, findings, picture_figures
from .browser import OUTCOMES, browsable
from .figure_sections import reach_section, read_sections
from .pictures import FRAME_MS
from .sections import Drawn, to_pictures
from .tables import Evaluation, counted_trials, find_video, read_evaluation

STRIPS = 4  # videos of ours that are also laid out as strips
MARKS = {"yes": "✓", "no": "✗", "partly": "◐"}
COSTS = {  # column -> its title, and the cost that it shows
    "transitions_per_plan": ("transitions per plan", "transitions"),
    "plan_ms": ("plan, ms", "plan_ms"),
    "encode_ms": ("encode, ms", "encode_ms"),
}


def write_page(folders: list[Path], out: Path, title: str = "leplanner", figure_folder: Path | None = None) -> Path:
    """`folders` are those that `leplanner evaluate`, `diagnose`, `ablate`, `compare` and `reproduce` made; figures are
    also kept in `figure_folder`, as SVG and PNG."""
    check_installed()
    measured, others, data = [], [], []
    comparable: dict[tuple[str, ...], list[Evaluation]] = defaultdict(list)  # one planner, one protocol
    for number, folder in enumerate(folders, start=1):
        sections = read_sections(folder)
        others += [(section, to_pictures(section.drawn, number, figure_folder)) for section in sections]
        if sections:
            continue
        evaluation = read_evaluation(folder)
        planner = {row.weights for row in evaluation.methods if row.role == "ours"}
        comparable[(evaluation.task, evaluation.protocol, *sorted(planner))].append(evaluation)
        drawn = evaluation_figures(evaluation) | video_figures(evaluation, _our_videos(folder, evaluation))
        data.append(browsable(folder, evaluation))
        measured.append(
            _task_section(evaluation)
            | {"pictures": to_pictures(drawn, number, figure_folder)}
            | {"recorded": any(trial["goal"] for trial in data[-1]["trials"])}
        )
    for number, evaluations in enumerate(comparable.values(), start=len(folders) + 1):
        if len({evaluation.offset for evaluation in evaluations}) > 1:
            section = reach_section(evaluations)
            others.append((section, to_pictures(section.drawn, number, figure_folder)))
    evaluations = [section["e"] for section in measured]
    context = {
        "title": title,
        "headline": findings.headline(evaluations),
        "sections": measured,
        "card_metrics": {HEADLINE: "reached", figures.HELD: "and held"},
        "others": others,
        "glossary": _glossary(evaluations),
        "data_json": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        "row_count": sum(len(trial["rows"]) for one in data for trial in one["trials"]),
        "outcomes": OUTCOMES,
        "frame_ms": FRAME_MS,
        "requirements": list(REQUIREMENTS.values()),
        "capabilities": capability_table(),
        "our_properties": [METHODS.get(name).properties for name in methods_of("ours")],
        "marks": MARKS,
    }
    with atomic_path(out) as temporary:
        temporary.write_text(_template().render(**context), encoding="utf-8")
    return out


def check_installed() -> None:
    try:
        import imageio.v3  # noqa: F401
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("A report needs jinja2, imageio and matplotlib: pip install 'leplanner[report]'") from error


def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["rate"] = findings.count_or_rate
    return environment.get_template("page.html.j2")


def _task_section(evaluation: Evaluation) -> dict[str, Any]:
    """What the page shows of an evaluation besides figures and videos; costs that no method has are left out."""
    return {
        "e": evaluation,
        "task": get_task(evaluation.task),
        "card": findings.card(evaluation),
        "comparisons": findings.comparisons(evaluation),
        "costs": {
            column: title
            for column, (title, cost) in COSTS.items()
            if any(float(f"{row.costs[cost]:.1f}") for row in evaluation.methods)
        },
    }


def _glossary(evaluations: list[Evaluation]) -> dict[str, str]:
    """The words of the tables, in the order in which they appear; nothing that was not measured."""
    if not evaluations:
        return {}
    measured = {name for evaluation in evaluations for name in evaluation.metrics}
    words = {m.title: m.about for m in METRICS.values() if m.name in measured and m.about}
    if any(row.replan for evaluation in evaluations for row in evaluation.methods):
        words["m"] = "Blocks of actions that are executed before planning again."
    if any(row.costs["transitions"] for evaluation in evaluations for row in evaluation.methods):
        words["transitions"] = "Steps that the world model imagines for one plan: what planning costs on any machine."
    words["decision"] = "Encoding the camera frame and planning; median milliseconds."
    if any(row.role in ("floor", "ceiling") for evaluation in evaluations for row in evaluation.methods):
        words["floors and ceiling"] = (
            "Random actions and no-op show what luck reaches; replaying the data's own actions shows what the data can."
        )
    return words


def evaluation_figures(evaluation: Evaluation) -> Drawn:
    """Of few trials no intervals, and no costs where nothing can be compared."""
    title = get_task(evaluation.task).title
    drawn: Drawn = {}
    if max(row.trials for row in evaluation.methods) >= findings.FEW:
        caption = "Success with 95 % Wilson intervals"
        drawn[f"{evaluation.task}_success"] = (caption, figures.success(evaluation, title))
    if any(row.costs["transitions"] >= 1 for row in evaluation.methods):
        drawn[f"{evaluation.task}_cost"] = ("What a decision costs", figures.cost(evaluation, title))
    return drawn


def video_figures(evaluation: Evaluation, videos: list[tuple[int, Video]]) -> Drawn:
    """Of our videos, by trial: strips of the first ones, and a trajectory where there is a floor plan."""
    if not videos:
        return {}
    task = get_task(evaluation.task)
    ours = [(f"trial {trial}", video) for trial, video in videos[:STRIPS]]
    strips = picture_figures.episode_strips(ours, task.error_unit, f"{task.title}, executed")
    drawn: Drawn = {f"{task.name}_strips": ("Executed episodes, the target outlined", strips)}
    if task.plan_view is not None:
        path = picture_figures.trajectory(ours[0][1], task, f"{task.title}, {ours[0][0]}")
        drawn[f"{task.name}_trajectory"] = ("The trajectory over the floor plan, dots at replans", path)
    return drawn


def _our_videos(folder: Path, evaluation: Evaluation) -> list[tuple[int, Video]]:
    """Of the row that stands for us on the page."""
    row = findings.our_row(evaluation)
    if row is None:
        return []
    paths = {trial: find_video(folder, evaluation, row, trial) for trial in counted_trials(folder, row.trials)}
    return [(trial, load_video(path)) for trial, path in paths.items() if path is not None]
