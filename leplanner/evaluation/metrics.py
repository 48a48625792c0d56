"""What a trial's visited states say. Every metric is declared once; rows, tables and reports follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..core.registry import Registry
from ..tasks import Task
from ..tasks.spec import Verdict

HOLD_STEPS = 5
EARLIER_STRICT = "earlier_strict"  # TwoRoom's was another verdict, see docs/explanation/evaluation.md
HEADLINE = "any"  # the metric of paired differences: the published convention


@dataclass(frozen=True)
class Metric:
    """`rate`: true or false, shown as a percentage with its interval. `value`: a number, shown as its median. None
    where the task does not say."""

    name: str
    title: str
    kind: Literal["rate", "value"]
    # (task, states (T+1, S), goal (S,)); None: only earlier results have it
    compute: Callable[[Task, np.ndarray, np.ndarray], Any] | None
    about: str = ""  # a sentence for readers of a report
    in_task_units: bool = False  # a value in the unit of the task's error

    def title_in(self, unit: str) -> str:
        return f"{self.title}, {unit}" if self.in_task_units and unit else self.title


METRICS: Registry[Metric] = Registry("metric", "leplanner.metrics")


def score_states(task: Task, states: np.ndarray, goal: np.ndarray) -> dict[str, Any]:
    """The outcome of a trial: states (T+1, S), the start and one after each action. The start
    itself never counts as success."""
    return {m.name: m.compute(task, states, goal) for m in METRICS.values() if m.compute is not None}


def metrics_of(kind: Literal["rate", "value"]) -> list[Metric]:
    return [metric for metric in METRICS.values() if metric.kind == kind]


def by_current_names(values: dict[str, Any]) -> dict[str, Any]:
    """Values by metric, of results of any age: before there was `moderate`, `strict` was another verdict."""
    if "moderate" in values:
        return values
    return {EARLIER_STRICT if name == "strict" else name: value for name, value in values.items()}


def _reached(task: Task, states: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return np.asarray(task.success(states[1:], goal), bool)


def _first(task: Task, states: np.ndarray, goal: np.ndarray) -> int | None:
    reached = _reached(task, states, goal)
    return int(np.argmax(reached)) + 1 if reached.any() else None


for metric in (
    Metric(
        "any",
        "any time",
        "rate",
        lambda task, states, goal: bool(_reached(task, states, goal).any()),
        "The goal is reached at some step of the trial.",
    ),
    Metric(
        "final",
        "final",
        "rate",
        lambda task, states, goal: bool(_reached(task, states, goal)[-1]),
        "The goal is reached at the last step.",
    ),
    Metric(
        "held",
        f"held {HOLD_STEPS} steps",
        "rate",
        lambda task, states, goal: bool(_reached(task, states, goal)[-HOLD_STEPS:].all()),
        f"The goal is reached at each of the last {HOLD_STEPS} steps.",
    ),
    Metric(
        "moderate",
        "moderate",
        "rate",
        lambda task, states, goal: task.clear_lewm.moderate.passed(states, goal) if task.clear_lewm else None,
        "The moderate verdict of CLEAR-LeWM v0.9, at any step.",
    ),
    Metric(
        "strict",
        "strict",
        "rate",
        lambda task, states, goal: task.clear_lewm.strict.passed(states, goal) if task.clear_lewm else None,
        "The strict verdict of CLEAR-LeWM v0.9, at any step.",
    ),
    Metric(
        EARLIER_STRICT,
        "strict (earlier)",
        "rate",
        None,
        "What was called strict before it was CLEAR-LeWM's; kept for results that were measured with it.",
    ),
    Metric(
        "object",
        "object alone",
        "rate",
        lambda task, states, goal: Verdict(task.object_success).passed(states, goal) if task.object_success else None,
        "The object reaches its goal at some step, wherever the agent is: the paper's success on PushT.",
    ),
    Metric(
        "first_success",
        "first success, step",
        "value",
        _first,
        "Median over the trials that reached the goal.",
    ),
    Metric(
        "final_error",
        "final error",
        "value",
        lambda task, states, goal: float(task.error(states[-1], goal)),
        "Distance to the goal at the last step, median.",
        in_task_units=True,
    ),
):
    METRICS.register(metric)
