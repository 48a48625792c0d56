"""Films of trials: frames drawn for people, apart from those that a method sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import digest_json, write_arrays
from ..tasks import Task
from ..tasks.spec import Simulator

FILM_PX = 160
EVERY = 2  # environment steps between two frames


@dataclass(frozen=True)
class Film:
    frames: np.ndarray  # (F, S, S, 3) uint8: the start, every other step, the end
    steps: np.ndarray  # (F,) environment steps done at each frame
    goal: np.ndarray  # (S, S, 3)
    reached: np.ndarray  # (T+1,) whether the goal is reached, at the start and after every step
    error: np.ndarray  # (T+1,) in the task's unit


class Camera:
    """Looks at a simulator every other step, and at the end."""

    def __init__(self, sim: Simulator, goal: np.ndarray, budget: int):
        sim.set_state(goal)
        self.sim, self.budget, self.goal = sim, budget, sim.render(FILM_PX)
        self.frames: list[np.ndarray] = []
        self.steps: list[int] = []

    def look(self, step: int) -> None:
        if step % EVERY == 0 or step == self.budget:
            self.frames.append(self.sim.render(FILM_PX))
            self.steps.append(step)

    def film(self, task: Task, states: np.ndarray, goal: np.ndarray) -> Film:
        reached, error = np.asarray(task.success(states, goal)), np.asarray(task.error(states, goal))
        return Film(np.stack(self.frames), np.array(self.steps), self.goal, reached, error)


def film_path(
    folder: Path, method: str, replan: int, trial: int, manifest: str, seed: int, settings: dict[str, Any], weights: str
) -> Path:
    """The name holds all that decides the film, so that none is taken for another's."""
    identity = digest_json([manifest, seed, settings, weights])[:8]
    return folder / "films" / f"{method}-m{replan}-{trial:04d}-{identity}.npz"


def save_film(film: Film, path: Path) -> None:
    write_arrays(path, vars(film))


def load_film(path: Path) -> Film:
    with np.load(path) as arrays:
        return Film(**{name: arrays[name] for name in arrays.files})
