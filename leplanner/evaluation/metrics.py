"""What a trial's visited states say: success by three conventions, a stricter verdict, the error left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..tasks import Task

HOLD_STEPS = 5


@dataclass(frozen=True)
class Outcome:
    success_any: bool  # at any step: the published convention
    success_final: bool
    success_held: bool  # at each of the last 5 steps
    strict: bool  # the task's stricter verdict
    first_success: int | None  # environment step, from 1
    final_error: float  # in the task's unit


def judge(task: Task, states: np.ndarray, goal: np.ndarray) -> Outcome:
    """States (T+1, S): the start, and one after each action. The start itself never counts as success."""
    reached = np.asarray(task.success(states[1:], goal), bool)
    return Outcome(
        success_any=bool(reached.any()),
        success_final=bool(reached[-1]),
        success_held=bool(reached[-HOLD_STEPS:].all()),
        strict=bool(task.strict(states, goal)),
        first_success=int(np.argmax(reached)) + 1 if reached.any() else None,
        final_error=float(task.error(states[-1], goal)),
    )
