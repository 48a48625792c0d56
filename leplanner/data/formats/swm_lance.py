"""Lance datasets, read through stable-worldmodel's own reader; frames are decoded on demand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ...tasks import Task
from ...tasks.swm_runtime import import_swm
from ..digest import files_digest
from ..episodes import Array, Episodes
from .columns import column_name, join_states, missing_column, shape_actions, state_columns


class LanceFrames:
    """With one frame a clip, the reader's clip index is the row."""

    def __init__(self, dataset: Any, rows: int, column: str):
        self.dataset, self.rows, self.column = dataset, rows, column
        self.shape: tuple[int, ...] = (rows, *self[0].shape)

    def __getitem__(self, rows: Any, /) -> Array:
        """Indexed as an array would be: a row, a slice, or an array of rows."""
        chosen = np.arange(self.rows)[rows]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the decoder reads from a read-only buffer, and torch says so
            clips = self.dataset.__getitems__(chosen.reshape(-1).tolist())
        frames = np.concatenate([clip[self.column].permute(0, 2, 3, 1).numpy() for clip in clips])
        return frames.reshape(*chosen.shape, *frames.shape[1:])


def open_lance(path: Path, task: Task | None) -> Episodes:
    swm_data = import_swm("stable_worldmodel.data")
    table = path if path.suffix == ".lance" else next(iter(sorted(path.glob("*.lance"))), path)
    probe = swm_data.LanceDataset(path=str(table))
    columns = set(probe.column_names)
    pixels, action = (column_name(ours, task) for ours in ("pixels", "action"))
    names = state_columns(columns, lambda name: probe.get_col_data(name)[0].size, task)
    for name, ours in ((pixels, "pixels"), (action, "action"), *((name, "state") for name in names)):
        if name not in columns:
            raise missing_column(table, name, ours, columns)
    states = join_states([probe.get_col_data(name) for name in names], names, task, table) if names else None
    actions = shape_actions(probe.get_col_data(action), 1, task, table)
    lengths, starts = np.asarray(probe.lengths, np.int64), np.asarray(probe.offsets, np.int64)
    frames = LanceFrames(swm_data.LanceDataset(path=str(table), keys_to_load=[pixels]), len(actions), pixels)
    return Episodes(
        frames=frames,
        actions=actions,
        states=states,
        starts=starts,
        lengths=lengths,
        ids=np.arange(len(starts), dtype=np.int64),
        steps_per_row=1,
        digest=files_digest(table),
        columns=tuple(sorted(columns)),
    )
