"""Episodes read from disk: one view over our files, the released files' variants, and Lance.

A *row* is a stored frame. A row holds the actions taken between it and the next row: one action in
released files, a block of several in files that keep only every f-th frame. `steps_per_row` says which.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from ..artifacts import digest_bytes
from ..tasks import Task

Array = np.ndarray
EPISODE_COLUMNS = ("episode_idx", "ep_idx")


class Frames(Protocol):
    """Random access to uint8 frames by row; an array, or a file read on demand."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True)
class Episodes:
    frames: Frames = field(repr=False)  # (R, H, W, 3) uint8
    actions: Array = field(repr=False)  # (R, steps_per_row, d_a) raw; NaN in an episode's last row
    states: Array | None = field(repr=False)  # (R, S) physical state, for evaluation and probes only
    starts: Array = field(repr=False)  # (E,) first row of each episode
    lengths: Array = field(repr=False)  # (E,) rows of each episode
    ids: Array = field(repr=False)  # (E,) what an episode is called; the split depends on it alone
    steps_per_row: int
    digest: str
    meta: dict[str, Any] = field(repr=False, default_factory=dict)
    played: Array | None = field(
        repr=False, default=None
    )  # (E, 2) practised: rows it was set on and wanted to; else -1

    @property
    def action_dim(self) -> int:
        return self.actions.shape[-1]

    @property
    def rows(self) -> int:
        return len(self.actions)

    def rows_per_block(self, block: int) -> int:
        if block % self.steps_per_row:
            raise ValueError(
                f"A block of {block} actions was asked for, but a row of this dataset spans {self.steps_per_row} "
                f"actions, which does not divide it. Collect with --every {block} or --every 1."
            )
        return block // self.steps_per_row

    def episode_rows(self, chosen: Array, ahead: int = 0) -> Array:
        """All rows of the chosen episodes that have at least `ahead` rows after them."""
        starts, counts = self.starts[chosen], np.maximum(self.lengths[chosen] - ahead, 0)
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(starts, counts) + within


