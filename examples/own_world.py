"""A world model, a dataset and an environment of your own: a sliding dot, whose model is known exactly.

Run: python examples/own_world.py
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

import leplanner as lp
from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.core.dynamics import mean_squared_distance
from leplanner.data.windows import PlanWindows
from leplanner.planner.model import LePlanner, PlannerConfig
from leplanner.planner.train import PlannerTrainConfig, fit_planner
from leplanner.training.runtime import Runtime

BLOCK, FADE, PUSH = 5, 0.8, 0.05  # actions in a block; what is left of a speed after a step; speed by a unit action
LATENT = lp.LatentSpec((4,))


class SlidingDot:
    """The environment: state is x, y and speed, an action pushes. Here the latent is the state itself."""

    def __init__(self, place):
        self.state = np.array([*place, 0.0, 0.0])

    def step(self, action):
        speed = FADE * self.state[2:] + PUSH * np.clip(action, -1, 1)
        self.state = np.concatenate([self.state[:2] + speed, speed])


class DotWorld:
    """The world model: the latent's shape, where plans lead, and how far that is from a goal;
    gradients flow through both."""

    latent = LATENT

    def __init__(self, actions):
        self.mean, self.std = torch.tensor(actions.mean), torch.tensor(actions.std)

    def rollout(self, context, past_blocks, plan):
        state, latents = context[:, -1], []
        for block in plan.unbind(1):  # standardized (B, 5 * 2)
            for action in (block.unflatten(-1, (BLOCK, 2)) * self.std + self.mean).unbind(1):
                speed = FADE * state[:, 2:] + PUSH * action
                state = torch.cat([state[:, :2] + speed, speed], dim=-1)
            latents.append(state)
        return torch.stack(latents, dim=1)

    def distance(self, latents, goal):
        return mean_squared_distance(latents, goal)


def collect(rng, episodes=300, steps=60):
    """The dataset: random pushes with pauses. Pixels are not needed where latents are known."""
    states, actions = np.empty((episodes, steps + 1, 4)), np.full((episodes, steps + 1, 1, 2), np.nan, np.float32)
    for episode in range(episodes):
        dot, push = SlidingDot(rng.uniform(-1, 1, 2)), np.zeros(2)
        for step in range(steps + 1):
            states[episode, step] = dot.state
            if step < steps:
                if step % 15 == 0:
                    push = rng.uniform(-1, 1, 2) * rng.integers(0, 2)
                actions[episode, step, 0] = np.clip(push + 0.2 * rng.normal(size=2), -1, 1)
                dot.step(actions[episode, step, 0])
    rows, starts = states.reshape(-1, 4), np.arange(episodes) * (steps + 1)
    lengths = np.full(episodes, steps + 1)
    frames, flat = np.empty((len(rows), 0, 0, 3), np.uint8), actions.reshape(-1, 1, 2)
    return lp.Episodes(frames, flat, rows, starts, lengths, np.arange(episodes), steps_per_row=1, digest="dots")


def main(steps=400):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    episodes = collect(rng)
    known = episodes.actions[np.isfinite(episodes.actions).all(axis=(1, 2)), 0]
    mean, std = (tuple(part.tolist()) for part in (known.mean(axis=0), known.std(axis=0)))
    actions = ActionSpec(mean, std, low=(-1.0, -1.0), high=(1.0, 1.0), block=BLOCK)
    world, latents = DotWorld(actions), episodes.states.astype(np.float32)
    sides = np.arange(280), np.arange(280, 300)
    train, held_out = (PlanWindows(latents, episodes, side, actions, context=3) for side in sides)
    model = LePlanner(PlannerConfig(width=48, depth=1, heads=2, dropout=0.0), LATENT, context=3, actions=actions)
    config = changed(
        PlannerTrainConfig(support_weight=0.0), steps=steps, batch=64, learning_rate=2e-3, precision="fp32"
    )
    with tempfile.TemporaryDirectory() as folder:
        check = held_out.draw(rng, 256, model.config.horizon)
        fit_planner(model, world, None, train.draw, check, config, Path(folder), "dots", Runtime("cpu"))
    planner = lp.Planner(world, model)
    problem = lp.PlanProblem(*(torch.from_numpy(part) for part in (check.context, check.past_blocks, check.goal)))
    lp.check_dynamics(world, problem.context, problem.past_blocks, planner.plan(problem).blocks)

    dot, goal = SlidingDot([-0.3, -0.2]), np.array([0.2, 0.3, 0.0, 0.0])
    seen, done = [dot.state] * 3, [actions.zero_block()] * 2  # as if it had stood there
    for _ in range(10):
        context, past = (torch.tensor(np.stack(part), dtype=torch.float32)[None] for part in (seen[-3:], done[-2:]))
        plan = planner.plan(lp.PlanProblem(context, past, torch.tensor(goal, dtype=torch.float32)[None]))
        for action in actions.raw(plan.blocks)[0, 0].numpy():  # the first block, then look again
            dot.step(action)
        seen.append(dot.state)
        done.append(plan.blocks[0, 0].numpy())
    print(f"ends {np.linalg.norm(dot.state[:2] - goal[:2]):.3f} from the goal, which was 0.707 away")
    return dot.state, goal


if __name__ == "__main__":
    main()
