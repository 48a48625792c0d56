"""The four tasks, by name."""

from . import cube, pusht, reacher, tworoom
from .spec import Behaviour, Simulator, Task

TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in (tworoom, pusht, reacher, cube)}


def get_task(name: str) -> Task:
    if name not in TASKS:
        raise ValueError(f"Unknown task {name!r}. Known tasks: {', '.join(TASKS)}.")
    return TASKS[name]


__all__ = ["TASKS", "Behaviour", "Simulator", "Task", "get_task"]
