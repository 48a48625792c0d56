"""Records a trial: frames of the simulator, and afterwards the traces of the plans. A method sees neither."""

from __future__ import annotations

import numpy as np
import torch

from ..control.methods import methods_of
from ..control.policy import Policy, Request
from ..core.problem import PlanProblem
from ..planner.planner import Planner
from ..tasks import Task
from ..tasks.spec import Simulator
from .videos import EVERY, PlanTraceLog, Video

VIDEO_PX = 160
VISIBLE = 24  # of 255: a smaller difference between two frames is not seen


def goal_and_target(task: Task, sim: Simulator, goal: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A goal's picture, and which of its pixels show what is scored (none, if the task does not say what that is)."""
    sim.set_state(goal)
    picture = sim.render(size)
    target = np.full((size, size), task.away is not None)
    if task.away:
        for number in (0, 1):
            sim.set_state(task.away(goal, number))
            target &= np.abs(picture.astype(int) - sim.render(size)).max(axis=-1) > VISIBLE
    return picture, target


class Camera:
    """Looks at a simulator every other step, and at the end."""

    def __init__(self, task: Task, sim: Simulator, goal: np.ndarray, budget: int):
        self.task, self.sim, self.budget, self.goal_state = task, sim, budget, goal
        self.goal, self.target = goal_and_target(task, sim, goal, VIDEO_PX)
        self.frames: list[np.ndarray] = []
        self.steps: list[int] = []

    def capture(self, step: int) -> None:
        if step % EVERY == 0 or step == self.budget:
            self.frames.append(self.sim.render(VIDEO_PX))
            self.steps.append(step)

    def video(self, states: np.ndarray, trace: PlanTraceLog) -> Video:
        goal = self.goal_state
        reached, error = np.asarray(self.task.success(states, goal)), np.asarray(self.task.error(states, goal))
        seen = (np.stack(self.frames), np.array(self.steps), self.goal, self.target)
        return Video(*seen, reached, error, states, trace)


class RecordingPolicy:
    """A policy, the problems it was given and what it decided: plans are traced when the
    trial is over, at no cost to it."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.name, self.frames, self.stride = policy.name, policy.frames, policy.stride
        self.problems: list[PlanProblem] = []
        self.decided: list[np.ndarray] = []  # raw actions (B, T, d_a)

    @property
    def transitions(self) -> int:
        return self.policy.transitions

    def decide(self, request: Request) -> np.ndarray:
        actions = self.policy.decide(request)
        self.problems.append(request.problem)
        self.decided.append(actions)
        return actions

    @torch.no_grad()
    def trace(self, planner: Planner, every: int) -> PlanTraceLog:
        """`every`: environment steps between two decisions."""
        if self.name not in methods_of("ours"):
            return PlanTraceLog.none()
        problem = PlanProblem.cat(self.problems)
        plans = planner.plan(problem, record="trace").plans
        distances = torch.stack([plan.distances for plan in plans], dim=1)
        blocks = torch.from_numpy(planner.model.actions.blocks(np.concatenate(self.decided))).to(problem.goal)
        imagined = planner.imagine(problem, blocks).half()
        return PlanTraceLog(np.arange(len(imagined)) * every, distances.float().cpu().numpy(), imagined.cpu().numpy())
