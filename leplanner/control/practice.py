"""Practice: the planner plays, towards where the data went. What its plans really did is then data to refine the world on.

A plan is searched for where the world imagines well of it, so it finds what the world has wrong. Behaviour data never goes
there; only acting on plans shows it. Where a task says how a missed goal is corrected, some episodes show that instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..data.episodes import Episodes, open_episodes, split
from ..planner.planner import TaskPlanner
from ..tasks import get_task
from ..tasks.spec import Array, Behaviour, Simulator, SmoothNoise
from .controller import Controller
from .loaded import load
from .policy import PlannerPolicy, Request


@dataclass(frozen=True)
class Practice:
    """A player for `collect`: every episode starts on a row of a training episode, and a plan's goal is a later one."""

    bundle: Path
    data: Path
    farthest: int = 8  # blocks from start to goal, at most
    noisy_share: float = 0.5  # of the planner's episodes: with smooth noise, so that plans' neighbourhoods are seen too
    noise: float = 0.2  # its greatest size, as a share of the actions' spread
    correcting_share: float = 0.4  # of all episodes, if the task has such a behaviour: played by it, for no goal

    def identity(self) -> dict[str, str]:
        planner, episodes, _ = _opened(self.bundle, self.data)
        settings = f"farthest {self.farthest}, noisy {self.noisy_share}, noise {self.noise}"
        if get_task(planner.world.spec.task).correcting:
            settings += f", correcting {self.correcting_share}"
        return {"practised_by": planner.digest, "practised_on": episodes.digest, "practice": settings, "played": "rows"}

    def begin(self, sim: Simulator, rng: np.random.Generator) -> tuple[Behaviour, tuple[int, int]]:
        planner, episodes, starts = _opened(self.bundle, self.data)
        assert episodes.states is not None
        stride = episodes.rows_per_block(planner.world.spec.block)
        row = int(starts[rng.integers(len(starts))])
        episode = int(np.searchsorted(episodes.starts, row, side="right")) - 1
        correcting = get_task(planner.world.spec.task).correcting
        if correcting and rng.random() < self.correcting_share:
            sim.set_state(episodes.states[row])
            return correcting(sim, rng), (-1, -1)
        ahead = (int(episodes.starts[episode] + episodes.lengths[episode]) - 1 - row) // stride
        goal = row + stride * int(rng.integers(1, min(ahead, self.farthest) + 1))
        sim.set_state(episodes.states[goal])
        picture = sim.render(planner.world.spec.frame_size)
        sim.set_state(episodes.states[row])
        noise = self.noise * rng.random() if rng.random() < self.noisy_share else 0.0
        execute = int(rng.integers(1, planner.model.config.horizon + 1))
        executed = execute * planner.world.spec.block
        policy = Unsteady(PlannerPolicy(planner), executed, noise, rng)
        controller = Controller(policy, planner.world, execute)
        controller.reset(picture)
        return controller, (row, goal)


class Unsteady:
    """A planner's policy with smooth noise on what is executed; the controller knows what was done, not what was meant."""

    def __init__(self, policy: PlannerPolicy, executed: int, noise: float, rng: np.random.Generator):
        self.policy, self.executed = policy, executed
        self.name, self.frames, self.stride = policy.name, policy.frames, policy.stride
        spec = policy.planner.model.box
        self.low, self.high, self.spread = spec.low, spec.high, noise * np.asarray(spec.std)
        self.smooth = SmoothNoise(rng, len(spec.std), memory=0.9)

    @property
    def rows(self) -> int:
        return self.policy.rows

    def decide(self, request: Request) -> Array:
        actions = self.policy.decide(request)
        for step in range(self.executed):
            actions[:, step] += self.spread * self.smooth.draw()
        return np.clip(actions, self.low, self.high)


@lru_cache(maxsize=1)
def _opened(bundle: Path, data: Path) -> tuple[TaskPlanner, Episodes, Array]:
    """The planner, the episodes and the rows to start from; opened once in a process."""
    planner = load(bundle)
    task = get_task(planner.world.spec.task)
    episodes = open_episodes(data, task, in_memory=False)
    if episodes.states is None:
        raise ValueError(
            f"{data} holds no states, so no episode can start where one of its rows was. Collect data with states."
        )
    train, _ = split(episodes)
    starts = episodes.episode_rows(train, ahead=episodes.rows_per_block(planner.world.spec.block))
    return planner, episodes, starts
