"""What the page's trial browser shows: every row of an evaluation, and the frames and plan traces of recorded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import read_lines
from ..evaluation.videos import Video, load_video
from ..tasks import get_task
from .pictures import data_uri, outlined, sprite
from .tables import Evaluation, counted_trials, find_video

COLUMNS = 8  # of executed frames in their picture
OUTCOMES = {"held": "reached and held", "left": "reached, not held", "missed": "not reached"}


def outcome(row: dict[str, Any]) -> str:
    """Which of OUTCOMES a line of rows.jsonl is."""
    return "held" if row["outcome"]["held"] else "left" if row["outcome"]["any"] else "missed"


def browsable(folder: Path, evaluation: Evaluation) -> list[dict[str, Any]]:
    """A plain dictionary a row, ready to be JSON; in the table's order of methods, then by trial."""
    task = get_task(evaluation.task)
    methods = {(row.method, row.replan): (place, row) for place, row in enumerate(evaluation.methods)}
    counted = {number: set(counted_trials(folder, number)) for number in {row.trials for row in evaluation.methods}}
    listed = []
    for row in read_lines(folder / "rows.jsonl"):
        if row["error"] is not None or (row["method"], row["replan"]) not in methods:
            continue
        place, method = methods[row["method"], row["replan"]]
        if row["trial"] not in counted[method.trials]:  # of a longer run, or raised for another method
            continue
        path = find_video(folder, evaluation, method, row["trial"])
        setting = f"{task.title}, {evaluation.protocol}, {evaluation.offset} ahead"
        about = {"task": setting, "method": method.label, "trial": row["trial"], "place": place}
        about |= {"outcome": outcome(row), "first": row["outcome"]["first_success"], "unit": task.error_unit}
        about |= {"error": _number(row["outcome"]["final_error"]), "video": None}
        if path is not None:
            about["video"] = _player_data(load_video(path), folder / "imagined" / path.name)
        listed.append(about)
    return sorted(listed, key=lambda about: (about["place"], about["trial"]))


def _number(value: float) -> float | None:
    """Three digits; JSON knows no NaN."""
    return float(f"{value:.3g}") if np.isfinite(value) else None


def _player_data(video: Video, imagined: Path) -> dict[str, Any]:
    """`imagined`: the file of decoded plan traces, if there is one."""
    trace = video.trace
    shown: dict[str, Any] = {
        "frames": sprite(outlined(video.frames, video.target), COLUMNS),
        "columns": COLUMNS,
        "goal": data_uri(video.goal[None], ".png"),
        "steps": video.steps.tolist(),
        "reached": video.reached[video.steps].tolist(),
        "errors": [_number(value) for value in video.error[video.steps]],
        "decided": trace.decided.tolist(),
        "distances": np.nan_to_num(np.round(trace.distances, 5)).tolist(),
        "imagined": None,
    }
    if imagined.exists():
        with np.load(imagined) as arrays:
            frames = arrays["frames"]  # (n, H, S, S, 3)
        shown["imagined"] = sprite(frames.reshape(-1, *frames.shape[2:]), frames.shape[1])
        shown["ahead"] = frames.shape[1]
    return shown
