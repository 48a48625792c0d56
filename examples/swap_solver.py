"""stable-worldmodel's own World and policy, three times on the same trials: random actions, CEM, LePlanner.

python examples/swap_solver.py tworoom      (or pusht, reacher, cube)

Tried with stable-worldmodel 0.1.1 and with its main branch at commit addbab4.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import time
import warnings
from pathlib import Path

import leplanner as lp
from leplanner.data.collect import CollectConfig, collect
from leplanner.data.context import fill_context
from leplanner.evaluation.swm_world import evaluate_arguments, make_world
from leplanner.tasks.swm_runtime import import_swm, make_swm_solver

swm = import_swm()  # `import stable_worldmodel`, which some CPU builds of torch need help with
warnings.filterwarnings("ignore", module="gymnasium")  # about details of swm's environments


class WorldCost:
    """What CEM searches with: how far from the goal our world imagines that a plan ends."""

    def __init__(self, planner):
        self.planner, self.actions = planner, planner.model.actions

    def get_cost(self, info, candidates):  # (1, samples, horizon, block) standardized -> (1, samples)
        low, high = self.actions.center - self.actions.scale, self.actions.center + self.actions.scale
        plans = candidates[0].float().clamp(low, high)
        now, goal = (self.planner.encode(info[name][:, 0, -1]) for name in ("pixels", "goal"))
        context, past = fill_context([now], [], self.planner.model.context, self.actions)
        context, past, goal = (part.expand(len(plans), *part.shape[1:]) for part in (context, past, goal))
        latents = self.planner.world.rollout(context, past, plans)
        return self.planner.world.distance(latents[:, -1:], goal).T

    criterion = get_cost


def main(task: str, trials: int = 6, data: Path | None = None, samples: int = 100, rounds: int = 10) -> dict[str, int]:
    planner, spec = lp.load(task), lp.get_task(task)
    size, visuals = planner.world.spec.frame_size, planner.world.spec.visuals
    if data is None:  # a few episodes that the planner was not trained on
        data = Path(f"runs/swap/{task}-{trials}.h5")
        collect(spec, CollectConfig(episodes=2 * trials, size=size, seed=1000), data)
    arguments = evaluate_arguments(spec, lp.open_episodes(data, spec), trials)  # dataset, starts, goals, setters
    world = make_world(spec, trials, size, visuals)  # swm.World, drawn as in training

    cem = make_swm_solver("CEMSolver", WorldCost(planner), num_samples=samples, n_steps=rounds, topk=samples // 10)
    ours = lp.Solver(planner)  # <- the one line that changes

    def policy(solver):
        config = swm.policy.PlanConfig(
            horizon=ours.horizon, receding_horizon=1, action_block=planner.model.actions.block
        )
        return swm.policy.WorldModelPolicy(solver=solver, config=config, process=ours.process)

    policies = {
        "random": swm.policy.RandomPolicy(seed=0),
        f"CEM {samples} x {rounds}": policy(cem),
        "LePlanner": policy(ours),
    }
    reached = {}
    for name, acting in policies.items():
        world.set_policy(acting)
        began = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):  # CEM prints at every decision
            reached[name] = int(world.evaluate(**arguments)["episode_successes"].sum())
        print(f"{name:<14} reached {reached[name]} of {trials} in {time.perf_counter() - began:6.1f} s", flush=True)
    world.close()
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", help="a shipped task: tworoom, pusht, reacher, cube")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--data", type=Path, help="take trials from this dataset instead of collecting a small one")
    main(**vars(parser.parse_args()))
