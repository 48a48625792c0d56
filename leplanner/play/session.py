"""One person's game: a scene, a goal, and the controllers on their way to it, step by step."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from ..control.methods import METHODS, MethodInputs, SearchBudget
from ..control.policy import PlannerPolicy
from ..core.actions import Array
from ..evaluation.capture import goal_and_target
from .bundle import PlayBundle
from .lane import Lane, Numbers
from .overlay import outline

OURS = "LePlanner"  # as shipped: with plan reuse
OPPONENT, OPPONENT_BUDGET = "cem", SearchBudget(samples=100, rounds=10)
BUDGET = 50  # environment actions of the trials that controllers are measured on
AHEAD = 25  # environment actions from a scene to the goal that is taken from the same episode
WARM_UP = (5, 40)  # environment actions before a scene: what people meet is under way, as in the data
SCENES = 20  # tries until a goal is not reached from the start
PICTURE_PX = 384


@dataclass(frozen=True)
class Shown:
    """A lane, to be looked at."""

    picture: Array  # uint8 (PICTURE_PX, PICTURE_PX, 3)
    numbers: Numbers


# stable-worldmodel's solvers print, and what silences them is the whole process's: searches take turns
_one_search = threading.Lock()


class Session:
    """Not thread-safe, and its simulators draw in the thread that made it: see `Player`."""

    def __init__(self, bundle: PlayBundle, seed: int | None = None):
        self.bundle, self.task = bundle, bundle.task
        self.rng = np.random.default_rng(seed)
        self.ours = Lane(bundle, OURS)
        self.theirs: Lane | None = None
        self.refinements, self.execute, self.opponent = bundle.trained_refinements, 1, False
        self.started = False
        self.new_scene()

    @property
    def lanes(self) -> list[Lane]:
        return [self.ours, self.theirs] if self.theirs is not None and self.opponent else [self.ours]

    def new_scene(self) -> None:
        """Somewhere in an episode of the behavior policy, and a goal a little later in it that is not reached yet."""
        sim, spec = self.ours.sim, self.bundle.planner.world.spec
        size, block = spec.frame_size, spec.actions.block
        for _ in range(SCENES):
            sim.start(self.rng)
            behavior = self.task.behavior(sim, self.rng)
            states, frame = [sim.state()], None
            for step in range(int(self.rng.integers(*WARM_UP)) + AHEAD):
                frame = sim.render(size) if step % block == 0 else frame  # as data is collected
                sim.step(np.asarray(behavior.act(frame), np.float32))
                states.append(sim.state())
            self.start, self.goal = states[-1 - AHEAD], states[-1]
            if not self.task.success(self.start, self.goal):
                break
        self.prepare()

    def set_goal(self, click: Array, value: float = 0.0) -> None:
        """What a click on the picture asks for; shares of the frame. Where the controllers are is the new start."""
        if self.task.goal_click is None:
            raise ValueError(f"{self.task.title} has no goals by click. Take one from an episode: New scene.")
        now = self.ours.sim.state()
        self.goal = np.asarray(self.task.goal_click.at(now, np.asarray(click, float), value), float)
        self.start = now
        self.prepare()

    def prepare(self, refinements: int | None = None, execute: int | None = None, opponent: bool | None = None) -> None:
        """All lanes at the start, with settings that may differ from before."""
        self.refinements = self.refinements if refinements is None else refinements
        self.execute = self.execute if execute is None else execute
        self.opponent = self.opponent if opponent is None else opponent
        planner = self.bundle.refined(self.refinements)
        horizon = planner.model.config.horizon
        if not 1 <= self.execute <= horizon:
            raise ValueError(f"m must be between 1 and {horizon}, the blocks of a plan; got {self.execute}.")
        self.ours.begin(self.start, self.goal, planner, PlannerPolicy(planner, reuse=True), self.execute)
        if self.opponent:
            method = METHODS.get(OPPONENT)
            if self.theirs is None:
                self.theirs = Lane(self.bundle, method.title_with(str(OPPONENT_BUDGET)))
            inputs = MethodInputs(self.bundle.planner, BUDGET, search=OPPONENT_BUDGET)
            self.theirs.begin(self.start, self.goal, self.bundle.planner, method.make(inputs)(None), self.execute)
        self.goal_picture, target = goal_and_target(self.task, self.ours.sim, self.goal, PICTURE_PX)
        self.edge = outline(target)
        self.ours.sim.set_state(self.start)
        self.started = False

    def step(self, steps: int = 1) -> None:
        self.started = True
        for _ in range(steps):
            self.ours.step()
            if self.theirs is not None and self.opponent:
                with _one_search:
                    self.theirs.step()

    def push(self) -> None:
        """A shove, the same for all lanes: the task's own, or a block of random actions."""
        seed = int(self.rng.integers(2**31))
        for lane in self.lanes:
            rng = np.random.default_rng(seed)
            if self.task.kick is not None:
                lane.put(self.task.kick(lane.sim.state(), rng))
            else:
                for _ in range(self.bundle.planner.world.spec.actions.block):
                    lane.sim.step(rng.uniform(self.task.low, self.task.high).astype(np.float32))
                lane.put(lane.sim.state())
        if not self.started:
            self.start = self.ours.sim.state()

    @property
    def far(self) -> str | None:
        """A warning where the goal is farther than those that the controller was measured on."""
        error, usual = float(self.task.error(self.start, self.goal)), self.bundle.usual_error
        if usual is None or error <= usual:
            return None
        unit = self.task.error_unit
        return (
            f"This goal is {error:.3g} {unit} away; nine in ten of the goals that this controller was measured on are "
            f"within {usual:.3g} {unit}. It may not arrive."
        )

    def show(self) -> list[Shown]:
        return [Shown(lane.picture(PICTURE_PX, self.edge), lane.numbers) for lane in self.lanes]

    def close(self) -> None:
        for lane in (self.ours, self.theirs):
            if lane is not None:
                lane.close()
