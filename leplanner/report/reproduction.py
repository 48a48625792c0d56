"""What `leplanner reproduce` left on disk, as sections of the page: each part beside what the paper prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import read_json
from ..evaluation.videos import load_video
from ..tasks import Task, get_task
from . import figures, picture_figures, reproduction_figures
from .comparison import Sheet
from .sections import Drawn, Section
from .tables import read_evaluation

CONTENTS = "reproduction.json"

Drawer = Callable[[Task, Path, dict[str, Any]], list[Any]]  # (task, the reproduction's folder, data) -> figures


def reproduction_sections(folder: Path) -> list[Section]:
    contents = read_json(folder / CONTENTS)
    task = get_task(contents["task"])
    about = (
        f"The paper's experiment on {task.title} at {contents['scale']} scale, each part beside what the paper prints."
    )
    first = Section(f"{task.title}: the paper's experiment", about, contents["differs"], {})
    return [first, *(_part(task, folder, read_json(folder / f"{name}.json")) for name in contents["parts"])]


def _part(task: Task, folder: Path, facts: dict[str, Any]) -> Section:
    drawn: Drawn = {}
    for number, one in enumerate(facts.get("drawings", [])):
        for place, figure in enumerate(DRAWERS[one["kind"]](task, folder, one["data"])):
            drawn[f"{facts['name']}_{number}_{place}_{one['kind']}"] = (one["caption"], figure)
    rows = [tuple(row[name] for name in ("what", "paper", "here", "where")) for row in facts["beside"]]
    printed = Sheet(
        "Beside the paper",
        "The paper's figure and ours; empty where the paper prints none",
        ("what",),
        ("paper", "here", "where in the paper"),
        [rows],
    )
    others = [
        Sheet("", one["title"], tuple(one["words"]), tuple(one["figures"]), [[tuple(row) for row in one["rows"]]])
        for one in facts.get("sheets", [])
    ]
    lines = [*facts.get("notes", []), f"Made by `{facts['command']}`."]
    return Section(facts["title"], facts["about"], lines, drawn, [printed, *others])


def _environments(task: Task, folder: Path, data: dict[str, Any]) -> list[Any]:
    with np.load(folder / data["file"]) as frames:
        return [reproduction_figures.environments(dict(frames), task.title)]


def _imagined(task: Task, folder: Path, data: dict[str, Any]) -> list[Any]:
    with np.load(folder / data["file"]) as arrays:
        panels = dict(arrays)
    drawn = []
    for number in range(len(panels["goal"])):
        one = {name: each[number] for name, each in panels.items()}
        title = f"{task.title}, trial {number}"
        drawn += [picture_figures.decoder_rollout(one, title), picture_figures.decoder_refinement(one, title)]
    return drawn


def _strips(task: Task, folder: Path, data: dict[str, Any]) -> list[Any]:
    videos = [
        (f"trial {one['trial']}, {'reached' if one['reached'] else 'missed'}", load_video(folder / one["file"]))
        for one in data["files"]
    ]
    return [picture_figures.episode_strips(videos, task.error_unit, f"{task.title}, executed at m = 1")]


def _trajectory(task: Task, folder: Path, data: dict[str, Any]) -> list[Any]:
    if task.plan_view is None:
        return []
    first = data["files"][0]
    return [
        picture_figures.trajectory(load_video(folder / first["file"]), task, f"{task.title}, trial {first['trial']}")
    ]


DRAWERS: dict[str, Drawer] = {
    "environments": _environments,
    "imagined": _imagined,
    "strips": _strips,
    "trajectory": _trajectory,
    "success": lambda task, folder, data: [figures.success(read_evaluation(folder / data["folder"]), task.title)],
    "steps": lambda task, folder, data: [reproduction_figures.steps(data, task.title)],
    "wall-clock": lambda task, folder, data: [reproduction_figures.wall_clock(data, task.title)],
    "objectives": lambda task, folder, data: [reproduction_figures.objectives(data, task.title)],
    "settling": lambda task, folder, data: [reproduction_figures.settling(data, task.title)],
    "arrival": lambda task, folder, data: [figures.arrival_profiles(data, f"{task.title}, {data['name']}")],
    "depth": lambda task, folder, data: [figures.refinement_depth(data, f"{task.title}, {data['name']}")],
}
