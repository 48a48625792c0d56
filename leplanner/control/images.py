"""Pictures in the forms people have them, as the frames that a world encodes: uint8 (B, S, S, 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..core.actions import Array
from ..data.resize import resize_frames


def read_pictures(value: Any, size: int, resize: bool = False, resampling: str = "area") -> tuple[Array, bool]:
    """One picture or a batch -> frames (B, size, size, 3), and whether it was one.

    Takes a path, a PIL image, or an array or tensor with three color channels, first or last, in uint8 or as floats
    from 0 to 1. With `resize`, squares of another size are brought to the one that is needed.
    """
    if isinstance(value, str | Path):
        value = _open(Path(value))
    if hasattr(value, "convert") and hasattr(value, "mode"):  # a PIL image, whose own array is read-only
        value = np.array(value.convert("RGB"))
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    pictures: Array = np.asarray(value)
    if pictures.dtype == np.uint8 and pictures.shape[-3:] == (size, size, 3) and pictures.ndim in (3, 4):  # as it is
        return (pictures[None], True) if pictures.ndim == 3 else (pictures, False)
    single = pictures.ndim == 3
    frames = _as_uint8(_channels_last(pictures[None] if single else pictures))
    return _sized(frames, size, resize, resampling), single


def _open(path: Path) -> Any:
    try:
        from PIL.Image import open as open_image
    except ImportError as error:
        raise ImportError(f"Reading {path} needs Pillow. Install it with: pip install pillow") from error
    if not path.is_file():
        raise ValueError(f"There is no picture {path}. Give the path of an image file, or the image itself.")
    try:
        image: Any = open_image(path)
        with image:
            return image.convert("RGB")
    except OSError as error:
        raise ValueError(f"{path} is not a picture that Pillow can read ({error}).") from error


def _channels_last(pictures: Array) -> Array:
    first, last = (pictures.ndim == 4 and pictures.shape[axis] == 3 for axis in (1, 3))
    if first == last:
        reason = "either end could hold the colors" if first else "three color channels, first or last, are needed"
        raise ValueError(
            f"A picture has the shape (S, S, 3) or (3, S, S), a batch (B, S, S, 3) or (B, 3, S, S); got "
            f"{pictures.shape[1:] if pictures.ndim == 4 else pictures.shape}: {reason}. "
            "Convert gray or transparent pictures to RGB first."
        )
    return np.moveaxis(pictures, 1, 3) if first else pictures


def _as_uint8(frames: Array) -> Array:
    if frames.dtype == np.uint8:
        return frames
    low, high = float(frames.min()), float(frames.max())
    if not np.issubdtype(frames.dtype, np.floating) or not (low >= 0.0 and high <= 1.0):
        raise ValueError(
            f"Pixels must be uint8 from 0 to 255 or floats from 0 to 1; got {frames.dtype} from {low:.4g} to "
            f"{high:.4g}. Undo a normalization first; write 0 to 255 as uint8."
        )
    return np.round(frames * 255.0).astype(np.uint8)


def _sized(frames: Array, size: int, resize: bool, resampling: str) -> Array:
    height, width = frames.shape[1:3]
    if height == width != size and not resize:
        raise ValueError(
            f"Frames must be {size} x {size} pixels; got {height} x {width}. Render at that size, or let them be "
            "resized: leplanner.load(..., resize=True)."
        )
    return resize_frames(frames, size, resampling)
