"""Tasks: predicates on hand-made states, exact state setting, replay, determinism."""

from __future__ import annotations

import numpy as np
import pytest

from leplanner.data.collect import CollectConfig, run_episode
from leplanner.tasks import TASKS, get_task
from leplanner.tasks.pusht import block_center
from leplanner.tasks.spec import wrapped

NAMES = list(TASKS)


def test_unknown_task_says_what_exists():
    with pytest.raises(ValueError, match="tworoom, pusht, reacher, cube"):
        get_task("walker")


def test_wrapping():
    assert np.allclose(
        wrapped(np.array([0.0, 3 * np.pi / 2, -3 * np.pi / 2, 4 * np.pi + 0.1])), [0, -np.pi / 2, np.pi / 2, 0.1]
    )


def test_tworoom_success_radius():
    task, goal = TASKS["tworoom"], np.array([100.0, 50.0])
    states = goal + np.array([[15.9, 0.0], [16.1, 0.0], [11.0, 11.0], [12.0, 12.0]])
    assert task.success(states, goal).tolist() == [True, False, True, False]
    assert np.allclose(task.error(states[0], goal), 15.9)


def test_pusht_success_needs_position_and_angle_and_wraps():
    task = TASKS["pusht"]
    goal = np.array([100.0, 100.0, 300.0, 300.0, 0.05, 0.0, 0.0])
    turned = goal.copy()
    turned[4] = 2 * np.pi - 0.25  # 0.30 rad away across the wrap
    assert task.success(turned, goal)
    turned[4] = 0.05 + np.pi / 9 + 0.01
    assert not task.success(turned, goal)
    moved = goal.copy()
    moved[[0, 2]] += 14.0  # 19.8 px over agent and block together
    assert task.success(moved, goal)
    moved[[1]] += 5.0
    assert not task.success(moved, goal)
    moved = goal.copy()
    moved[5:] = 400.0  # velocity does not count
    assert task.success(moved, goal)


def test_reacher_success_wraps_and_asks_for_every_joint():
    task, goal = TASKS["reacher"], np.array([3.13, 0.5, 0.0, 0.0])
    assert task.success(np.array([-3.13, 0.5, 9.0, 9.0]), goal)  # 0.023 rad the short way round
    assert task.success(np.array([3.13 + 4 * np.pi, 0.5, 0.0, 0.0]), goal)  # two turns on
    assert not task.success(np.array([3.13, 0.56, 0.0, 0.0]), goal)


def test_cube_success_is_the_blocks_position():
    task, goal = TASKS["cube"], np.zeros(41)
    near, far = np.ones(41), np.ones(41)
    near[14:17], far[14:17] = [0.03, 0.02, 0.0], [0.03, 0.03, 0.0]
    assert task.success(near, goal)
    assert not task.success(far, goal)


@pytest.mark.parametrize("name", NAMES)
def test_state_set_then_get_is_exact(name, simulators, rng):
    sim = simulators(name)
    sim.start(rng)
    behavior = TASKS[name].behavior(sim, rng)
    for _ in range(12):
        sim.step(behavior.act().astype(np.float32))
    state = sim.state()
    assert state.shape == (TASKS[name].state_dim,)
    sim.start(rng)
    assert not np.array_equal(sim.state(), state)
    sim.set_state(state)
    assert np.array_equal(sim.state(), state)


def test_corrections_come_back_with_the_block_nearer(simulators, rng):
    """Back where the agent was beside the block, within a plan's 25 actions, and the block has come towards it."""
    task, sim = TASKS["pusht"], simulators("pusht")

    def corrections(behavior, episodes=40):
        corrected = total = 0
        for _ in range(episodes):
            sim.start(rng)
            policy, states = behavior(sim, rng), []
            for _ in range(100):
                states.append(sim.state())
                sim.step(policy.act())
            agent, block = np.array(states)[:, :2], np.array([block_center(state) for state in states])
            aside = agent[:-25] - block[:-25]
            distance = np.linalg.norm(aside, axis=1)
            nearer = ((block[25:] - block[:-25]) * aside).sum(axis=1) / distance
            back = np.linalg.norm(agent[25:] - agent[:-25], axis=1) < 30
            corrected, total = corrected + (back & (distance < 110) & (nearer > 8)).sum(), total + len(back)
        return corrected / total

    assert corrections(task.correction) > 2 * corrections(task.behavior)


@pytest.mark.parametrize(("name", "least"), [("tworoom", 1.0), ("pusht", 0.9), ("reacher", 1.0), ("cube", 1.0)])
def test_replaying_stored_actions_reaches_the_stored_goal(name, least, simulators):
    task, sim = TASKS[name], simulators(name)
    config = CollectConfig(episodes=1, steps=50, every=5, size=16)
    reached = []
    for index in range(5 if name == "cube" else 10):
        episode = run_episode(task, sim, config, index)
        actions = episode["action"].reshape(-1, config.every, task.action_dim)
        for start in (0, 3, 5):
            sim.set_state(episode["state"][start])
            for action in actions[start : start + 5].reshape(-1, task.action_dim):
                sim.step(action)
            reached.append(bool(task.success(sim.state(), episode["state"][start + 5])))
    assert np.mean(reached) >= least


