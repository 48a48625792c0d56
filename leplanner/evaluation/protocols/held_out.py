"""`heldout`: from episodes that nothing was trained on; `nontrivial`: those that doing nothing does not solve."""

from __future__ import annotations

import numpy as np

from ...core.actions import Array
from ...data.episodes import episodes_for_trials
from ...tasks import Task
from ...tasks.spec import Simulator
from .base import Protocol, TrialRequest


def _shuffled(request: TrialRequest) -> Array:
    rows = request.candidates(episodes_for_trials(request.episodes))
    return np.random.default_rng(request.seed).permutation(rows)


def _any(request: TrialRequest) -> Array:
    return _shuffled(request)[: request.count]


def _not_solved_by_nothing(request: TrialRequest) -> Array:
    if request.simulator is None:
        raise ValueError("The nontrivial protocol needs a simulator, to try whether the no-op policy succeeds.")
    task, sim, chosen = request.task, request.simulator(), list[int]()
    try:
        for row in _shuffled(request):
            if len(chosen) == request.count:
                break
            start, goal = request.pairs(row)
            if not task.success(start, goal) and not no_op_succeeds(task, sim, start, goal, request.budget):
                chosen.append(int(row))
    finally:
        sim.close()
    return np.array(chosen, dtype=np.int64)


def no_op_succeeds(task: Task, sim: Simulator, start: Array, goal: Array, budget: int) -> bool:
    """At any step, as the published convention counts."""
    sim.set_state(start)
    for _ in range(budget):
        sim.step(np.zeros(task.action_dim, np.float32))
        if task.success(sim.state(), goal):
            return True
    return False


HELD_OUT = Protocol("heldout", "from held-out episodes", _any, continues=True)
NONTRIVIAL = Protocol(
    "nontrivial", "held-out, without pairs solved at the start or by doing nothing", _not_solved_by_nothing, True
)
