"""Columns of any format: what they are called, and whether they fit the task."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...tasks import Task
from ..episodes import Array

COLUMNS = ("pixels", "action", "state", "ep_len", "ep_offset", "episode_idx")  # as they are called here


def rename_columns(task: Task, text: str) -> Task:
    """The task, for datasets that call columns otherwise. `text`: OURS=THEIRS, separated by commas; a state that is
    spread over several columns is theirs joined by +."""
    named: dict[str, tuple[str, ...]] = {}
    for part in filter(None, text.split(",")):
        ours, _, theirs = (word.strip() for word in part.partition("="))
        names = tuple(theirs.split("+"))
        if ours not in COLUMNS or not all(names) or ours in named or (len(names) > 1 and ours != "state"):
            raise ValueError(
                f"--columns {text!r} cannot be used because of {part!r}. It is a list OURS=THEIRS, each of ours once: "
                f"{', '.join(COLUMNS)}; only a state may be several of theirs. Such as pixels=image,state=qpos+qvel."
            )
        named[ours] = names
    return replace(task, columns=named)


def columns_text(task: Task) -> str:
    """What `rename_columns` was given."""
    return ",".join(f"{ours}={'+'.join(theirs)}" for ours, theirs in task.columns.items())


def column_name(ours: str, task: Task | None) -> str:
    """What the dataset calls one of our columns."""
    return task.columns.get(ours, (ours,))[0] if task is not None else ours


def missing_column(path: Path, name: str, ours: str, found: Collection[str]) -> ValueError:
    """`name` was looked for as `ours`."""
    asked = "" if name == ours else f", which was named as {ours!r}"
    return ValueError(
        f"{path} has no column {name!r}{asked}; found: {', '.join(sorted(found)) or 'nothing'}. A dataset needs pixels "
        "and action, in HDF5 also ep_len and ep_offset (stable-worldmodel's layout). If it has the column under "
        f"another name, say so: --columns {ours}=NAME. Or collect one with: leplanner collect"
    )


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
            f"state has {task.state_dim}. Name the columns that hold it: --columns state=NAME, or state=NAME+NAME."
        )
    broken = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if len(broken):
        raise ValueError(
            f"{path}: the state ({', '.join(names)}) is not finite in {len(broken)} rows (first: row {broken[0]})."
        )
    return states


def state_columns(found: Collection[str], width: Callable[[str], int], task: Task | None) -> tuple[str, ...]:
    """The columns that make up the physical state: those that were named; else of the layouts that the dataset has the
    first that is as wide as the task's state; none if it has none."""
    if task is not None and "state" in task.columns:
        return task.columns["state"]
    layouts = (("state",), *(task.state_columns if task is not None else ()))
    there = [names for names in layouts if set(names) <= set(found)]
    fitting = [names for names in there if task is None or sum(map(width, names)) == task.state_dim]
    return next(iter(fitting or there), ())
