"""Figures made of frames: what was imagined beside what happened, executed episodes, and trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..control.methods import BLUE, ORANGE, PURPLE, VERMILION
from ..evaluation.videos import Video
from ..tasks import Task
from .figures import COLUMN_IN, new_grid, styled
from .pictures import TARGET, outlined, with_unit

ROWS = {"actual": "ACTUAL", "reencoded": "RE-ENCODED", "imagined": "IMAGINED"}
SHOWN = 10  # frames of an executed episode


@styled
def decoder_rollout(panel: dict[str, Any], title: str) -> Any:
    """Blocks from left to right. Read RE-ENCODED first: what separates it from ACTUAL is the decoder's error, and only
    what separates IMAGINED from it is the world's."""
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
    """Where the plan ends in imagination after each refinement, and the goal."""
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
def episode_strips(videos: list[tuple[str, Video]], unit: str, title: str) -> Any:
    """A row for each recorded trial: its frames at ten replans, or evenly spaced where it replans less often, then the
    goal; the target is outlined."""
    figure, axes = new_grid(len(videos), SHOWN + 1, 2 * COLUMN_IN, 0.5 + len(videos))
    for row, (label, video) in enumerate(videos):
        chosen = _shown_frames(video)
        for place, frame in zip(axes[row, :SHOWN], outlined(video.frames[chosen], video.target), strict=True):
            place.imshow(frame)
        axes[row, -1].imshow(video.goal)
        axes[row, 0].set_ylabel(label, fontsize=6)
        axes[row, -1].set_xlabel(f"{with_unit(video.error[-1], unit)} off", fontsize=6)
        for place, index in zip(axes[row, :SHOWN], chosen, strict=True):
            place.set_xlabel(f"step {video.steps[index]}", fontsize=6)
    axes[0, -1].set_title("goal", fontsize=7)
    figure.suptitle(title)
    return figure


def _shown_frames(video: Video) -> np.ndarray:
    """Where plans were decided, as far as frames were kept there."""
    at = video.trace.decided
    if len(at) < SHOWN:
        return np.linspace(0, len(video.frames) - 1, SHOWN).astype(int)
    return np.searchsorted(video.steps, at[np.linspace(0, len(at) - 1, SHOWN).astype(int)])


@styled
def trajectory(video: Video, task: Task, title: str) -> Any:
    """The trajectory over the floor plan: a line for each object that is scored, dots at replans, and the target."""
    assert task.plan_view is not None
    figure, axes = new_grid(1, 1, 0.75 * COLUMN_IN, 0.8 * COLUMN_IN)
    place, size = axes[0, 0], len(video.goal)
    place.imshow(video.frames[0])
    if video.target.any():
        place.contour(video.target, levels=[0.5], colors=["#{:02x}{:02x}{:02x}".format(*TARGET)], linewidths=1)
    paths = task.plan_view(video.states) * size  # (T+1, P, 2)
    for number in range(paths.shape[1]):
        color = (VERMILION, BLUE, ORANGE, PURPLE)[number % 4]
        place.plot(*paths[:, number].T, color=color, lw=1.2)
        place.plot(*paths[video.trace.decided, number].T, "o", ms=2.5, color=color)
    place.set_xlabel(f"{video.error[0]:.3g} to {with_unit(video.error[-1], task.error_unit, 3)} away")
    figure.suptitle(title)
    return figure
