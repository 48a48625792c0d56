"""Dataset formats, one file each."""

from __future__ import annotations

from pathlib import Path

from ...tasks import Task
from ..episodes import Episodes
from .base import FORMATS, Format
from .columns import columns_text, rename_columns
from .hdf5 import HDF5
from .lance import LANCE

for known in (LANCE, HDF5):
    FORMATS.register(known)


def open_episodes(path: str | Path, task: Task | None = None, in_memory: bool | None = None) -> Episodes:
    """Open a dataset of any known format. `task` says what its columns must hold and may be called (`rename_columns`);
    `in_memory` loads all frames (default: when they take under 6 GB)."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"No dataset at {path}. Make one with: leplanner collect TASK --out {path}")
    for known in reversed(FORMATS.values()):  # ours come last: HDF5 takes any file, to say what is wrong with it
        if known.detects(path):
            return known.open(path, task, in_memory)
    raise ValueError(f"{path} is of no known dataset format ({', '.join(FORMATS)}).")


__all__ = ["FORMATS", "Format", "columns_text", "open_episodes", "rename_columns"]