def test_the_hand_is_where_the_simulator_says(simulators):
    sim = simulators("cube")
    episode = run_episode(TASKS["cube"], sim, CollectConfig(episodes=1, steps=50, every=5, size=16), 0)
    read = TASKS["cube"].probe(episode["state"])
    for state, values in zip(episode["state"], read, strict=True):
        sim.set_state(state)
        told = sim.info()
        np.testing.assert_allclose(values[3:6], told["proprio/effector_pos"], atol=1e-9)
        np.testing.assert_allclose(values[6], told["proprio/gripper_opening"][0], atol=1e-9)
        cube, turned = 4 * told["privileged/block_0_yaw"][0], 2 * told["proprio/effector_yaw"][0]
        np.testing.assert_allclose(values[7:9], [np.sin(cube), np.cos(cube)], atol=1e-6)
        np.testing.assert_allclose(values[9:], [np.sin(turned), np.cos(turned)], atol=1e-6)
    assert np.ptp(read[:, 3:6], axis=0).min() > 0.02  # it moved


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_episode_bit_for_bit(name, simulators):
    task, sim = TASKS[name], simulators(name)
    config = CollectConfig(episodes=2, steps=20, every=5, size=32, seed=7)
    first = run_episode(task, sim, config, 1)
    other = run_episode(task, sim, config, 0)  # what ran before must leave no trace
    again = run_episode(task, sim, config, 1)
    differing = {key for key in first if not np.array_equal(first[key], again[key], equal_nan=True)}
    assert differing == set()
    assert not np.array_equal(first["pixels"], other["pixels"])
    assert np.isnan(first["action"][-1]).all()
    assert np.isfinite(first["action"][:-1]).all()
    assert np.abs(first["action"][:-1]).max() <= 1.0


@pytest.mark.parametrize("name", NAMES)
def test_frames_show_the_state(name, simulators, rng):
    sim = simulators(name)
    sim.start(rng)
    one = sim.render(48)
    sim.start(rng)
    other = sim.render(48)
    assert one.shape == (48, 48, 3)
    assert one.dtype == np.uint8
    assert np.abs(one.astype(int) - other).max() > 30


@pytest.mark.parametrize("name", NAMES)
def test_a_frame_depends_on_the_state_alone(name, simulators, rng):
    """Neither a goal of the environment's own nor anything of an earlier episode is drawn."""
    sim = simulators(name)
    sim.start(rng)
    state = sim.state()
    sim.set_state(state)
    frame = sim.render(32)
    sim.start(rng)
    behavior = TASKS[name].behavior(sim, rng)
    for _ in range(5):
        sim.step(behavior.act().astype(np.float32))
    assert not np.array_equal(sim.render(32), frame)
    sim.set_state(state)
    assert np.array_equal(sim.render(32), frame)


def test_reacher_has_no_target_of_its_own_that_would_end_an_episode(simulators):
    """swm's target would end the episode on the first match and reset the arm on the next step."""
    sim = simulators("reacher")
    sim.set_state(np.array([0.3, 0.4, 0.0, 0.0]))
    assert sim.env.env.task.target_qpos is None
    for _ in range(3):
        terminated = sim.env.step(np.zeros(2, np.float32))[2]
        assert not terminated
    assert np.abs(sim.state()[:2] - [0.3, 0.4]).max() < 0.05


def test_reacher_is_not_reset_by_dm_controls_clock(simulators):
    sim = simulators("reacher")
    sim.set_state(np.array([0.3, 0.4, 0.0, 0.0]))
    for _ in range(520):
        sim.step(np.zeros(2, np.float32))
    assert np.abs(sim.state()[:2] - [0.3, 0.4]).max() < 0.05


@pytest.mark.parametrize("name", ["reacher", "cube"])
def test_native_visuals_are_what_the_environment_draws_by_itself(name, rng):
    sim = TASKS[name].simulate(recorded={})  # released datasets record nothing
    sim.start(rng)
    expected = sim.env.render()
    assert np.array_equal(sim.render(224), expected)
    sim.close()


def test_merged_vertices_change_hardly_a_pixel_and_nothing_of_the_physics(simulators, rng):
    full, light = TASKS["cube"].simulate({**TASKS["cube"].visuals, "merge_m": 0.0}), simulators("cube")
    assert light.env.model.mesh_facenum.sum() < 0.2 * full.env.model.mesh_facenum.sum()
    light.start(rng)
    full.set_state(light.state())
    light.set_state(light.state())
    for _ in range(3):
        apart = np.abs(full.render(96).astype(int) - light.render(96))
        assert apart.mean() < 1.0  # of 255
        for action in rng.uniform(-1.0, 1.0, (5, 5)).astype(np.float32):
            full.step(action)
            light.step(action)
        assert np.array_equal(full.state(), light.state())
    full.close()


def test_environments_drawn_in_turn_do_not_disturb_each_other(simulators, rng):
    first = {}
    for _ in range(2):
        for name in ("reacher", "cube"):
            sim = simulators(name)
            first.setdefault(name, (sim.start(rng), sim.state())[1])
            sim.set_state(first[name])
            frame = first.setdefault(name + " frame", sim.render(32))
            assert np.array_equal(sim.render(32), frame)


def test_missing_gl_libraries_are_named(monkeypatch):
    from leplanner.tasks import swm_reacher

    def broken(*arguments, **options):
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")

    monkeypatch.setattr(swm_reacher, "make_env", broken)
    with pytest.raises(RuntimeError, match="apt-get install libegl1"):
        TASKS["reacher"].simulate()
