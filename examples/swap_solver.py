"""stable-worldmodel's own policy and world, with LePlanner in place of CEM.

python examples/swap_solver.py pusht --episodes 4

Needs an environment that shows its goal as a picture: PushT does, TwoRoom does not. Goals are the
environment's own and may be farther than the 25 actions that a plan looks ahead; `leplanner evaluate` has
goals that the data reached in as many.
"""

from __future__ import annotations

import argparse

import leplanner as lp
from leplanner.tasks.swm_runtime import import_swm

swm = import_swm()  # `import stable_worldmodel`, which some CPU builds of torch need help with


def main(bundle: str, episodes: int) -> None:
    planner = lp.load(bundle)
    size = planner.world.spec.frame_size
    world = swm.World(lp.get_task(planner.world.spec.task).env_id, num_envs=2, image_shape=(size, size))
    horizon, block = planner.model.config.horizon, planner.model.actions.block
    config = swm.policy.PlanConfig(horizon=horizon, receding_horizon=1, action_block=block)

    # before: solver = swm.solver.CEMSolver(model=world_model, num_samples=300, n_steps=30, topk=30)
    solver = lp.Solver(planner)

    world.set_policy(swm.policy.WorldModelPolicy(solver=solver, config=config, process=solver.process))
    print(world.evaluate(episodes=episodes, seed=0))
    world.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", help="a shipped task's name or a bundle folder")
    parser.add_argument("--episodes", type=int, default=4)
    main(**vars(parser.parse_args()))
