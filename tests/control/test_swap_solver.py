"""The solver inside stable-worldmodel: the example on swm 0.1.1, and the calling convention of its main branch."""

from __future__ import annotations

import runpy
import sys
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import leplanner as lp
from leplanner.baselines.swm_search import SearchPolicy
from leplanner.control.loaded import LoadedPlanner
from leplanner.control.methods import SearchBudget
from leplanner.evaluation.swm_world import evaluate_arguments, make_world
from leplanner.pipeline.presets import get_preset
from leplanner.planner.engines import random_problem
from leplanner.planner.planner import planner_for
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds.base import World

EXAMPLE = Path(__file__).parents[2] / "examples" / "swap_solver.py"
BLOCK, DIM = 5, 2
quiet = pytest.mark.filterwarnings("ignore")  # gymnasium's, about swm's environments


# the example, and what it stands on


@quiet
def test_the_example_of_the_swap_reaches_its_goals(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    reached = runpy.run_path(str(EXAMPLE))["main"]("tworoom", trials=2, samples=20, rounds=2)
    assert list(reached) == ["random", "CEM 20 x 2", "LePlanner"]
    assert reached["LePlanner"] == 2
    assert capsys.readouterr().out.count("of 2 in") == 3


@quiet
@pytest.mark.slow
@pytest.mark.parametrize("task", ["tworoom", "pusht", "reacher", "cube"])
def test_the_swap_on_every_task(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reached = runpy.run_path(str(EXAMPLE))["main"](task, samples=20, rounds=2)
    assert reached["LePlanner"] >= 4
    assert reached["LePlanner"] > reached["random"]


@quiet
@pytest.mark.parametrize("name", ["tworoom", "pusht", "reacher"])
def test_swms_environments_start_where_the_data_was_and_draw_what_it_saw(name, simulators):
    """One step of raw zeros from the trial's start: the picture that swm's World shows is our simulator's, and the
    goal that it scores is the data's."""
    task, size, sim = TASKS[name], 64, simulators(name)
    sim.start(np.random.default_rng(5))
    start = sim.state()
    for _ in range(25):
        sim.step(np.full(2, 0.9, np.float32))
    goal = sim.state()
    frames = []
    for state in (start, goal):
        sim.set_state(state)
        frames.append(sim.render(size))
    actions = np.zeros((2, 25, 2), np.float32)
    episodes = lp.Episodes(
        np.stack(frames), actions, np.stack([start, goal]), np.array([0]), np.array([2]), np.array([0]), 25, "two rows"
    )
    arguments = evaluate_arguments(task, episodes, 1)
    assert (arguments["start_steps"], arguments["goal_offset"], arguments["eval_budget"]) == ([0], 1, 50)

    seen = []

    class Still:
        def set_env(self, env): ...

        def get_action(self, infos):
            seen.append({key: np.array(infos[key][0, 0]) for key in ("pixels", "goal")})
            return np.zeros((1, 2), np.float32)

    world = make_world(task, 1, size, task.visuals)
    world.set_policy(Still())
    result = world.evaluate(**arguments | {"eval_budget": 2})
    world.close()
    assert not result["episode_successes"].any()
    assert np.array_equal(seen[0]["pixels"], frames[0])
    assert all(np.array_equal(view["goal"], frames[1]) for view in seen)
    sim.set_state(start)
    sim.step(np.zeros(2, np.float32))
    off = np.abs(seen[1]["pixels"].astype(float) - sim.render(size)).mean()
    assert off < 0.25  # of 255; PushT keeps contacts of its random reset, another way of shrinking is 2 off


def test_trials_that_cannot_be_had_are_refused(tworoom):
    task = TASKS["tworoom"]
    with pytest.raises(ValueError, match="only 20 of 20 episodes"):
        evaluate_arguments(task, tworoom, 21)
    with pytest.raises(ValueError, match="5 actions a row"):
        evaluate_arguments(task, tworoom, 1, offset=12)
    with pytest.raises(ValueError, match="leplanner evaluate mine"):
        make_world(lp.Task("mine", 2, 2, task.simulator, task.behavior, task.success), 1, 32, {})


# the main branch, whose policy is written here again, as far as a solver can tell


@dataclass(frozen=True)
class PlanConfig:
    horizon: int
    receding_horizon: int
    history_len: int = 1
    history_max_len: int | None = None
    action_block: int = 1
    warm_start: bool = True


class MainPolicy:
    """How the main branch (commit addbab4) calls a solver.

    `configure` has keywords. A call has tensors by name, with a time axis, of the environments whose actions are used
    up, and `init_action`, what is left of their last plans. With `history_len` above 1, `pixels` holds as many frames
    as the oldest of these environments has seen, a block apart, and `action_history` the standardized blocks between.
    Younger environments are padded in front, with their first frame and with zeros.
    """

    def __init__(self, solver, config, process, n_envs):
        self.solver, self.config, self.process = solver, config, process
        solver.configure(action_space=SimpleNamespace(shape=(n_envs, DIM)), n_envs=n_envs, config=config)
        assert (solver.action_dim, solver.n_envs, solver.horizon) == (BLOCK * DIM, n_envs, config.horizon)
        self.queues = [deque() for _ in range(n_envs)]
        self.seen = [[] for _ in range(n_envs)]
        self.rest, self.given = None, []

    def get_action(self, infos, flushed=()):
        for env in flushed:
            self.queues[env].clear()
            self.seen[env].clear()
            if self.rest is not None:
                self.rest[env] = 0
        infos = infos | {"action": self.process["action"].transform(infos["action"]).astype(np.float32)}
        for env, seen in enumerate(self.seen):
            seen.append((infos["pixels"][env], infos["action"][env]))
        due = [env for env, queue in enumerate(self.queues) if not queue]
        if due:
            given = {name: torch.from_numpy(values[due]) for name, values in infos.items()}
            if self.config.history_len > 1:
                frames = min(self.config.history_len, max(self._frames(env) for env in due))
                given["pixels"] = torch.stack([self._pixels(env, frames) for env in due])
                if frames > 1:
                    given["action_history"] = torch.stack([self._blocks(env, frames) for env in due])
            self.given.append(given)
            plans = self.solver(given, init_action=None if self.rest is None else self.rest[due])["actions"]
            used = self.config.receding_horizon
            if used < self.config.horizon:
                self.rest = torch.zeros(len(self.queues), *plans[0, used:].shape) if self.rest is None else self.rest
                self.rest[due] = plans[:, used:]
            for env, plan in zip(due, plans, strict=True):
                self.queues[env].extend(plan[:used].reshape(-1, DIM))
        actions = torch.stack([queue.popleft() for queue in self.queues]).numpy()
        return self.process["action"].inverse_transform(actions)

    def _frames(self, env):
        return (len(self.seen[env]) - 1) // BLOCK + 1

    def _pixels(self, env, frames):
        real = min(frames, self._frames(env))
        views = [self.seen[env][-1 - BLOCK * back][0] for back in reversed(range(real))]
        return torch.from_numpy(np.concatenate([views[0]] * (frames - real) + views))

    def _blocks(self, env, frames):
        real = min(frames, self._frames(env)) - 1
        recent = [action.ravel() for _, action in self.seen[env][len(self.seen[env]) - BLOCK * real :]]
        blocks = torch.zeros(frames - 1, BLOCK * DIM)
        if real:
            blocks[-real:] = torch.from_numpy(np.stack(recent).reshape(real, -1))
        return blocks


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 256, (120, 32, 32, 3), dtype=np.uint8)


def drive(planner, frames, config, steps, offsets, resets=(), ids=True):
    """What the policy's environments executed. Environment i shows frames from `offsets[i]` on, one a step; one that is
    reset begins there again."""
    solver = lp.Solver(planner)
    policy = MainPolicy(solver, config, solver.process, len(offsets))
    ages, last = [0] * len(offsets), np.full((len(offsets), DIM), np.nan, np.float32)
    names, executed = list(range(100, 100 + len(offsets))), []
    for step in range(steps):
        flushed = [env for at, env in resets if at == step]
        for env in flushed:
            ages[env], last[env], names[env] = 0, np.nan, names[env] + 50
        infos = {
            "pixels": np.stack([frames[offset + age] for offset, age in zip(offsets, ages, strict=True)])[:, None],
            "goal": np.repeat(frames[-1][None, None], len(offsets), axis=0),
            "action": last[:, None],
            "terminated": np.zeros((len(offsets), 1), bool),
        }
        if ids:
            infos |= {"id": np.array(names)[:, None], "step_idx": np.array(ages)[:, None]}
        last = policy.get_action(infos, flushed).astype(np.float32)
        executed.append(last.copy())
        ages = [age + 1 for age in ages]
    return np.stack(executed), policy


def controlled(planner, frames, execute, steps, offset):
    controller = planner.controller(frames[-1], execute=execute)
    return np.stack([controller.act(frames[offset + step]) for step in range(steps)])


@pytest.mark.parametrize(("history", "execute"), [(1, 1), (3, 1), (3, 2)])
def test_the_main_branch_executes_what_the_controller_executes(tiny_planner, frames, history, execute):
    """With frames of its own between two plans it need not imagine any, so this holds for two blocks a plan, too."""
    config = PlanConfig(5, execute, history_len=history, action_block=BLOCK)
    executed, policy = drive(tiny_planner, frames, config, 30, offsets=[0, 40])
    for env, offset in enumerate((0, 40)):
        expected = controlled(tiny_planner, frames, execute, 30, offset)
        np.testing.assert_allclose(executed[:, env], expected, atol=1e-4)
    assert ("action_history" in policy.given[-1]) == (history > 1)


def test_a_history_that_the_policy_padded_is_read_as_far_as_it_is_real(tiny_world, frames, monkeypatch):
    """The second environment starts again while the first goes on. The policy pads it with mean actions, which are the
    zeros of standardized units; in training, contexts were padded with raw zeros."""
    actions = replace(tiny_world.spec.actions, mean=(0.6, -0.5))
    world = World(tiny_world.model, replace(tiny_world.spec, actions=actions))
    planner = LoadedPlanner(world, planner_for(world, get_preset(TASKS["tworoom"], "tiny").planner))
    problems, plan = [], planner.plan
    monkeypatch.setattr(planner, "plan", lambda problem: problems.append(problem) or plan(problem))
    config = PlanConfig(5, 1, history_len=3, action_block=BLOCK)
    executed, policy = drive(planner, frames, config, 15, offsets=[0, 40], resets=[(10, 1)])
    assert policy.given[2]["action_history"].shape == (2, 2, 10)  # of three frames, and of a single one
    assert not policy.given[2]["action_history"][1].any()
    done = torch.from_numpy(actions.blocks(executed[:10].swapaxes(0, 1)))
    zero = torch.from_numpy(actions.zero_block()).expand(2, -1)
    torch.testing.assert_close(problems[2].past_blocks, torch.stack([done[0], zero]), atol=1e-5, rtol=1e-5)
    seen = planner.encode(frames[[0, 5, 10, 40, 40, 40]]).unflatten(0, (2, 3))
    torch.testing.assert_close(problems[2].context, seen, atol=1e-5, rtol=1e-5)


def test_a_supplied_history_needs_no_id(tiny_planner, frames):
    config = PlanConfig(5, 5, history_len=3, action_block=BLOCK)
    with_ids, _ = drive(tiny_planner, frames, config, 60, offsets=[0])
    without, _ = drive(tiny_planner, frames, config, 60, offsets=[0], ids=False)
    np.testing.assert_allclose(with_ids, without, atol=1e-5)


def test_the_datasets_step_before_the_first_action_ends_no_episode(tiny_planner, frames):
    """World.evaluate(dataset=...) shows the step at which a trial starts in the data, then the environment's own."""
    plans = []
    for first in (0, 30):
        solver = lp.Solver(tiny_planner)
        config = PlanConfig(5, 1, action_block=BLOCK)
        solver.configure(action_space=SimpleNamespace(shape=(1, DIM)), n_envs=1, config=config)
        for number, step in enumerate((first, 5, 10)):
            given = {
                "pixels": torch.from_numpy(frames[None, None, number]),
                "goal": torch.from_numpy(frames[None, -1:]),
            }
            given |= {"id": torch.tensor([[7]]), "step_idx": torch.tensor([[step]])}
            plan = solver(given)["actions"]
        plans.append(plan)
    assert torch.equal(*plans)


@pytest.mark.parametrize("kind", ["cem", "icem", "mppi", "gradient"])
def test_searches_find_swms_solvers_where_the_main_branch_has_them(tiny_planner, monkeypatch, kind):
    """In `planning.solver`, with `cost=`; and they plan the same."""
    real = import_swm("stable_worldmodel.solver")
    problem = random_problem(tiny_planner.model)
    budget = SearchBudget(samples=20, rounds=2)

    def plan():
        return SearchPolicy(kind, tiny_planner.world, tiny_planner.model, budget).plan(problem, (3,))

    expected, created = plan(), []
    root, planning, moved = (
        ModuleType(name)
        for name in ("stable_worldmodel", "stable_worldmodel.planning", "stable_worldmodel.planning.solver")
    )
    for name in ("CEMSolver", "ICEMSolver", "MPPISolver", "GradientSolver"):

        def create(cost, *, name=name, **options):
            created.append(name)
            return getattr(real, name)(model=cost, **options)

        setattr(moved, name, create)
    for module in (root, planning, moved):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert torch.equal(plan(), expected)
    assert len(created) == 1
