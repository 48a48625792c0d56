"""Lance datasets, read through stable-worldmodel's own reader; frames are decoded on demand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import digest_bytes
from ..tasks import Task
from ..tasks.swm_runtime import import_swm
from .episodes import Array, Episodes


class LanceFrames:
    """With one frame a clip, the reader's clip index is the row."""

    def __init__(self, dataset: Any, rows: int):
        self.dataset = dataset
        self.shape: tuple[int, ...] = (rows, *self[np.array([0])].shape[1:])

    def __getitem__(self, rows: Any, /) -> Array:
        wanted = np.atleast_1d(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the decoder reads from a read-only buffer, and torch says so
            clips = self.dataset.__getitems__(wanted.reshape(-1).tolist())
        frames = np.concatenate([clip["pixels"].permute(0, 2, 3, 1).numpy() for clip in clips])
        return frames.reshape(*wanted.shape, *frames.shape[1:])


def open_lance(path: Path, task: Task | None) -> Episodes:
    swm_data = import_swm("stable_worldmodel.data")
    table = path if path.suffix == ".lance" else next(iter(sorted(path.glob("*.lance"))), path)
    probe = swm_data.LanceDataset(path=str(table))
    columns = set(probe.column_names)
    for name in ("pixels", "action"):
        if name not in columns:
            raise ValueError(f"{table} has no column {name!r}; found: {', '.join(sorted(columns))}.")
    wanted = ("state",) if task is None or "state" in columns else task.state_columns
    states = None
    if set(wanted) <= columns:
        states = np.concatenate([_numbers(probe.get_col_data(name)) for name in wanted], axis=-1).astype(np.float64)
    actions = _numbers(probe.get_col_data("action")).astype(np.float32)
    if task is not None and actions.shape[1] != task.action_dim:
        raise ValueError(
            f"{table}: column 'action' has {actions.shape[1]} dimensions, but {task.title} has {task.action_dim}. "
            "Is this another task's dataset?"
        )
    lengths, starts = np.asarray(probe.lengths, np.int64), np.asarray(probe.offsets, np.int64)
    frames = LanceFrames(swm_data.LanceDataset(path=str(table), keys_to_load=["pixels"]), len(actions))
    return Episodes(
        frames=frames,
        actions=actions[:, None, :],
        states=states,
        starts=starts,
        lengths=lengths,
        ids=np.arange(len(starts), dtype=np.int64),
        steps_per_row=1,
        digest=digest_bytes(actions.tobytes(), lengths.tobytes(), frames[np.array([0])].tobytes()),
    )


def _numbers(column: Array) -> Array:
    return column.reshape(len(column), -1)
