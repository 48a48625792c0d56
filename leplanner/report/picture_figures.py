"""Figures made of frames: what was imagined beside what happened, executed episodes, and the way over the floor plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..evaluation.films import Film
from ..tasks import Task
from .figures import BLUE, COLUMN_IN, ORANGE, PURPLE, VERMILION, new_grid, styled
from .pictures import TARGET, outlined

ROWS = {"actual": "ACTUAL", "reencoded": "RE-ENCODED", "imagined": "IMAGINED"}
SHOWN = 8  # frames of an executed episode


@styled
def decoder_rollout(panel: dict[str, Any], title: str) -> Any:
    """Blocks from left to right. Read RE-ENCODED first: what separates it from ACTUAL is the decoder's error, and only what
    separates IMAGINED from it is the world's."""
    blocks = len(panel["drift"])
    figure, axes = new_grid(len(ROWS), blocks, COLUMN_IN, 0.5 + len(ROWS) * COLUMN_IN / (blocks + 0.8))
    for row, (name, label) in enumerate(ROWS.items()):
        for block in range(blocks):
            axes[row, block].imshow(panel[name][block])
        axes[row, 0].set_ylabel(label, fontsize=6)
    for block in range(blocks):
        axes[0, block].set_title(f"block {block + 1}", fontsize=7)
        axes[-1, block].set_xlabel(f"{panel['drift'][block]:.3f}", fontsize=7)
    figure.suptitle(f"{title}; below: latent drift")
    return figure


@styled
def decoder_refinement(panel: dict[str, Any], title: str) -> Any:
    """Where the plan ends in imagination after each correction, and the goal."""
    plans = len(panel["terminal"])
    figure, axes = new_grid(1, plans + 1, COLUMN_IN, 1.4)
    for k in range(plans):
        axes[0, k].imshow(panel["terminal"][k])
        axes[0, k].set_title(f"k = {k}", fontsize=7)
        axes[0, k].set_xlabel(f"{panel['terminal_distance'][k]:.4f}", fontsize=7)
    axes[0, -1].imshow(panel["goal"])
    axes[0, -1].set_title("goal", fontsize=7)
    figure.suptitle(f"{title}; below: distance to the goal")
    return figure


@styled
def episode_strips(films: list[tuple[str, Film]], unit: str, title: str) -> Any:
    """A row for each filmed trial, its frames evenly spaced, then the goal; the target is outlined."""
    figure, axes = new_grid(len(films), SHOWN + 1, 2 * COLUMN_IN, 0.5 + len(films))
    for row, (label, film) in enumerate(films):
        chosen = np.linspace(0, len(film.frames) - 1, SHOWN).astype(int)
        for place, frame in zip(axes[row, :SHOWN], outlined(film.frames[chosen], film.target), strict=True):
            place.imshow(frame)
        axes[row, -1].imshow(film.goal)
        axes[row, 0].set_ylabel(label, fontsize=6)
        axes[row, -1].set_xlabel(f"{film.error[-1]:.2g} {unit} off", fontsize=6)
        for place, index in zip(axes[row, :SHOWN], chosen, strict=True):
            place.set_xlabel(f"step {film.steps[index]}", fontsize=6)
    axes[0, -1].set_title("goal", fontsize=7)
    figure.suptitle(title)
    return figure


@styled
def trajectory(film: Film, task: Task, title: str) -> Any:
    """The way over the floor plan: a line for each thing that is judged, dots where it was planned again, and the target."""
    assert task.plan_view is not None
    figure, axes = new_grid(1, 1, 0.75 * COLUMN_IN, 0.8 * COLUMN_IN)
    place, size = axes[0, 0], len(film.goal)
    place.imshow(film.frames[0])
    place.contour(film.target, levels=[0.5], colors=["#{:02x}{:02x}{:02x}".format(*TARGET)], linewidths=1)
    paths = task.plan_view(film.states) * size  # (T+1, P, 2)
    for number in range(paths.shape[1]):
        colour = (VERMILION, BLUE, ORANGE, PURPLE)[number % 4]
        place.plot(*paths[:, number].T, color=colour, lw=1.2)
        place.plot(*paths[film.thoughts.decided, number].T, "o", ms=2.5, color=colour)
    place.set_xlabel(f"{film.error[0]:.3g} to {film.error[-1]:.3g} {task.error_unit} away")
    figure.suptitle(title)
    return figure
