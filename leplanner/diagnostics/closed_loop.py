"""What happens when plans are executed: how the distance to the goal shrinks from replan to replan, where it settles,
and how far imagination drifts from what the environment does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ..control.controller import Controller
from ..control.policy import PlannerPolicy
from ..core.actions import Array
from ..core.dynamics import pairwise_distance
from ..core.problem import PlanProblem
from ..data.context import fill_context
from ..evaluation.manifest import Manifest
from ..planner.planner import Planner
from ..tasks.spec import Simulator

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
    """Distances are the world's own measure."""

    fit: ClosedLoopFit
    distances: list[list[float]]  # [trial][replan]: latent distance to the goal at every replan, and at the end
    drift: list[float]  # [j - 1]: mean distance of imagined and real latents after block j of one whole plan
    drift_of_copying: list[float]  # the same for an imagination in which nothing moves: what a world must beat
    data_drift: list[float]  # the data's own actions from the same starts, imagined from the same contexts: the control
    data_drift_of_copying: list[float]
    trials: int


def closed_loop_tables(
    planner: Planner,
    sim: Simulator,
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
        distances.append(_distances_at_replans(planner, sim, start, picture, manifest.budget))
        drifts.append(_drift(planner, sim, start, picture, np.array(trial.actions, np.float32)))
        on_trial(number + 1, len(chosen))
    # each on its own: the data may have fewer blocks than a plan
    ours, ours_still, data, data_still = (np.mean(part, axis=0).tolist() for part in zip(*drifts, strict=True))
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


def _distances_at_replans(planner: Planner, sim: Simulator, start: Array, goal: Array, budget: int) -> list[float]:
    """Latent distances to the goal at every replan, one block apart, and at the end."""
    controller = Controller(PlannerPolicy(planner), planner.world, encode=planner.encode)
    controller.reset(goal)
    sim.set_state(start)
    size, distances = len(goal), []
    for step in range(budget):
        frame = sim.render(size) if controller.needs_frame else None
        if frame is not None and step % controller.block == 0:
            distances.append(_distance(planner, frame, goal))
        sim.step(controller.act(frame))
    return [*distances, _distance(planner, sim.render(size), goal)]


def _distance(planner: Planner, frame: Array, goal: Array) -> float:
    latent, target = planner.encode(np.stack([frame, goal])).unsqueeze(1)
    return planner.world.distance(latent.unsqueeze(1), target).item()


def opening(planner: Planner, sim: Simulator, start: Array, goal: Array) -> PlanProblem:
    """The problem of a trial's first decision, of which only the start's frame is known."""
    spec = planner.world.spec
    sim.set_state(start)
    latent, target = planner.encode(np.stack([sim.render(len(goal)), goal])).unsqueeze(1)
    context, past_blocks = fill_context([latent], [], spec.context, spec.actions)
    return PlanProblem(context, past_blocks, target)


def open_loop_frames(sim: Simulator, start: Array, actions: Array, block: int, size: int) -> Array:
    """The frames after each block of actions, executed without looking."""
    sim.set_state(start)
    frames = []
    for step, action in enumerate(actions, start=1):
        sim.step(action)
        if step % block == 0:
            frames.append(sim.render(size))
    return np.stack(frames)


@torch.no_grad()
def _drift(planner: Planner, sim: Simulator, start: Array, goal: Array, taken: Array) -> list[Array]:
    """One whole plan executed without looking, then what the data did from the same start: for each the drift after
    every block, and that of copying the first latent."""
    world, actions = planner.world, planner.world.spec.actions
    problem = opening(planner, sim, start, goal)
    plan = planner.plan(problem)
    blocks = min(planner.model.config.horizon, len(taken) // actions.block)
    raw = taken[: blocks * actions.block]
    data_blocks = torch.from_numpy(actions.blocks(raw[None])).to(problem.goal)
    data_latents = world.rollout(problem.context, problem.past_blocks, data_blocks)
    drifts = []
    for executed, imagined in ((actions.raw_actions(plan.blocks)[0], plan.latents), (raw, data_latents)):
        real = planner.encode(open_loop_frames(sim, start, executed, actions.block, len(goal))).unsqueeze(0)
        drift = pairwise_distance(planner.dynamics, imagined, real)
        copying = world.distance(real, problem.context[:, -1])
        drifts += [drift[0].cpu().numpy(), copying[0].cpu().numpy()]
    return drifts
