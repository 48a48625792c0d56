"""Draws docs/images/teaser.webp from the shipped bundles: on four tasks, LePlanner beside CEM on the same trial.

    python docs/make_teaser.py [TRIAL ...]     # about ten minutes, most of it CEM's; rows are kept in build/teaser

Both run in stable-worldmodel's simulators on the first trial that the bundle was measured on, or on the given ones.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import leplanner as lp
from leplanner.control.methods import SearchBudget
from leplanner.diagnostics.projection import projection_of
from leplanner.evaluation.manifest import load_manifest
from leplanner.evaluation.runner import EvaluationConfig, evaluate
from leplanner.evaluation.videos import load_video, video_path
from leplanner.report.pictures import outlined
from leplanner.zoo import shipped

TASKS = ("tworoom", "pusht", "reacher", "cube")
METHODS = {"leplanner-reuse": "LePlanner", "cem": "CEM"}
SEARCH = SearchBudget(300, 30)
ROWS = Path("build/teaser")
OUT = Path(__file__).parent / "images" / "teaser.webp"
CELL, GAP, LEFT, TOP, FOOT = 176, 12, 92, 34, 22  # pixels
STEP_MS, PAUSE_MS = 90, 2500
INK, QUIET, PAPER, GOOD, PLAN = "#1b1f24", "#6a737d", "#ffffff", "#007a57", "#d55e00"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
TEXT = ImageFont.truetype(str(FONTS / "DejaVuSans.ttf"), 12)
BOLD = ImageFont.truetype(str(FONTS / "DejaVuSans-Bold.ttf"), 13)


@dataclass(frozen=True)
class Run:
    """One method on one trial, an entry for each environment step."""

    frames: list[Image.Image]
    reached: np.ndarray
    error: np.ndarray
    unit: str
    thinking_s: np.ndarray  # encoding and planning so far
    goal: Image.Image


def measure(name: str, trial: int) -> dict[str, Run]:
    """Run both methods, or read what an earlier call left, and draw the scene at every step."""
    task, bundle, folder = lp.get_task(name), shipped()[name], ROWS / name
    config = EvaluationConfig(tuple(METHODS), (1,), search=SEARCH, trials=trial + 1, videos=trial + 1)
    rows = evaluate(bundle, bundle / "manifest.json", config, folder / "rows.jsonl")
    planner, manifest = lp.load(name), load_manifest(bundle / "manifest.json")
    projection = projection_of(planner.world, task, bundle)
    sim = task.simulate(planner.world.spec.visuals)
    runs = {}
    for row in rows:
        if row.trial != trial:
            continue
        path = video_path(folder, row.method, 1, trial, manifest.digest, config.seed, row.settings, row.weights)
        video = load_video(path)
        block = planner.world.spec.actions.block
        thought = (row.encode_ms + row.plan_ms) / 1e3
        decided = np.arange(len(video.states)) // block + 1
        target = np.asarray(Image.fromarray(video.target).resize((CELL, CELL)))
        frames = []
        for step, state in enumerate(video.states):
            sim.set_state(state)
            scene = Image.fromarray(outlined(sim.render(CELL)[None], target)[0])
            current = np.searchsorted(video.trace.decided, step, side="right") - 1
            if current >= 0:
                draw_plan(scene, projection.points(_tensor(video.trace.imagined[current])))
            frames.append(scene)
        unit, goal = task.error_unit, Image.fromarray(video.goal)
        runs[row.method] = Run(
            frames, video.reached, video.error, unit, thought * np.minimum(decided, row.decisions), goal
        )
    sim.close()
    return runs


def draw_plan(scene: Image.Image, points: np.ndarray) -> None:
    """Dots where the plan is imagined to lead, the last block largest: (H, P, 2), shares of the frame."""
    pen = ImageDraw.Draw(scene)
    for number in range(points.shape[1]):
        path = [tuple(point * CELL) for point in points[:, number]]
        pen.line(path, fill=PLAN, width=1)
        for block, (x, y) in enumerate(path):
            radius = 1.5 + 0.5 * block
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline="white", fill=PLAN)


def compose(columns: dict[str, dict[str, Run]], step: int) -> Image.Image:
    width = LEFT + len(columns) * (CELL + GAP)
    height = TOP + len(METHODS) * (CELL + FOOT + GAP) + 24
    page = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(page)
    for place, (name, runs) in enumerate(columns.items()):
        x = LEFT + place * (CELL + GAP)
        pen.text((x, 10), lp.get_task(name).title, INK, BOLD)
        for line, method in enumerate(METHODS):
            run, y = runs[method], TOP + line * (CELL + FOOT + GAP)
            page.paste(run.frames[step], (x, y))
            there = bool(run.reached[step])
            pen.rectangle((x - 2, y - 2, x + CELL + 1, y + CELL + 1), outline=GOOD if there else "#d0d7de", width=2)
            if line == 0:
                page.paste(run.goal.resize((48, 48)), (x + CELL - 50, y + 2))
                pen.rectangle((x + CELL - 51, y + 1, x + CELL - 2, y + 50), outline="#cc00cc")
            left = f"{run.thinking_s[step]:.2f} s" if run.thinking_s[step] < 10 else f"{run.thinking_s[step]:.0f} s"
            pen.text((x, y + CELL + 5), left, INK, BOLD)
            away = "reached" if there else f"{run.error[step]:.3g} {run.unit} away"
            pen.text((x + CELL, y + CELL + 5), away, GOOD if there else QUIET, TEXT, anchor="ra")
    for line, title in enumerate(METHODS.values()):
        y = TOP + line * (CELL + FOOT + GAP)
        pen.text((8, y + 4), title, INK, BOLD)
        cost = (
            "25 imagined\nsteps a plan"
            if line == 0
            else f"{SEARCH.samples * SEARCH.rounds * 5:,}\nimagined\nsteps a plan"
        )
        pen.text((8, y + 26), cost, QUIET, TEXT)
        pen.text((8, y + CELL + 5), "thinking:", QUIET, TEXT)
    note = "magenta: goal    orange: where the plan is imagined to lead    green: goal reached"
    pen.text((LEFT, height - 22), note, QUIET, TEXT)
    pen.text((width - GAP, height - 22), f"action {step}", QUIET, TEXT, anchor="ra")
    return page


def _tensor(values: np.ndarray):
    import torch

    return torch.as_tensor(values)


def main() -> None:
    chosen = dict(zip(TASKS, map(int, sys.argv[1:]), strict=False))
    columns = {name: measure(name, chosen.get(name, 0)) for name in TASKS}
    steps = min(len(run.frames) for runs in columns.values() for run in runs.values())
    pages = [compose(columns, step) for step in range(steps)]
    times = [STEP_MS] * (steps - 1) + [PAUSE_MS]
    OUT.parent.mkdir(exist_ok=True)
    pages[0].save(OUT, save_all=True, append_images=pages[1:], duration=times, loop=0, quality=70, method=6)
    pages[-1].save(ROWS / "last.png")
    told = {
        name: {m: [bool(r.reached.any()), round(float(r.thinking_s[-1]), 2)] for m, r in runs.items()}
        for name, runs in columns.items()
    }
    print(OUT, f"{OUT.stat().st_size / 1e6:.2f} MB, {pages[0].size}", json.dumps(told))


if __name__ == "__main__":
    main()
