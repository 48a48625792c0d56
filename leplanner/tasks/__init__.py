"""Tasks by name: the four of the paper, and whatever other packages register."""

from __future__ import annotations

from ..core.registry import Registry
from . import cube, pusht, reacher, tworoom
from .spec import Behavior, ClearLewm, Simulator, Task, Verdict

TASKS: Registry[Task] = Registry("task", "leplanner.tasks", address="leplanner.tasks:TASKS")
for module in (tworoom, pusht, reacher, cube):
    TASKS.register(module.TASK)


def register_task(task: Task) -> Task:
    """Make a task known by its name, to every verb and function of this process."""
    return TASKS.register(task)


def get_task(name: str) -> Task:
    return TASKS.get(name)


def find_task(text: str) -> Task:
    """What a user typed: a registered name, or `package.module:TASK`, which is imported and registered."""
    return TASKS.find(text)


__all__ = [
    "TASKS",
    "Behavior",
    "ClearLewm",
    "Simulator",
    "Task",
    "Verdict",
    "find_task",
    "get_task",
    "register_task",
]
