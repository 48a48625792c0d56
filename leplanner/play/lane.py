"""One controller on its way to a goal, in a simulator of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..control.controller import Controller
from ..control.policy import Policy
from ..core.actions import Array
from ..evaluation.capture import RecordingPolicy
from ..planner.planner import Planner
from ..tasks.spec import Simulator
from .bundle import PlayBundle
from .overlay import draw_overlay

HOLD_STEPS = 5  # as `held` in an evaluation


@dataclass(frozen=True)
class Numbers:
    """What a lane has done so far."""

    title: str
    step: int  # environment actions
    distance: float  # to the goal, in the task's unit
    within: int  # steps that the goal has been reached without a break, until now
    first_reached: int | None  # the step
    decision_ms: float | None  # of the last decision, encoding included; None before the first
    transitions: int | None  # of the predictor, in that decision

    @property
    def reached(self) -> bool:
        return self.within > 0

    @property
    def held(self) -> bool:
        return self.within >= HOLD_STEPS


class Lane:
    def __init__(self, bundle: PlayBundle, title: str):
        self.bundle, self.task, self.title = bundle, bundle.task, title
        self.sim: Simulator = self.task.simulate(bundle.planner.world.spec.visuals)
        self.plan: Array | None = None  # (1 + H, P, 2) of the last decision

    def frame(self, state: Array, size: int) -> Array:
        self.sim.set_state(state)
        return self.sim.render(size)

    def begin(self, start: Array, goal: Array, planner: Planner, policy: Policy, execute: int) -> None:
        """At the start, with a goal and a controller; nothing moves yet."""
        self.planner, self.goal = planner, goal
        self.recording = RecordingPolicy(policy)
        self.controller = Controller(self.recording, planner.world, execute, encode=planner.encode)
        self.controller.reset(self.frame(goal, planner.world.spec.frame_size))
        self.plan, self.within, self.first_reached = None, 0, None
        self.sim.set_state(start)
        self._look()

    def step(self) -> None:
        frame = self.sim.render(self.planner.world.spec.frame_size) if self.controller.needs_frame else None
        action = self.controller.act(frame)
        if self.recording.problems:
            self._draw_plan()
        self.sim.step(action)
        self._look()

    def put(self, state: Array) -> None:
        """The scene was changed from outside; the controller sees it when it looks again."""
        self.sim.set_state(state)
        self.within = 0

    def _look(self) -> None:
        self.within = self.within + 1 if bool(self.task.success(self.sim.state(), self.goal)) else 0
        if self.within and self.first_reached is None:
            self.first_reached = self.controller.step

    @torch.no_grad()
    def _draw_plan(self) -> None:
        """Where the decision just made is imagined to lead; after the clock has stopped."""
        problem, decided = self.recording.problems.pop(), self.recording.decided.pop()
        if self.bundle.projection is None or self.task.plan_view is None:
            return
        blocks = torch.from_numpy(self.planner.model.actions.blocks(decided)).to(problem.goal)
        imagined = self.bundle.projection.points(self.planner.imagine(problem, blocks))[0]
        self.plan = np.concatenate([self.task.plan_view(self.sim.state()[None]), imagined])

    def picture(self, size: int, edge: Array) -> Array:
        """The scene now; over it the plan, and the outline of what should be where."""
        return draw_overlay(self.sim.render(size), self.plan, edge)

    @property
    def numbers(self) -> Numbers:
        decision = self.controller.decisions[-1] if self.controller.decisions else None
        return Numbers(
            title=self.title,
            step=self.controller.step,
            distance=float(self.task.error(self.sim.state(), self.goal)),
            within=self.within,
            first_reached=self.first_reached,
            decision_ms=decision.encode_ms + decision.plan_ms if decision else None,
            transitions=decision.transitions if decision else None,
        )

    def close(self) -> None:
        self.sim.close()
