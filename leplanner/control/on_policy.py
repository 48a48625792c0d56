"""On-policy data: the planner acts, towards where the data went. What its plans really did is then
data to finetune the world on.

A plan is searched for where the world imagines well of it, so it finds what the world has wrong. Behavior
data never goes there; only acting on plans shows it. Where a task says how a missed goal is corrected,
some episodes show that instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..data.episodes import Episodes, split
from ..data.formats import open_episodes
from ..planner.planner import Planner
from ..tasks import get_task
from ..tasks.spec import Array, Behavior, Simulator, SmoothNoise
from .controller import Controller
from .loaded import load
from .policy import PlannerPolicy, Request


@dataclass(frozen=True)
class OnPolicyCollector:
    """For `collect`: every episode starts on a row of a training episode, and its goal is a later one."""

    bundle: str
    data: Path
    farthest: int = 8  # blocks from start to goal, at most
    noise_prob: float = 0.5  # of smooth noise on an episode's actions, so that plans' neighborhoods are seen too
    noise: float = 0.2  # its greatest size, as a share of the actions' spread
    correction_prob: float = 0.4  # of an episode that shows the task's correction instead, if the task has one

    def identity(self) -> dict[str, str]:
        planner, episodes, _ = _opened(self.bundle, self.data)
        settings = f"farthest {self.farthest}, noise_prob {self.noise_prob}, noise {self.noise}"
        if get_task(planner.world.spec.task).correction:
            settings += f", correction_prob {self.correction_prob}"
        return {"source": "planner", "planner": planner.digest, "onto": episodes.digest, "on_policy": settings}

    def begin(self, sim: Simulator, rng: np.random.Generator) -> tuple[Behavior, tuple[int, int]]:
        planner, episodes, starts = _opened(self.bundle, self.data)
        assert episodes.states is not None
        spec = planner.world.spec
        stride = episodes.rows_per_block(spec.actions.block)
        row = int(starts[rng.integers(len(starts))])
        episode = int(np.searchsorted(episodes.starts, row, side="right")) - 1
        correction = get_task(spec.task).correction
        if correction and rng.random() < self.correction_prob:
            sim.set_state(episodes.states[row])
            return correction(sim, rng), (-1, -1)
        ahead = (int(episodes.starts[episode] + episodes.lengths[episode]) - 1 - row) // stride
        goal = row + stride * int(rng.integers(1, min(ahead, self.farthest) + 1))
        sim.set_state(episodes.states[goal])
        picture = sim.render(spec.frame_size)
        sim.set_state(episodes.states[row])
        noise = self.noise * rng.random() if rng.random() < self.noise_prob else 0.0
        execute = int(rng.integers(1, planner.model.config.horizon + 1))
        policy = NoisyPolicy(PlannerPolicy(planner), execute * spec.actions.block, noise, rng)
        controller = Controller(policy, planner.world, execute, encode=planner.encode)
        controller.reset(picture)
        return controller, (row, goal)


class NoisyPolicy:
    """A planner's policy with smooth noise on what is executed; the controller knows what was
    done, not what was planned."""

    def __init__(self, policy: PlannerPolicy, executed: int, noise: float, rng: np.random.Generator):
        self.policy, self.executed = policy, executed
        self.name, self.frames, self.stride = policy.name, policy.frames, policy.stride
        actions = policy.planner.model.actions
        self.low, self.high, self.spread = (
            np.asarray(actions.low, np.float32),
            np.asarray(actions.high, np.float32),
            noise * np.asarray(actions.std),
        )
        self.smooth = SmoothNoise(rng, actions.dim, memory=0.9)

    @property
    def transitions(self) -> int:
        return self.policy.transitions

    def decide(self, request: Request) -> Array:
        actions = self.policy.decide(request)
        for step in range(self.executed):
            actions[:, step] += self.spread * self.smooth.draw()
        return actions.clip(self.low, self.high)


@lru_cache(maxsize=1)
def _opened(bundle: str, data: Path) -> tuple[Planner, Episodes, Array]:
    """The planner, the episodes and the rows to start from; opened once in a process."""
    planner = load(bundle)
    spec = planner.world.spec
    episodes = open_episodes(data, get_task(spec.task), in_memory=False)
    episodes.need_states(f"Episodes start where a row of {data} was")
    train, _ = split(episodes)
    starts = episodes.episode_rows(train, ahead=episodes.rows_per_block(spec.actions.block))
    return planner, episodes, starts
