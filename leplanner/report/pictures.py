"""Videos and panels as pictures for people: outlined, laid side by side. Everything is drawn on copies."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from scipy.ndimage import binary_dilation, binary_erosion

from ..evaluation.videos import EVERY

TARGET = (204, 0, 204)
FRAME_MS = 60 * EVERY


def outlined(frames: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Copies (F, S, S, 3) with the target's outline drawn around it; without one where the task shows no target."""
    outer, inner = np.asarray(binary_dilation(target, iterations=2)), np.asarray(binary_erosion(target))
    rim = outer & np.logical_not(inner)
    drawn = frames.copy()
    drawn[:, rim] = TARGET
    return drawn


def sprite(frames: np.ndarray, columns: int) -> str:
    """Frames (F, S, S, 3) in one picture, row by row: WebP allows no side longer than 16,383 px."""
    missing = -len(frames) % columns
    padded = np.concatenate([frames, np.zeros((missing, *frames.shape[1:]), np.uint8)])
    grid = padded.reshape(-1, columns, *frames.shape[1:]).swapaxes(1, 2)  # (rows, S, columns, S, 3)
    side = frames.shape[1]
    return data_uri(grid.reshape(-1, columns * side, 3), ".webp")


def data_uri(frame: np.ndarray, extension: str) -> str:
    import imageio.v3 as imageio

    options: dict[str, Any] = {"quality": 80} if extension == ".webp" else {}
    encoded = imageio.imwrite("<bytes>", frame, extension=extension, plugin="pillow", **options)
    return f"data:image/{extension[1:]};base64,{base64.b64encode(encoded).decode()}"


def with_unit(value: float, unit: str, digits: int = 2) -> str:
    """A task may have no unit."""
    return f"{float(f'{value:.{digits}g}'):g} {unit}".rstrip()  # 110, not 1.1e+02
