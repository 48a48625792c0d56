"""Draws an imagined plan and a goal over a picture of the scene."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.ndimage import binary_dilation, binary_erosion, binary_opening

from ..core.actions import Array

PATHS = ((213, 94, 0), (0, 114, 178), (230, 159, 0), (204, 121, 167))  # Okabe and Ito: vermilion, blue, orange, purple
GOAL = (0, 158, 115)
FINER = 3  # lines are drawn so many times larger, then averaged
FAINTEST = 0.3  # opacity of a plan's last block


def outline(target: Array) -> Array:
    """The edge of the pixels (S, S) that show where things should be."""
    whole = binary_opening(target)  # without specks
    return np.logical_and(binary_dilation(whole, iterations=2), np.logical_not(binary_erosion(whole)))


def draw_overlay(frame: Array, plan: Array | None, edge: Array) -> Array:
    """Over a uint8 frame (S, S, 3): `plan` (1 + H, P, 2) is where each thing is now and after each block, as shares of
    the frame; `edge` (S, S) is what `outline` made of a goal."""
    from PIL import Image, ImageDraw

    frame = np.where(edge[..., None], np.array(GOAL, np.uint8), frame)
    size = len(frame) * FINER
    canvas = Image.new("RGBA", (size, size), (255, 255, 255, 0))
    pen = ImageDraw.Draw(canvas)
    thick = size / 130
    for number in range(plan.shape[1] if plan is not None else 0):
        assert plan is not None
        color, path = PATHS[number % len(PATHS)], plan[:, number] * size
        opacity = np.linspace(1.0, FAINTEST, len(path) - 1)
        for (start, end), share in reversed(list(zip(pairwise(path), opacity, strict=True))):
            ink = (*color, int(255 * share))
            pen.line([*start, *end], fill=ink, width=max(1, round(thick)))
            _dot(pen, end, 2.1 * thick, (255, 255, 255, int(255 * share)))
            _dot(pen, end, 1.6 * thick, ink)
    ink = canvas.resize((len(frame), len(frame)), Image.Resampling.BOX)
    return np.asarray(Image.alpha_composite(Image.fromarray(frame).convert("RGBA"), ink).convert("RGB"))


def _dot(pen: Any, center: Array, radius: float, ink: tuple[int, ...]) -> None:
    pen.ellipse([*(center - radius), *(center + radius)], fill=ink)
