"""What happens when plans are executed: how the distance to the goal shrinks from replan to replan and where it settles, and how
far imagination drifts from what the environment does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..control.controller import Controller
from ..control.policy import PlannerPolicy, raw_actions
from ..evaluation.manifest import Manifest
from ..planner.planner import TaskPlanner
from ..planner.problem import PlanProblem, goal_distances

Array = np.ndarray
RESAMPLES = 1000


@dataclass(frozen=True)
class ClosedLoopFit:
    """D' = c D + b over consecutive replans; the loop settles at b / (1 - c) if |c| < 1."""

    c: float
    b: float
    fixed_point: float | None  # D*; None where the fit does not converge
    low: float | None  # 95 % bootstrap interval of D*, resampling trials
    high: float | None
    settled: float  # share of the resamples that converge; the interval is of those alone
    pairs: int
    trials: int


@dataclass(frozen=True)
class ClosedLoopTables:
    fit: ClosedLoopFit
    distances: list[list[float]]  # [trial][replan]: latent distance to the goal where it is planned again
    drift: list[float]  # [j - 1]: mean squared distance of imagined and real latents after block j of one whole plan
    drift_of_copying: list[float]  # the same if nothing moved: what an imagination must beat
    data_drift: list[float]  # the data's own actions from the same starts, imagined from the same contexts: the control
    data_drift_of_copying: list[float]
    trials: int


def closed_loop_tables(
    planner: TaskPlanner,
    sim: Any,
    manifest: Manifest,
    trials: int,
    on_trial: Callable[[int, int], None] = lambda done, total: None,
) -> ClosedLoopTables:
    chosen = manifest.trials[:trials]
    distances, drifts = [], []
    size = planner.world.spec.frame_size
    for number, trial in enumerate(chosen):
        start, goal = np.array(trial.start_state), np.array(trial.goal_state)
        sim.set_state(goal)
        picture = sim.render(size)
        distances.append(_replanned(planner, sim, start, picture, manifest.budget))
        drifts.append(_drift(planner, sim, start, picture, np.array(trial.actions, np.float32)))
        on_trial(number + 1, len(chosen))
    ours, ours_still, data, data_still = np.mean(drifts, axis=0).tolist()
    return ClosedLoopTables(fit_closed_loop(distances), distances, ours, ours_still, data, data_still, len(chosen))


def fit_closed_loop(distances: list[list[float]], seed: int = 0) -> ClosedLoopFit:
    """Least squares over all pairs of consecutive replans of all trials."""
    c, b = _least_squares(distances)
    rng = np.random.default_rng(seed)
    settled = []
    for _ in range(RESAMPLES):
        drawn = rng.integers(0, len(distances), len(distances))
        slope, floor = _least_squares([distances[i] for i in drawn])
        if abs(slope) < 1:
            settled.append(floor / (1 - slope))
    low, high = np.quantile(settled, [0.025, 0.975]).tolist() if settled else (None, None)
    pairs = sum(len(row) - 1 for row in distances)
    share = len(settled) / RESAMPLES
    return ClosedLoopFit(c, b, b / (1 - c) if abs(c) < 1 else None, low, high, share, pairs, len(distances))


def _least_squares(distances: list[list[float]]) -> tuple[float, float]:
    before = np.concatenate([row[:-1] for row in distances])
    after = np.concatenate([row[1:] for row in distances])
    if len(before) < 2 or np.ptp(before) == 0:
        raise ValueError(f"{len(before)} pairs of replans do not determine a line; diagnose more trials.")
    c, b = np.polyfit(before, after, 1)
    return float(c), float(b)


def _replanned(planner: TaskPlanner, sim: Any, start: Array, goal: Array, budget: int) -> list[float]:
    """Latent distances to the goal at every replan, one block apart, and at the end."""
    controller = Controller(PlannerPolicy(planner), planner.world)
    controller.reset(goal)
    sim.set_state(start)
    size, found = len(goal), []
    for step in range(budget):
        frame = sim.render(size) if controller.needs_frame else None
        if frame is not None and step % controller.block == 0:
            found.append(_distance(planner, frame, goal))
        sim.step(controller.act(frame))
    return [*found, _distance(planner, sim.render(size), goal)]


def _distance(planner: TaskPlanner, frame: Array, goal: Array) -> float:
    latent, wanted = planner.world.encode(np.stack([frame, goal]))
    return goal_distances(latent[None, None], wanted[None]).item()


def opening(planner: TaskPlanner, sim: Any, start: Array, goal: Array) -> PlanProblem:
    """The problem of a trial's first decision: the start repeated, nothing done before."""
    spec, shape = planner.world.spec, planner.model.config
    sim.set_state(start)
    now, wanted = planner.world.encode(np.stack([sim.render(len(goal)), goal])).unsqueeze(1)
    zero = torch.from_numpy(spec.action_scale.zero_block(spec.block))
    return PlanProblem(now.expand(1, shape.context, -1), zero.expand(1, shape.context - 1, -1).to(now), wanted)


def executed_blindly(sim: Any, start: Array, actions: Array, block: int, size: int) -> Array:
    """The frames after each block of actions."""
    sim.set_state(start)
    frames = []
    for step, action in enumerate(actions, start=1):
        sim.step(action)
        if step % block == 0:
            frames.append(sim.render(size))
    return np.stack(frames)


def _drift(planner: TaskPlanner, sim: Any, start: Array, goal: Array, taken: Array) -> list[Array]:
    """One whole plan executed without looking, then what the data did from there: (4, H), of each its drift and copying's."""
    spec, shape = planner.world.spec, planner.model.config
    problem = opening(planner, sim, start, goal)
    plan, now = planner.plan(problem), problem.context[:, -1]
    actions = taken.reshape(-1, spec.action_dim)[: shape.horizon * spec.block]
    blocks = torch.from_numpy(spec.action_scale.standardise(actions)).to(now).reshape(1, -1, shape.block_dim)
    led = planner.world.rollout(problem.context, problem.past_blocks, blocks)
    found = []
    for executed, imagined in ((raw_actions(plan.blocks, planner.model.box)[0], plan.latents), (actions, led)):
        real = planner.world.encode(executed_blindly(sim, start, executed, spec.block, len(goal)))
        found += [_mean_square(imagined[0] - real), _mean_square(now - real)]
    return found


def _mean_square(difference: torch.Tensor) -> Array:
    return difference.square().mean(dim=-1).cpu().numpy()
