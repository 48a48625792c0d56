"""Films a trial: looks at the simulator from beside, and asks the planner afterwards what it thought. Neither is seen by a method."""

from __future__ import annotations

import numpy as np
import torch

from ..control.policy import Policy, Request
from ..planner.planner import TaskPlanner
from ..planner.problem import PlanProblem
from ..tasks import Task
from ..tasks.spec import Simulator
from .films import EVERY, Film, Thoughts
from .properties import OURS

FILM_PX = 160
VISIBLE = 24  # of 255: a smaller difference between two frames is not seen


class Camera:
    """Looks at a simulator every other step, and at the end."""

    def __init__(self, task: Task, sim: Simulator, goal: np.ndarray, budget: int):
        self.task, self.sim, self.budget, self.goal_state = task, sim, budget, goal
        sim.set_state(goal)
        self.goal = sim.render(FILM_PX)
        self.target = np.ones((FILM_PX, FILM_PX), bool)
        for number in (0, 1):
            sim.set_state(task.away(goal, number))
            self.target &= np.abs(self.goal.astype(int) - sim.render(FILM_PX)).max(axis=-1) > VISIBLE
        self.frames: list[np.ndarray] = []
        self.steps: list[int] = []

    def look(self, step: int) -> None:
        if step % EVERY == 0 or step == self.budget:
            self.frames.append(self.sim.render(FILM_PX))
            self.steps.append(step)

    def film(self, states: np.ndarray, thoughts: Thoughts) -> Film:
        goal = self.goal_state
        reached, error = np.asarray(self.task.success(states, goal)), np.asarray(self.task.error(states, goal))
        seen = (np.stack(self.frames), np.array(self.steps), self.goal, self.target)
        return Film(*seen, reached, error, states, thoughts)


class Remembered:
    """A policy, the problems it was given and what it decided: what it thought is looked up when the trial is over, and costs it
    no time."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.name, self.frames, self.stride = policy.name, policy.frames, policy.stride
        self.problems: list[PlanProblem] = []
        self.decided: list[np.ndarray] = []  # raw actions (B, T, d_a)

    @property
    def rows(self) -> int:
        return self.policy.rows

    def decide(self, request: Request) -> np.ndarray:
        actions = self.policy.decide(request)
        self.problems.append(request.problem)
        self.decided.append(actions)
        return actions

    @torch.no_grad()
    def thoughts(self, planner: TaskPlanner, every: int) -> Thoughts:
        """`every`: environment steps between two decisions."""
        if self.name not in OURS:
            return Thoughts.none()
        parts = zip(*((p.context, p.past_blocks, p.goal) for p in self.problems), strict=True)
        problem = PlanProblem(*(torch.cat(part) for part in parts))
        plans = planner.plan(problem, record="trace").plans
        distances = torch.stack([plan.distances for plan in plans], dim=1)
        decided = planner.world.spec.action_scale.standardise(np.concatenate(self.decided))
        blocks = torch.from_numpy(decided).to(problem.goal).view_as(plans[-1].blocks)
        imagined = planner.imagine(problem, blocks).half()
        return Thoughts(np.arange(len(imagined)) * every, distances.float().cpu().numpy(), imagined.cpu().numpy())
