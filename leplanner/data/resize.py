"""Frames at another size: the one place where any are resized, be they of a dataset or of a camera."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from .episodes import Array, Episodes, Frames

CHUNK = 256  # frames that are resized at once


def resize_frames(frames: Array, size: int, resampling: str) -> Array:
    """uint8 (..., S, S, 3) -> (..., size, size, 3)."""
    height, width = frames.shape[-3:-1]
    if (height, width) == (size, size):
        return np.ascontiguousarray(frames)
    _check_square(height, width, size)
    flat = frames.reshape(-1, height, width, 3)
    resized = np.empty((len(flat), size, size, 3), np.uint8)
    for start in range(0, len(flat), CHUNK):
        pixels = torch.as_tensor(np.ascontiguousarray(flat[start : start + CHUNK])).permute(0, 3, 1, 2).float()
        drawn = RESAMPLINGS[resampling](pixels, size).round().clamp(0, 255).byte()
        resized[start : start + CHUNK] = drawn.permute(0, 2, 3, 1).numpy()
    return resized.reshape(*frames.shape[:-3], size, size, 3)


def _check_square(height: int, width: int, size: int) -> None:
    if height != width:
        raise ValueError(f"Frames must be square, {size} x {size} pixels; got {height} x {width}. Crop them first.")


def _bilinear(pixels: Tensor, size: int) -> Tensor:
    """With antialiasing, as torchvision's Resize: what stable-worldmodel shows its encoders."""
    return interpolate(pixels, size=(size, size), mode="bilinear", antialias=True)


def _area(pixels: Tensor, size: int) -> Tensor:
    """Means over the area of each new pixel, as our simulators shrink what they draw."""
    known = pixels.shape[-1]
    if known < size:
        return _bilinear(pixels, size)
    edges = torch.arange(size + 1, dtype=torch.float64) * known / size
    inside = torch.arange(known, dtype=torch.float64)
    overlap = torch.minimum(edges[1:, None], inside + 1) - torch.maximum(edges[:-1, None], inside)
    weights = (overlap.clamp(min=0) * size / known).float()
    return weights @ pixels @ weights.T


RESAMPLINGS: dict[str, Callable[[Tensor, int], Tensor]] = {"area": _area, "bilinear": _bilinear}


class ResizedFrames:
    """Frames of a dataset, resized as they are read."""

    def __init__(self, frames: Frames, size: int, resampling: str):
        self.frames, self.size, self.resampling = frames, size, resampling
        self.shape: tuple[int, ...] = (frames.shape[0], size, size, 3)

    def __getitem__(self, rows: Any, /) -> Array:
        return resize_frames(np.asarray(self.frames[rows]), self.size, self.resampling)


def at_size(episodes: Episodes, size: int, resampling: str) -> Episodes:
    """The same dataset, its frames at this size."""
    height, width = episodes.frames.shape[1:3]
    if (height, width) == (size, size):
        return episodes
    _check_square(height, width, size)
    if height < size:
        raise ValueError(
            f"The dataset's frames have {height} px and the world takes {size}. Enlarged ones would teach it blurred "
            f"frames that it never sees when it acts. Collect with --size {size}, or choose a smaller world."
        )
    return replace(episodes, frames=ResizedFrames(episodes.frames, size, resampling))
