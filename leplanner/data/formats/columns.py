"""Columns of any format, checked against the task."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...tasks import Task
from ..episodes import Array


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
            f"{path}: the state ({', '.join(names)}) has {states.shape[1]} numbers a row, but {task.title}'s "
            f"state has {task.state_dim}."
        )
    broken = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if len(broken):
        raise ValueError(
            f"{path}: the state ({', '.join(names)}) is not finite in {len(broken)} rows (first: row {broken[0]})."
        )
    return states


def state_columns(columns: set[str], task: Task | None) -> tuple[str, ...]:
    """The columns that make up the physical state: the first of the task's layouts that the
    dataset has; none if it has none."""
    layouts = (("state",), *(task.state_columns if task is not None else ()))
    return next((names for names in layouts if set(names) <= columns), ())
