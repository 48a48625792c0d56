"""Draws the figures of the results pages from the shipped bundles' evaluations and from the pages' own tables:
python docs/make_result_figures.py"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from drawing import OUT, Drawing, axes, write_figures

ROOT = Path(__file__).parent.parent
TASKS = {"tworoom": "TwoRoom", "reacher": "Reacher", "pusht": "PushT", "cube": "Cube"}
METHODS = {  # (method, m): title, color
    ("leplanner-reuse", 1): ("LePlanner, m = 1", "ours"),
    ("leplanner-reuse", 5): ("LePlanner, m = 5", "ours"),
    ("gcidm", 0): ("GC-IDM", "bad"),
    ("random", 1): ("random", "soft"),
    ("replay", 1): ("replayed data", "soft"),
}


def success(theme: dict[str, str]) -> Drawing:
    """Any-time success (dots with intervals) and held success (rings) of each method, a panel for each task."""
    d = Drawing(880, 268, theme, "Success of LePlanner, GC-IDM, random actions and replayed data on four tasks")
    left, w, gap, top, row = 138, 142, 44, 56, 32
    for i, (title, color) in enumerate(METHODS.values()):
        d.text(left - 14, top + row * (i + 0.5) + 5, title, color if color != "soft" else "ink", 13.5, "end")
    for panel, (task, name) in enumerate(TASKS.items()):
        x0 = left + panel * (w + gap)
        rows = {(r["method"], r["replan"]): r["rates"] for r in _evaluation(task)["methods"]}
        d.text(x0, top - 16, name, "ink", 15, "start", bold=True)
        for share in (0.0, 0.5, 1.0):
            d.path(f"M{x0 + w * share:g} {top}V{top + row * len(METHODS)}", "faint", 1.2)
            d.text(x0 + w * share, top + row * len(METHODS) + 18, f"{100 * share:.0f}", "soft", 12)
        for i, (key, (_, color)) in enumerate(METHODS.items()):
            y, any_time, held = top + row * (i + 0.5), rows[key]["any"], rows[key]["held"]
            d.path(f"M{x0 + w * any_time['low']:.1f} {y:g}H{x0 + w * any_time['high']:.1f}", color, 3)
            d.ring(x0 + w * held["value"], y, color)
            d.dot(round(x0 + w * any_time["value"], 1), y, color, 5)
    d.text(
        left,
        260,
        "success in %; dot and line: any time, with its 95 % interval; ring: held for the last 5 steps",
        "soft",
        13,
        "start",
    )
    return d


def arrival(theme: dict[str, str]) -> Drawing:
    """The table of the page as curves, one for each q; a dot is where the data arrived."""
    d = Drawing(
        880, 336, theme, "Imagined distance by block: arrival-and-hold is at the goal from q on, fixed-terminal at 5"
    )
    top, w, h = 60, 340, 200

    def height(value: float) -> float:
        return top + h * (2.2 - math.log10(value)) / 3.2  # 0.1 to 158, in decades

    for left, title, color, first in ((70, "arrival-and-hold", "ours", 1), (510, "fixed-terminal", "bad", 6)):
        spots = [left + w * (j + 0.9) / 5.2 for j in range(5)]
        axes(d, left, top, w, h, [(x, str(j + 1)) for j, x in enumerate(spots)], "block of the plan", title)
        for value in (0.1, 1, 10, 100):
            d.text(left - 8, height(value) + 4, f"{value:g}", "soft", 12.5, "end")
        for j, x in enumerate(spots):  # below the lowest curve
            d.text(x - 14, height(min(cells[first + j] for cells in _profile())) + 20, f"q = {j + 1}", color, 12.5)
        for q, cells in enumerate(_profile(), start=1):
            points = [(x, height(v)) for x, v in zip(spots, cells[first : first + 5], strict=True)]
            d.curve(points, color, 2, dots=False)
            x, y = points[q - 1]
            d.dot(round(x, 1), round(y, 1), color, 5)
    caption = "distance to the goal in % of the start's; a dot is where the data was at the goal"
    d.text(70, 330, caption, "soft", 13, "start")
    return d


def _evaluation(task: str) -> dict[str, Any]:
    return json.loads((ROOT / "leplanner" / "zoo" / task / "evaluation.json").read_text())


def _profile() -> list[list[float]]:
    """Rows q, then five distances of each objective, from results/training.md."""
    text = (ROOT / "docs" / "results" / "training.md").read_text().split("## When plans arrive")[1]
    lines = re.findall(r"^\| \d \|.*\|$", text, re.MULTILINE)
    return [[float(cell.strip(" *")) for cell in line.strip("|").split("|")] for line in lines]


def draw_all(out: Path) -> list[Path]:
    return write_figures((success, arrival), out)


if __name__ == "__main__":
    for path in draw_all(OUT):
        print(path)
