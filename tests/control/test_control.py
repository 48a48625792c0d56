"""The controller: what it shows to a policy, when it asks for frames, what it refuses; and the
solver for stable-worldmodel."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import leplanner as lp
from leplanner.control.controller import Controller, DatasetRow
from leplanner.control.policy import PlannerPolicy, Request
from leplanner.core.problem import PlanProblem
from leplanner.evaluation.capture import RecordingPolicy
from leplanner.planner.engines import random_problem
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds.base import normalize


class Recorder:
    """Remembers what it was asked; answers with actions that name their decision and step."""

    name, stride, transitions = "recorder", None, 0

    def __init__(self, frames=3, stride=None):
        self.frames, self.stride, self.requests = frames, stride, []

    def decide(self, request: Request):
        self.requests.append(request)
        count = len(request.seeds)
        numbers = (len(self.requests) * 100 + np.arange(25)) / 1000
        return np.repeat(np.repeat(numbers[None, :, None], 2, axis=2), count, axis=0).astype(np.float32)


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)


def drive(controller, frames, steps):
    return [controller.act(frames[i] if controller.needs_frame else None) for i in range(steps)]


@pytest.mark.parametrize("execute", [1, 2, 5])
def test_the_context_is_what_was_seen_and_done(tiny_world, frames, execute):
    policy = Recorder()
    controller = Controller(policy, tiny_world, execute=execute)
    controller.reset(frames[59])
    actions = np.stack(drive(controller, frames, 30))
    latents = tiny_world.encode(frames)
    spec = tiny_world.spec.actions
    for number, request in enumerate(policy.requests):
        block = number * execute
        for slot, index in enumerate(range(block - 2, block + 1)):
            assert torch.allclose(request.problem.context[0, slot], latents[5 * max(index, 0)], atol=1e-5)
        for slot, index in enumerate(range(block - 2, block)):
            executed = spec.standardize(actions[5 * index : 5 * index + 5]).reshape(-1)
            expected = executed if index >= 0 else spec.zero_block()
            assert np.allclose(request.problem.past_blocks[0, slot], expected, atol=1e-6)
        assert torch.allclose(request.problem.goal[0], latents[59], atol=1e-5)
    assert len(policy.requests) == -(-30 // (5 * execute))
    first = (np.arange(30) // (5 * execute) + 1) * 100 + np.arange(30) % (5 * execute)
    assert np.allclose(actions[:, 0], first / 1000)


def test_frames_are_requested_only_when_a_decision_needs_them(tiny_world, frames):
    expected = {
        1: range(0, 50, 5),
        5: (0, 15, 20, 25, 40, 45),
    }  # three frames before each decision, as far as there are
    for execute, steps in expected.items():
        controller = Controller(Recorder(), tiny_world, execute=execute)
        controller.reset(frames[59])
        requested = []
        for step in range(50):
            if controller.needs_frame:
                requested.append(step)
            controller.act(frames[step] if controller.needs_frame else None)
        assert requested == list(steps)
    blind = Controller(Recorder(frames=0), tiny_world)
    blind.reset(torch.zeros(32))
    assert not any(blind.needs_frame or blind.act() is None for _ in range(10))


def test_a_policy_that_decides_every_step_sees_every_step(tiny_world, frames):
    policy = Recorder(frames=1, stride=1)
    controller = Controller(policy, tiny_world, budget=50)
    controller.reset(frames[59])
    drive(controller, frames, 12)
    latents = tiny_world.encode(frames)
    assert [request.remaining for request in policy.requests] == list(range(50, 38, -1))
    for step, request in enumerate(policy.requests):
        assert torch.allclose(request.problem.context[0, -1], latents[step], atol=1e-5)


def test_real_history_replaces_padding(tiny_world, frames):
    policy = Recorder()
    controller = Controller(policy, tiny_world)
    past = np.random.default_rng(1).uniform(-1, 1, (2, 5, 2)).astype(np.float32)
    controller.reset(frames[59], history=(frames[:2], past))
    controller.act(frames[2])
    problem = policy.requests[0].problem
    assert torch.allclose(problem.context[0], tiny_world.encode(frames[:3]), atol=1e-5)
    assert np.allclose(problem.past_blocks, tiny_world.spec.actions.blocks(past.reshape(1, 10, 2)), atol=1e-6)


def test_goals_are_images_latents_or_rows(tiny_world, tworoom):
    row = 7
    image = tworoom.frames[row]
    latent = tiny_world.encode(image[None])[0]
    for goal in (image, latent, DatasetRow(tworoom, row), image[None].repeat(2, axis=0)):
        controller = Controller(Recorder(), tiny_world)
        controller.reset(goal)
        assert torch.allclose(controller.goal[0], latent, atol=1e-5)
        assert controller.batch == (2 if np.ndim(goal) == 4 else 1)


def test_misuse_gets_an_answer(tiny_world, frames):
    controller = Controller(Recorder(), tiny_world)
    with pytest.raises(ValueError, match="reset"):
        controller.act(frames[0])
    with pytest.raises(ValueError, match="or let them be resized"):
        controller.reset(np.zeros((64, 64, 3), np.uint8))
    with pytest.raises(ValueError, match="uint8"):
        controller.reset(frames[0].astype(np.float32))
    with pytest.raises(ValueError, match="NaN or infinity"):
        controller.reset(torch.full((32,), float("nan")))
    controller.reset(frames[59])
    with pytest.raises(ValueError, match="frame is needed"):
        controller.act()
    with pytest.raises(ValueError, match="uint8"):
        controller.act(frames[0] / 2.0)
    assert controller.act(frames[0]).shape == (2,)  # nothing above broke it
    with pytest.raises(ValueError, match="at least one block"):
        Controller(Recorder(), tiny_world, execute=0)
    far = Controller(Recorder(), tiny_world, execute=6)
    far.reset(frames[59])
    with pytest.raises(ValueError, match="at least 30 finite actions"):
        far.act(frames[0])


@pytest.mark.parametrize(("reuse", "transitions"), [(True, [20, 25]), (False, [20, 20])])
def test_the_planners_own_controller(tiny_planner, frames, reuse, transitions):
    """`planner.controller(goal, execute)` acts like the long way round."""
    short = tiny_planner.controller(frames[59], execute=2, reuse=reuse)
    policy = PlannerPolicy(tiny_planner, reuse)
    long = Controller(policy, tiny_planner.world, execute=2, encode=tiny_planner.encode)
    long.reset(frames[59])
    for step in range(15):
        assert np.array_equal(short.act(frames[step]), long.act(frames[step]))
    assert [decision.transitions for decision in short.decisions] == transitions
    assert all(decision.plan_ms > 0 and decision.encode_ms > 0 for decision in short.decisions)


def test_a_plan_is_reused_only_where_it_is_imagined_nearer(tiny_planner):
    """Row by row: of two plans, the one that ends nearer the goal in imagination; and never
    the old one without `reuse`."""
    problem, world, spec = random_problem(tiny_planner.model, batch=64), tiny_planner.world, tiny_planner.model.actions
    new = tiny_planner.plan(problem)
    remaining = new.blocks[:, 1:] + torch.randn(64, 4, 10, generator=torch.Generator().manual_seed(1))
    whole = torch.cat([remaining, new.blocks[:, -1:]], dim=1)
    ends = world.distance(world.rollout(problem.context, problem.past_blocks, whole), problem.goal)[:, -1]
    nearer = ends < new.distances[:, -1]
    assert 0 < nearer.sum() < 64
    expected = torch.where(nearer.view(-1, 1, 1), whole, new.blocks)
    request = Request(problem, None, remaining, tuple(range(64)))
    reusing, plain = PlannerPolicy(tiny_planner, reuse=True), PlannerPolicy(tiny_planner)
    np.testing.assert_allclose(reusing.decide(request), spec.raw_actions(expected), atol=1e-5)
    np.testing.assert_allclose(plain.decide(request), spec.raw_actions(new.blocks), atol=1e-5)
    assert (reusing.transitions, plain.transitions) == (64 * 25, 64 * 20)
    reusing.decide(Request(problem, None, None, request.seeds))
    assert reusing.transitions == 64 * 45  # nothing to reuse, nothing to imagine


def test_a_batch_acts_like_its_rows(tiny_planner, frames):
    goals = frames[50:53]
    together = tiny_planner.controller(goals)
    alone = [tiny_planner.controller(goal) for goal in goals]
    for step in range(10):
        views = np.stack([frames[step], frames[step + 20], frames[step + 30]])
        batch = together.act(views)
        for row, controller in enumerate(alone):
            assert np.allclose(controller.act(views[row]), batch[row], atol=1e-4)


# the solver for stable-worldmodel

CONFIG = SimpleNamespace(horizon=5, action_block=5, receding_horizon=1)


def solver_for(planner, envs=2, config=CONFIG, reuse=True):
    solver = lp.Solver(planner, reuse)
    solver.configure(action_space=SimpleNamespace(shape=(envs, 2)), n_envs=envs, config=config)
    return solver


def info(frames, goals, ids, step):
    return {
        "pixels": torch.from_numpy(frames[:, None]),
        "goal": torch.from_numpy(goals[:, None]),
        "id": torch.tensor(ids)[:, None],
        "step_idx": torch.full((len(ids), 1), step),
    }


def test_the_solver_keeps_the_protocol(tiny_planner):
    swm = import_swm()
    solver = solver_for(tiny_planner)
    assert isinstance(solver, swm.solver.Solver)
    assert (solver.action_dim, solver.n_envs, solver.horizon) == (10, 2, 5)
    with pytest.raises(ValueError, match="trained for"):
        solver_for(tiny_planner, config=SimpleNamespace(horizon=7, action_block=5, receding_horizon=1))
    with pytest.raises(ValueError, match="action dimensions"):
        solver.configure(action_space=SimpleNamespace(shape=(2, 3)), n_envs=2, config=CONFIG)
    with pytest.raises(ValueError, match="goal not in"):
        solver.solve({"pixels": torch.zeros(1, 1, 32, 32, 3, dtype=torch.uint8)})


@pytest.mark.parametrize("reuse", [True, False])
def test_the_solver_plans_what_the_controller_plans(tiny_planner, frames, reuse):
    """Block by block, with a subset of the environments in between, and a new episode."""
    solver = solver_for(tiny_planner, reuse=reuse)
    goals = frames[50:52]
    controllers = [tiny_planner.controller(goal, reuse=reuse) for goal in goals]
    for block in range(4):
        views = np.stack([frames[block], frames[20 + block]])
        plans = solver(info(views, goals, [11, 12], 5 * block))["actions"]
        assert plans.shape == (2, 5, 10)
        assert plans.device.type == "cpu"
        raw = tiny_planner.model.actions.raw(plans[:, 0])
        for row, controller in enumerate(controllers):
            executed = [controller.act(views[row]) for _ in range(5)]
            assert np.allclose(np.stack(executed), raw[row], atol=1e-4)
    fresh = solver(info(views[:1], goals[:1], [13], 0))["actions"]
    again = tiny_planner.controller(goals[0], reuse=reuse)
    assert np.allclose(again.act(views[0]), tiny_planner.model.actions.raw(fresh[0, 0])[0], atol=1e-4)


@pytest.mark.parametrize("executed", [1, 2, 5])
def test_the_solver_reuses_plans_of_environments_that_have_one(tiny_planner, frames, executed):
    """An environment that has a plan and a new one, in one call: each as if it were alone."""
    config = SimpleNamespace(horizon=5, action_block=5, receding_horizon=executed)
    together, alone = (solver_for(tiny_planner, config=config) for _ in range(2))
    fresh = solver_for(tiny_planner, config=config, reuse=False)
    different = 0
    for block in range(0, 20, executed):
        views, goals = np.stack([frames[block], frames[20 + block]]), frames[50:52]
        new = 100 + block
        both = together(info(views, goals, [11, new], 5 * block))["actions"]
        one = alone(info(views[:1], goals[:1], [11], 5 * block))["actions"]
        other = alone(info(views[1:], goals[1:], [new], 5 * block))["actions"]
        torch.testing.assert_close(both, torch.cat([one, other]), atol=1e-5, rtol=1e-5)
        plain = fresh(info(views, goals, [11, new], 5 * block))["actions"]
        torch.testing.assert_close(both[1], plain[1], atol=1e-5, rtol=1e-5)
        different += not torch.allclose(both[0], plain[0], atol=1e-3)
    assert (different > 0) == (executed < 5)


def test_the_solver_takes_normalized_floats_too(tiny_planner, frames):
    goals = frames[50:51]
    first = solver_for(tiny_planner).solve(info(frames[:1], goals, [1], 0))["actions"]
    floats = {
        "pixels": normalize(torch.from_numpy(frames[:1]), tiny_planner.world.spec)[:, None],
        "goal": normalize(torch.from_numpy(goals), tiny_planner.world.spec)[:, None],
    }
    assert torch.allclose(solver_for(tiny_planner).solve(floats)["actions"], first, atol=1e-5)
    with pytest.raises(ValueError, match="normalized"):
        solver_for(tiny_planner).solve({name: value[..., :16] for name, value in floats.items()})


@pytest.mark.filterwarnings("ignore")  # gymnasium's, about swm's environments
@pytest.mark.parametrize("name", ["tworoom", "pusht"])
def test_the_solver_inside_stable_worldmodels_own_policy_and_world(name, tiny_planner):
    """WorldModelPolicy drives swm's World with our solver in place of CEM, and executes what the solver planned."""
    swm = import_swm()
    planned, executed = [], []

    class Watched(lp.Solver):
        def solve(self, info_dict, init_action=None):
            if "goal" not in info_dict:  # swm's TwoRoom shows none unless a dataset gives one
                info_dict = info_dict | {"goal": torch.zeros_like(info_dict["pixels"])}
            solved = super().solve(info_dict, init_action)
            planned.append(solved["actions"])
            return solved

    config = swm.policy.PlanConfig(horizon=5, receding_horizon=1, action_block=5)
    solver = Watched(tiny_planner)
    policy = swm.policy.WorldModelPolicy(solver=solver, config=config, process=solver.process)
    world = swm.World(TASKS[name].env_id, num_envs=2, image_shape=(32, 32), max_episode_steps=100)
    world.set_policy(policy)
    get_action = policy.get_action

    def watch(info_dict, **rest):
        executed.append(get_action(info_dict, **rest))
        return executed[-1]

    policy.get_action = watch
    world.reset(seed=0)
    world._run(max_steps=15)
    world.close()
    assert len(planned) >= 3
    for number in (0, 1):  # raw actions, as the environment wants them
        done = np.stack(executed[5 * number : 5 * number + 5], axis=1)
        assert np.allclose(done, tiny_planner.model.actions.raw(planned[number][:, 0]), atol=1e-5)