def is_validation(ids: Array, share: float = 0.05) -> Array:
    """(E,) bool: the held-out episodes. A hash of the episode's own id decides, so adding episodes, reordering
    them or asking twice never moves one from one side to the other."""
    mixed = np.asarray(ids, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return mixed.astype(np.float64) / 2.0**64 < share


def split(episodes: Episodes, share: float = 0.05) -> tuple[Array, Array]:
    """Indices of the training and of the validation episodes."""
    held_out = is_validation(episodes.ids, share)
    if held_out.all() or not held_out.any():
        raise ValueError(
            f"Of {len(held_out)} episodes, {int(held_out.sum())} fall into the held-out {share:.0%}, which leaves one side "
            "empty. An episode's own id decides, so more episodes are the cure: collect at least 20."
        )
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def action_statistics(episodes: Episodes, train: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each raw action dimension over the training episodes."""
    actions = episodes.actions[episodes.episode_rows(train)].reshape(-1, episodes.action_dim)
    actions = actions[np.isfinite(actions).all(axis=1)].astype(np.float64)
    if len(actions) == 0:
        raise ValueError("The dataset's training episodes hold no finite action. Column 'action' seems to be empty.")
    mean, std = actions.mean(axis=0), actions.std(axis=0)
    return mean, np.where(std < 1e-6, 1.0, std)


def open_episodes(path: str | Path, task: Task | None = None, in_memory: bool | None = None) -> Episodes:
    """Open an HDF5 file or a Lance dataset. `in_memory` loads all frames (default: when they take under 6 GB)."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"No dataset at {path}. Make one with: leplanner collect TASK --out {path}")
    if path.is_dir() and (path.suffix == ".lance" or any(path.glob("*.lance")) or (path / "_versions").exists()):
        from .swm_lance import open_lance

        return open_lance(path, task)
    return _open_hdf5(path, task, in_memory)


def _open_hdf5(path: Path, task: Task | None, in_memory: bool | None) -> Episodes:
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
    if isinstance(episodes.frames, np.ndarray):
        file.close()  # else frames are read from it on demand
    return episodes


def _read_hdf5(file: h5py.File, path: Path, task: Task | None, in_memory: bool | None) -> Episodes:
    pixels, action = _column(file, "pixels", path), _column(file, "action", path)
    if pixels.ndim != 4 or pixels.shape[-1] != 3 or pixels.dtype != np.uint8 or len(pixels) == 0:
        raise ValueError(
            f"{path}: column 'pixels' has shape {pixels.shape} and type {pixels.dtype}; "
            "expected (rows, height, width, 3) of uint8."
        )
    lengths, starts = (
        _read(_column(file, name, path), path).reshape(-1).astype(np.int64) for name in ("ep_len", "ep_offset")
    )
    steps_per_row = int(file.attrs.get("steps_per_row", 1))
    actions = shape_actions(_read(action, path), steps_per_row, task, path)
    wanted = ("state",) if task is None or "state" in file else task.state_columns
    states = None
    if all(name in file for name in wanted):
        states = join_states([_read(_column(file, name, path), path) for name in wanted], wanted, task, path)
    _check_index(path, starts, lengths, {"pixels": len(pixels), "action": len(actions), "state": _rows(states)})
    frames: Frames = pixels
    if in_memory or (in_memory is None and int(np.prod(pixels.shape)) < 6e9):
        frames = _read(pixels, path)
    meta = json.loads(file.attrs.get("leplanner", "{}"))
    played = _read_played(file, starts, len(pixels), path)
    return Episodes(
        frames=frames,
        actions=actions,
        states=states,
        starts=starts,
        lengths=lengths,
        ids=_episode_ids(file, starts, len(pixels), path),
        steps_per_row=steps_per_row,
        digest=content_digest(frames, actions, states, starts, lengths, played),
        meta=meta,
        played=played,
    )


def _rows(states: Array | None) -> int | None:
    return None if states is None else len(states)


def _column(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise ValueError(
            f"{path} has no column {name!r}; found: {', '.join(sorted(file)) or 'nothing'}. A dataset needs pixels, "
            "action, ep_len and ep_offset (stable-worldmodel's HDF5 layout). Collect one with: leplanner collect"
        )
    return found


def _read(column: h5py.Dataset, path: Path, rows: Any = ...) -> Array:
    try:
        return np.asarray(column[rows])
    except OSError as error:
        name = str(column.name).lstrip("/")
        raise ValueError(
            f"{path}: column {name!r} cannot be read ({error}). Either the file is truncated (copy it again) or it is "
            "compressed with a filter that is missing here (pip install hdf5plugin)."
        ) from error


def read_frames(episodes: Episodes, rows: Array) -> Array:
    """Frames at any rows, in any order, repeats allowed (a file on disk wants them sorted and single)."""
    frames = episodes.frames
    if isinstance(frames, np.ndarray):
        return frames[rows]
    unique, place = np.unique(rows, return_inverse=True)
    on_disk: Any = frames
    found = _read(on_disk, Path(on_disk.file.filename), unique) if isinstance(frames, h5py.Dataset) else frames[unique]
    return found[place.reshape(rows.shape)]


def shape_actions(action: Array, steps_per_row: int, task: Task | None, path: Path) -> Array:
    """(R, steps_per_row * d_a) -> (R, steps_per_row, d_a) float32, checked against the task."""
    flat = action.reshape(len(action), -1)
    if flat.shape[1] % steps_per_row:
        raise ValueError(
            f"{path}: column 'action' is {flat.shape[1]} wide, which {steps_per_row} actions a row do not divide."
        )
    actions = flat.reshape(len(flat), steps_per_row, -1).astype(np.float32)
    if task is not None and actions.shape[-1] != task.action_dim:
        raise ValueError(
            f"{path}: column 'action' has {actions.shape[-1]} dimensions, but {task.title} has {task.action_dim}. "
            "Is this another task's dataset?"
        )
    return actions


def join_states(columns: list[Array], names: tuple[str, ...], task: Task | None, path: Path) -> Array:
    """(R, S) float64 from one or more columns, checked against the task."""
    states = np.concatenate([column.reshape(len(column), -1) for column in columns], axis=-1).astype(np.float64)
    if task is not None and states.shape[1] != task.state_dim:
        raise ValueError(
            f"{path}: the state ({', '.join(names)}) has {states.shape[1]} numbers a row, but {task.title}'s state has {task.state_dim}."
        )
    broken = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if len(broken):
        raise ValueError(
            f"{path}: the state ({', '.join(names)}) is not finite in {len(broken)} rows (first: row {broken[0]})."
        )
    return states


def _episode_ids(file: h5py.File, starts: Array, rows: int, path: Path) -> Array:
    for name in EPISODE_COLUMNS:
        if name in file:
            column = _read(_column(file, name, path), path).reshape(-1)
            if len(column) != rows:
                raise ValueError(f"{path}: column {name!r} has {len(column)} rows, but 'pixels' has {rows}.")
            return column[starts].astype(np.int64)
    return np.arange(len(starts), dtype=np.int64)


def _read_played(file: h5py.File, starts: Array, rows: int, path: Path) -> Array | None:
    if "played" not in file:
        return None
    column = _read(_column(file, "played", path), path)
    if column.shape != (rows, 2) or (column < -1).any() or (column >= rows).any():
        raise ValueError(
            f"{path}: column 'played' of shape {column.shape} must hold two rows below {rows}, or -1, in each of {rows} rows. "
            "The file is damaged; practise again."
        )
    return column[starts].astype(np.int64)


def _check_index(path: Path, starts: Array, lengths: Array, columns: dict[str, int | None]) -> None:
    rows = columns["pixels"]
    assert rows is not None
    for name, found in columns.items():
        if found is not None and found != rows:
            raise ValueError(f"{path}: column {name!r} has {found} rows, but 'pixels' has {rows}. The file is damaged.")
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


def content_digest(
    frames: Frames, actions: Array, states: Array | None, starts: Array, lengths: Array, played: Array | None = None
) -> str:
    """Of everything but the frames, and of a sample of those: hashing terabytes of pixels would take hours."""
    sample = np.unique(np.linspace(0, frames.shape[0] - 1, 32).astype(int))
    parts = [np.asarray(frames[sample]).tobytes(), str(tuple(frames.shape)).encode(), actions.tobytes()]
    parts += [b"" if states is None else states.tobytes(), starts.tobytes(), lengths.tobytes()]
    return digest_bytes(*parts, *([] if played is None else [played.tobytes()]))
