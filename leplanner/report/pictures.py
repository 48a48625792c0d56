"""Videos and panels as pictures for people: framed, outlined, laid side by side. Everything is drawn on copies."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from scipy.ndimage import binary_dilation, binary_erosion

from ..evaluation.videos import EVERY, Video

BORDER_PX = 4
REACHED, NOT_REACHED = (0, 122, 87), (200, 200, 200)  # dark and light: told apart without seeing colors
TARGET = (204, 0, 204)
FRAME_MS = 60 * EVERY
PAUSE_FRAMES = 8  # at the end, before the video starts again


def outlined(frames: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Copies (F, S, S, 3) with the target's outline drawn around it; without one where the task shows no target."""
    outer, inner = np.asarray(binary_dilation(target, iterations=2)), np.asarray(binary_erosion(target))
    rim = outer & np.logical_not(inner)
    drawn = frames.copy()
    drawn[:, rim] = TARGET
    return drawn


def framed(video: Video) -> np.ndarray:
    """Copies with a border: green while the goal is reached, else gray."""
    frames = video.frames
    side = frames.shape[1] + 2 * BORDER_PX
    drawn = np.empty((len(frames), side, side, 3), np.uint8)
    for picture, frame, step in zip(drawn, frames, video.steps, strict=True):
        picture[:] = REACHED if video.reached[step] else NOT_REACHED
        picture[BORDER_PX:-BORDER_PX, BORDER_PX:-BORDER_PX] = frame
    return drawn


def animation(video: Video) -> str:
    frames = framed(video)
    return data_uri(np.concatenate([frames, np.repeat(frames[-1:], PAUSE_FRAMES, axis=0)]), ".webp")


def sprite(frames: np.ndarray, columns: int) -> str:
    """Frames (F, S, S, 3) in one picture, row by row: WebP allows no side longer than 16,383 px."""
    missing = -len(frames) % columns
    padded = np.concatenate([frames, np.zeros((missing, *frames.shape[1:]), np.uint8)])
    grid = padded.reshape(-1, columns, *frames.shape[1:]).swapaxes(1, 2)  # (rows, S, columns, S, 3)
    side = frames.shape[1]
    return data_uri(grid.reshape(1, -1, columns * side, 3), ".webp")


def data_uri(frames: np.ndarray, extension: str) -> str:
    import imageio.v3 as imageio

    moving = {"duration": FRAME_MS, "loop": 0} if len(frames) > 1 else {}
    options: dict[str, Any] = moving | {"quality": 80} if extension == ".webp" else {}
    image = frames if len(frames) > 1 else frames[0]
    encoded = imageio.imwrite("<bytes>", image, extension=extension, plugin="pillow", **options)
    return f"data:image/{extension[1:]};base64,{base64.b64encode(encoded).decode()}"


def with_unit(value: float, unit: str, digits: int = 2) -> str:
    """A task may have no unit."""
    return f"{value:.{digits}g} {unit}".rstrip()