def test_plans_do_not_depend_on_the_batch(tiny_planner):
    """Alone, in a batch of 50, and in another order."""
    torch.manual_seed(0)
    problem = PlanProblem(torch.randn(50, 3, 32), torch.randn(50, 2, 10), torch.randn(50, 32))
    together = tiny_planner.plan(problem).blocks
    order = torch.randperm(50)
    shuffled = tiny_planner.plan(PlanProblem(problem.context[order], problem.past_blocks[order], problem.goal[order]))
    assert torch.allclose(shuffled.blocks, together[order], atol=1e-5)
    for row in (0, 17, 49):
        alone = PlanProblem(*(part[row : row + 1] for part in (problem.context, problem.past_blocks, problem.goal)))
        assert torch.allclose(tiny_planner.plan(alone).blocks[0], together[row], atol=1e-5)


def test_a_recorded_trace_is_of_the_plan_that_was_decided_for(tiny_planner):
    """A video shows what the executed plan imagines: the new one, or what remains of the last
    one if that was reused."""
    problem = random_problem(tiny_planner.model)
    new = tiny_planner.plan(problem)
    remaining = new.blocks[:, 1:].flip(1)
    for reuse in (False, True):
        policy = RecordingPolicy(PlannerPolicy(tiny_planner, reuse))
        actions = policy.decide(Request(problem, None, remaining, (0,)))
        trace = policy.trace(tiny_planner, every=5)
        blocks = torch.from_numpy(tiny_planner.model.actions.blocks(actions))
        imagined = tiny_planner.world.rollout(problem.context, problem.past_blocks, blocks)
        np.testing.assert_allclose(trace.imagined, imagined.half().numpy(), atol=1e-2)
        np.testing.assert_allclose(trace.distances[:, -1], new.distances.numpy(), rtol=1e-3)


