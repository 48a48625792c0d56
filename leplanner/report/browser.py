"""What the page's trial browser shows: every row of an evaluation, and of those that were filmed the frames and thoughts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import read_lines
from ..evaluation.films import Film, film_path, load_film
from ..tasks import get_task
from .pictures import data_uri, outlined, sprite
from .tables import Evaluation, counted_trials

COLUMNS = 8  # of executed frames in their picture
OUTCOMES = {"held": "reached and held", "left": "reached, not held", "missed": "not reached"}


def outcome(row: dict[str, Any]) -> str:
    return "held" if row["success_held"] else "left" if row["success_any"] else "missed"


def browsable(folder: Path, evaluation: Evaluation) -> list[dict[str, Any]]:
    """A plain dictionary a row, ready to be JSON; in the table's order of methods, then by trial."""
    task = get_task(evaluation.task)
    methods = {(row.method, row.replan): (place, row) for place, row in enumerate(evaluation.methods)}
    counted = {number: set(counted_trials(folder, number)) for number in {row.trials for row in evaluation.methods}}
    found = []
    for row in read_lines(folder / "rows.jsonl"):
        if row["error"] is not None or (row["method"], row["replan"]) not in methods:
            continue
        place, method = methods[row["method"], row["replan"]]
        if row["trial"] not in counted[method.trials]:  # of a longer run, or raised for another method
            continue
        settings = (evaluation.manifest, evaluation.seed, evaluation.settings, method.weights)
        path = film_path(folder, row["method"], row["replan"], row["trial"], *settings)
        setting = f"{task.title}, {evaluation.protocol}, {evaluation.offset} ahead"
        about = {"task": setting, "method": f"{method.title}, {method.pace}", "trial": row["trial"], "place": place}
        about |= {"outcome": outcome(row), "first": row["first_success"], "unit": task.error_unit}
        about |= {"error": _number(row["final_error"]), "film": None}
        if path.exists():
            about["film"] = _played(load_film(path), folder / "imagined" / path.name)
        found.append(about)
    return sorted(found, key=lambda about: (about["place"], about["trial"]))


def _number(value: float) -> float | None:
    """Three digits; JSON knows no NaN."""
    return float(f"{value:.3g}") if np.isfinite(value) else None


def _played(film: Film, imagined: Path) -> dict[str, Any]:
    thoughts = film.thoughts
    shown: dict[str, Any] = {
        "frames": sprite(outlined(film.frames, film.target), COLUMNS),
        "columns": COLUMNS,
        "goal": data_uri(film.goal[None], ".png"),
        "steps": film.steps.tolist(),
        "reached": film.reached[film.steps].tolist(),
        "errors": [_number(value) for value in film.error[film.steps]],
        "decided": thoughts.decided.tolist(),
        "distances": np.nan_to_num(np.round(thoughts.distances, 5)).tolist(),
        "imagined": None,
    }
    if imagined.exists():
        with np.load(imagined) as arrays:
            frames = arrays["frames"]  # (n, H, S, S, 3)
        shown["imagined"] = sprite(frames.reshape(-1, *frames.shape[2:]), frames.shape[1])
        shown["ahead"] = frames.shape[1]
    return shown
