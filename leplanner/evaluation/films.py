"""Films of trials: frames drawn for people, apart from those that a method sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..artifacts import write_arrays
from ..tasks import Task
from ..tasks.spec import Simulator

FILM_PX = 160
EVERY = 2  # environment steps between two frames


@dataclass(frozen=True)
class Film:
    frames: np.ndarray  # (F, S, S, 3) uint8, the start first
    goal: np.ndarray  # (S, S, 3)
    steps: np.ndarray  # (F,) environment steps done
    reached: np.ndarray  # (F,) whether the goal is reached there
    error: np.ndarray  # (F,) in the task's unit


class Camera:
    """Looks at a simulator every other step."""

    def __init__(self, sim: Simulator, goal: np.ndarray):
        sim.set_state(goal)
        self.sim, self.goal_state, self.goal = sim, goal, sim.render(FILM_PX)
        self.frames: list[np.ndarray] = []
        self.states: list[np.ndarray] = []
        self.steps: list[int] = []

    def look(self, step: int) -> None:
        if step % EVERY == 0:
            self.frames.append(self.sim.render(FILM_PX))
            self.states.append(self.sim.state())
            self.steps.append(step)

    def film(self, task: Task) -> Film:
        states = np.stack(self.states)
        reached, error = task.success(states, self.goal_state), task.error(states, self.goal_state)
        return Film(np.stack(self.frames), self.goal, np.array(self.steps), np.asarray(reached), np.asarray(error))


def film_path(folder: Path, method: str, replan: int, trial: int) -> Path:
    return folder / f"{method}-m{replan}-{trial:04d}.npz"


def save_film(film: Film, path: Path) -> None:
    write_arrays(path, vars(film))


def load_film(path: Path) -> Film:
    with np.load(path) as arrays:
        return Film(**{name: arrays[name] for name in arrays.files})
