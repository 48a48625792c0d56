"""Films and panels as pictures for people: framed, outlined, laid side by side. Everything is drawn on copies."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from scipy.ndimage import binary_dilation, binary_erosion

from ..evaluation.films import EVERY, Film

BORDER_PX = 4
REACHED, ON_ITS_WAY = (0, 158, 115), (120, 120, 120)  # a green that colour-blind eyes tell from grey
TARGET = (204, 0, 204)
FRAME_MS = 60 * EVERY
PAUSE_FRAMES = 8  # at the end, before the film starts again


def outlined(frames: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Copies (F, S, S, 3) with the target's outline drawn around it."""
    outer, inner = np.asarray(binary_dilation(target, iterations=2)), np.asarray(binary_erosion(target))
    rim = outer & np.logical_not(inner)
    drawn = frames.copy()
    drawn[:, rim] = TARGET
    return drawn


def framed(film: Film, mark_target: bool = False) -> np.ndarray:
    """Copies with a border: grey on the way, green while the goal is reached."""
    frames = outlined(film.frames, film.target) if mark_target else film.frames
    side = frames.shape[1] + 2 * BORDER_PX
    drawn = np.empty((len(frames), side, side, 3), np.uint8)
    for picture, frame, step in zip(drawn, frames, film.steps, strict=True):
        picture[:] = REACHED if film.reached[step] else ON_ITS_WAY
        picture[BORDER_PX:-BORDER_PX, BORDER_PX:-BORDER_PX] = frame
    return drawn


def animation(film: Film) -> str:
    frames = framed(film)
    return data_uri(np.concatenate([frames, np.repeat(frames[-1:], PAUSE_FRAMES, axis=0)]), ".webp")


def sprite(frames: np.ndarray) -> str:
    """Frames (F, S, S, 3) beneath one another in one picture."""
    return data_uri(frames.reshape(1, -1, *frames.shape[2:]), ".webp")


def data_uri(frames: np.ndarray, extension: str) -> str:
    import imageio.v3 as imageio

    moving = {"duration": FRAME_MS, "loop": 0} if len(frames) > 1 else {}
    options: dict[str, Any] = moving | {"quality": 80} if extension == ".webp" else {}
    image = frames if len(frames) > 1 else frames[0]
    encoded = imageio.imwrite("<bytes>", image, extension=extension, plugin="pillow", **options)
    return f"data:image/{extension[1:]};base64,{base64.b64encode(encoded).decode()}"