# nothing that a caller holds is the controller's own


def test_changing_a_returned_action_changes_no_later_one(tiny_planner, frames):
    careful, careless = (tiny_planner.controller(frames[59], execute=2) for _ in range(2))
    for step in range(25):
        expected, action = careful.act(frames[step]), careless.act(frames[step])
        assert np.array_equal(action, expected), step
        action *= 100


def test_changing_the_actions_of_a_batch_changes_no_later_ones(tiny_planner, frames):
    careful, careless = (tiny_planner.controller(frames[50:52]) for _ in range(2))
    for step in range(15):
        views = frames[[step, step + 20]]
        expected, actions = careful.act(views), careless.act(views)
        assert np.array_equal(actions, expected), step
        actions *= 100


@pytest.mark.parametrize("shape", [(32,), (2, 32)])
def test_changing_a_goal_after_reset_changes_no_action(tiny_planner, frames, shape):
    goal = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    careful, careless = tiny_planner.controller(goal.clone()), tiny_planner.controller(goal)
    goal.mul_(-3.0)
    for step in range(10):
        view = frames[step] if len(shape) == 1 else frames[[step, step + 20]]
        assert np.array_equal(careless.act(view), careful.act(view)), step


def test_changing_a_goal_image_after_reset_changes_no_action(tiny_planner, frames):
    image = frames[59].copy()
    careful, careless = tiny_planner.controller(frames[59]), tiny_planner.controller(image)
    image[:] = 0
    for step in range(10):
        assert np.array_equal(careless.act(frames[step]), careful.act(frames[step])), step
