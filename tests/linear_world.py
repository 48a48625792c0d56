"""A world whose best plans are known: latents move linearly, so that arriving is a bounded least-squares problem."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import lsq_linear

from leplanner.core.actions import ActionSpec
from leplanner.core.dynamics import mean_squared_distance
from leplanner.core.latent import LatentSpec
from leplanner.core.problem import PlanProblem
from leplanner.data.windows import PlanBatch
from leplanner.planner.model import LePlanner, PlannerConfig

LATENT, HORIZON, OFFSET, HOLD = 4, 5, 3, 0.5
ACTIONS = ActionSpec((0.1, -0.2), (0.5, 0.4), (-1.0, -1.0), (1.0, 1.0), block=1)  # blocks of one action of two numbers
SHAPE = PlannerConfig(width=48, depth=1, heads=4, dropout=0.0)


def make_model() -> LePlanner:
    return LePlanner(SHAPE, LatentSpec((LATENT,)), 3, ACTIONS)


class LinearWorld:
    """z' = M z + G b, from the last context latent."""

    latent = LatentSpec((LATENT,))

    def __init__(self):
        rng = np.random.default_rng(0)
        turn, _ = np.linalg.qr(rng.normal(size=(LATENT, LATENT)))
        self.move = torch.tensor(0.95 * turn, dtype=torch.float32)
        self.push = torch.tensor(0.3 * rng.normal(size=(LATENT, 2)), dtype=torch.float32)

    def rollout(self, context, past_blocks, plan):
        z, latents = context[:, -1], []
        for j in range(plan.shape[1]):
            z = z @ self.move.T + plan[:, j] @ self.push.T
            latents.append(z)
        return torch.stack(latents, dim=1)

    def distance(self, latents, goal):
        return mean_squared_distance(latents, goal)


def draw(rng: np.random.Generator, count: int, max_offset: int = HORIZON) -> PlanBatch:
    """Goals a little beyond what bounded actions reach, so that the optimum costs something; all OFFSET blocks away."""
    context = rng.normal(size=(count, 3, LATENT)).astype(np.float32)
    past_blocks = rng.normal(size=(count, 2, 2)).astype(np.float32)
    goal = (context[:, -1] + rng.normal(size=(count, LATENT))).astype(np.float32)
    return PlanBatch(
        context=context,
        past_blocks=past_blocks,
        goal=goal,
        offset=np.full(count, OFFSET),
        first_block=np.zeros((count, 2), np.float32),
        reference=np.repeat(goal[:, None], HORIZON, axis=1),
        reference_known=np.zeros(count, bool),
    )


def problem_of(batch: PlanBatch) -> PlanProblem:
    return PlanProblem(*(torch.from_numpy(part) for part in (batch.context, batch.past_blocks, batch.goal)))


def optimal_plan(world: LinearWorld, start: np.ndarray, goal: np.ndarray) -> tuple[float, np.ndarray]:
    """The least arrival-and-hold cost within the action box and the plan that has it, by SciPy: weighted
    residuals, linear in the plan."""
    move, push = world.move.numpy().astype(float), world.push.numpy().astype(float)
    weights = np.zeros(HORIZON)
    weights[OFFSET - 1], weights[OFFSET:] = 1.0, HOLD / (HORIZON - OFFSET)
    rows, targets = [], []
    for j in range(1, HORIZON + 1):
        effect = np.zeros((LATENT, HORIZON, 2))
        for i in range(j):
            effect[:, i] = np.linalg.matrix_power(move, j - 1 - i) @ push
        root = np.sqrt(weights[j - 1] / LATENT)
        rows.append(root * effect.reshape(LATENT, -1))
        targets.append(root * (goal - np.linalg.matrix_power(move, j) @ start))
    center, scale = ACTIONS.center.double().numpy(), ACTIONS.scale.double().numpy()
    low, high = np.tile(center - scale, HORIZON), np.tile(center + scale, HORIZON)
    found = lsq_linear(np.concatenate(rows), np.concatenate(targets), (low, high))
    return 2 * found.cost, found.x.reshape(HORIZON, 2)
