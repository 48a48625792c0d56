"""What the page's player and its list of trials show: every row of an evaluation, and the frames and plan traces of
recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import read_lines
from ..evaluation.metrics import HOLD_STEPS
from ..evaluation.videos import Video, load_video
from ..tasks import get_task
from . import findings
from .pictures import data_uri, outlined, sprite, with_unit
from .tables import Evaluation, counted_trials, find_video

COLUMNS = 8  # of executed frames in their picture
LARGE = 4  # so many methods have room beside each other
OUTCOMES = {"held": "reached and held", "left": "reached, not held", "missed": "not reached"}


def outcome(row: dict[str, Any]) -> str:
    """Which of OUTCOMES a line of rows.jsonl is."""
    return "held" if row["outcome"]["held"] else "left" if row["outcome"]["any"] else "missed"


def browsable(folder: Path, evaluation: Evaluation) -> dict[str, Any]:
    """Ready to be JSON: the methods in the table's order, and by trial a row for each method that ran it."""
    task = get_task(evaluation.task)
    places = {(row.method, row.replan): place for place, row in enumerate(evaluation.methods)}
    counted = {number: set(counted_trials(folder, number)) for number in {row.trials for row in evaluation.methods}}
    trials: dict[int, dict[str, Any]] = {}
    for row in read_lines(folder / "rows.jsonl"):
        place = places.get((row["method"], row["replan"]))
        if row["error"] is not None or place is None:
            continue
        method = evaluation.methods[place]
        if row["trial"] not in counted[method.trials]:  # of a longer run, or raised for another method
            continue
        trial = trials.setdefault(row["trial"], {"trial": row["trial"], "goal": None, "rows": []})
        about = {"method": place, "outcome": outcome(row), "first": row["outcome"]["first_success"]}
        about |= {"error": _number(row["outcome"]["final_error"]), "video": None}
        path = find_video(folder, evaluation, method, row["trial"])
        if path is not None:
            video = load_video(path)
            trial["goal"] = data_uri(video.goal, ".png")
            about |= {"text": outcome_text(video, task.error_unit)}
            about["video"] = _player_data(video, folder / "imagined" / path.name)
        trial["rows"].append(about)
    for trial in trials.values():
        trial["rows"].sort(key=lambda about: about["method"])
    glance = findings.card(evaluation)
    main = glance.rows if glance and len(evaluation.methods) > LARGE else evaluation.methods  # others are drawn smaller
    return {
        "setting": f"{task.title}, {evaluation.protocol}, {evaluation.offset} ahead",
        "unit": task.error_unit,
        "methods": [
            {"title": row.title, "pace": row.pace, "label": row.label, "color": row.color, "main": row in main}
            for row in evaluation.methods
        ],
        "trials": [trials[number] for number in sorted(trials)],
    }


def outcome_text(video: Video, unit: str) -> str:
    reached = video.reached[1:]  # the start does not count
    away = f"{with_unit(video.error[-1], unit)} away at the end"
    if not reached.any():
        return f"not reached; {away}"
    first = int(np.argmax(reached)) + 1
    if reached[-HOLD_STEPS:].all():
        return f"reached at step {first}, there at the end"
    return f"reached at step {first}, did not stay; {away}"


def _number(value: float) -> float | None:
    """Three digits; JSON knows no NaN."""
    return float(f"{value:.3g}") if np.isfinite(value) else None


def _player_data(video: Video, imagined: Path) -> dict[str, Any]:
    """`imagined`: the file of decoded plan traces, if there is one."""
    trace = video.trace
    shown: dict[str, Any] = {
        "frames": sprite(outlined(video.frames, video.target), COLUMNS),
        "columns": COLUMNS,
        "steps": video.steps.tolist(),
        "reached": video.reached[video.steps].tolist(),
        "errors": [_number(value) for value in video.error[video.steps]],
        "decided": trace.decided.tolist(),
        "distances": np.nan_to_num(np.round(trace.distances.astype(float), 5)).tolist(),
        "imagined": None,
    }
    if imagined.exists():
        with np.load(imagined) as arrays:
            frames = arrays["frames"]  # (n, H, S, S, 3)
        shown["imagined"] = sprite(frames.reshape(-1, *frames.shape[2:]), frames.shape[1])
        shown["ahead"] = frames.shape[1]
    return shown
