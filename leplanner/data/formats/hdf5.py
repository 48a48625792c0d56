"""stable-worldmodel's HDF5 layout: flat columns over all rows, episodes by offset and length.
Ours, and the released variants."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...tasks import Task
from ..digest import content_digest, remembered_digest
from ..episodes import Array, Episodes, Frames
from .base import Format
from .columns import column_name, join_states, missing_column, shape_actions, state_columns

EPISODE_COLUMNS = ("episode_idx", "ep_idx")
GOAL_ROWS = "goal_rows"  # of on-policy files: the rows an episode started from and was steered to, -1 for behavior
IN_MEMORY_BYTES = 6e9  # frames that take less are loaded


class FramesOnDisk:
    """Random access to a column that stays in its file; h5py wants rows sorted and single."""

    def __init__(self, column: h5py.Dataset, path: Path):
        self.column, self.path = column, path
        self.shape: tuple[int, ...] = tuple(column.shape)

    def __getitem__(self, rows: Any, /) -> Array:
        if isinstance(rows, slice | int):
            return _read(self.column, self.path, rows)
        unique, place = np.unique(rows, return_inverse=True)
        return _read(self.column, self.path, unique)[place.reshape(np.shape(rows))]


def is_hdf5(path: Path) -> bool:
    return path.is_file()


def open_hdf5(path: Path, task: Task | None, in_memory: bool | None) -> Episodes:
    with contextlib.suppress(ImportError):
        import hdf5plugin  # noqa: F401  (registers Blosc, which released files use)
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(
            f"{path} cannot be opened as HDF5 ({error}). It is truncated or of another format; "
            "copy it again, or collect it again."
        ) from error
    try:
        episodes = _read_hdf5(file, path, task, in_memory)
    except Exception:
        file.close()
        raise
    if not isinstance(episodes.frames, FramesOnDisk):
        file.close()
    return episodes


def _read_hdf5(file: h5py.File, path: Path, task: Task | None, in_memory: bool | None) -> Episodes:
    pixels, action = _column(file, "pixels", path, task), _column(file, "action", path, task)
    if pixels.ndim != 4 or pixels.shape[-1] != 3 or pixels.dtype != np.uint8 or len(pixels) == 0:
        raise ValueError(
            f"{path}: column {column_name('pixels', task)!r} has shape {pixels.shape} and type {pixels.dtype}; "
            "expected (rows, height, width, 3) of uint8."
        )
    lengths, starts = (
        _read(_column(file, name, path, task), path).reshape(-1).astype(np.int64) for name in ("ep_len", "ep_offset")
    )
    steps_per_row = int(file.attrs.get("steps_per_row", 1))
    actions = shape_actions(_read(action, path), steps_per_row, task, path)
    found = _columns(file)
    names = state_columns(found, lambda name: int(np.prod(found[name][1:])), task)
    states = None
    if names:
        states = join_states([_read(_named(file, name, "state", path), path) for name in names], names, task, path)
    _check_index(path, starts, lengths, {"pixels": len(pixels), "action": len(actions), "state": _rows(states)})
    frames: Frames = FramesOnDisk(pixels, path)
    if in_memory or (in_memory is None and int(np.prod(pixels.shape)) < IN_MEMORY_BYTES):
        frames = _read(pixels, path)
    ids, goal_rows = _episode_ids(file, starts, len(pixels), path, task), _goal_rows(file, starts, len(pixels), path)
    columns = {"action": actions, "state": states, "start": starts, "length": lengths, "id": ids, "goal": goal_rows}
    return Episodes(
        frames=frames,
        actions=actions,
        states=states,
        starts=starts,
        lengths=lengths,
        ids=ids,
        steps_per_row=steps_per_row,
        digest=remembered_digest(path, lambda: content_digest(frames, columns)),
        meta=json.loads(file.attrs.get("leplanner", "{}")),
        goal_rows=goal_rows,
        columns=tuple(sorted(found)),
    )


def _rows(states: Array | None) -> int | None:
    return None if states is None else len(states)


def _columns(file: h5py.File) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all columns; those in groups are called GROUP/NAME."""
    found: dict[str, tuple[int, ...]] = {}
    file.visititems(lambda name, item: found.update({name: item.shape}) if isinstance(item, h5py.Dataset) else None)
    return found


def _column(file: h5py.File, ours: str, path: Path, task: Task | None) -> h5py.Dataset:
    return _named(file, column_name(ours, task), ours, path)


def _named(file: h5py.File, name: str, ours: str, path: Path) -> h5py.Dataset:
    column = file.get(name)
    if not isinstance(column, h5py.Dataset):
        raise missing_column(path, name, ours, _columns(file))
    return column


def _read(column: h5py.Dataset, path: Path, rows: Any = ...) -> Array:
    try:
        return np.asarray(column[rows])
    except OSError as error:
        name = str(column.name).lstrip("/")
        raise ValueError(
            f"{path}: column {name!r} cannot be read ({error}). Either the file is truncated (copy it again) or it is "
            "compressed with a filter that is missing here (pip install hdf5plugin)."
        ) from error


def _episode_ids(file: h5py.File, starts: Array, rows: int, path: Path, task: Task | None) -> Array:
    named = task.columns.get(EPISODE_COLUMNS[0], ()) if task is not None else ()
    for name in named or EPISODE_COLUMNS:
        if named or name in file:
            column = _read(_named(file, name, EPISODE_COLUMNS[0], path), path).reshape(-1)
            if len(column) != rows:
                raise ValueError(f"{path}: column {name!r} has {len(column)} rows, but 'pixels' has {rows}.")
            return column[starts].astype(np.int64)
    return np.arange(len(starts), dtype=np.int64)


def _goal_rows(file: h5py.File, starts: Array, rows: int, path: Path) -> Array | None:
    if GOAL_ROWS not in file:
        return None
    column = _read(_named(file, GOAL_ROWS, GOAL_ROWS, path), path)
    if column.shape != (rows, 2) or (column < -1).any() or (column >= rows).any():
        raise ValueError(
            f"{path}: column {GOAL_ROWS!r} of shape {column.shape} must hold two rows below {rows}, or -1, in each of "
            f"{rows} rows. The file is damaged; collect it again."
        )
    return column[starts].astype(np.int64)


def _check_index(path: Path, starts: Array, lengths: Array, columns: dict[str, int | None]) -> None:
    rows = columns["pixels"]
    assert rows is not None
    for name, count in columns.items():
        if count is not None and count != rows:
            raise ValueError(f"{path}: column {name!r} has {count} rows, but 'pixels' has {rows}. The file is damaged.")
    if len(starts) != len(lengths) or len(starts) == 0:
        raise ValueError(
            f"{path}: {len(lengths)} values in 'ep_len' and {len(starts)} in 'ep_offset'; expected one each an episode."
        )
    ends = starts + lengths
    if (lengths <= 0).any() or (starts < 0).any() or int(ends.max()) > rows:
        raise ValueError(
            f"{path}: 'ep_offset' and 'ep_len' reach row {int(ends.max())}, but 'pixels' has {rows} rows. "
            "The file is truncated; copy or collect it again."
        )
    if (starts[1:] < ends[:-1]).any():
        raise ValueError(f"{path}: episodes in 'ep_offset' overlap or are out of order; they must follow one another.")


HDF5 = Format("hdf5", is_hdf5, open_hdf5)
