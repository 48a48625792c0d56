"""A task of one's own: the required fields are enough, and it may be named by its module."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from leplanner.core import registry
from leplanner.data.collect import CollectConfig, run_episode
from leplanner.tasks import TASKS, Task, find_task, get_task


class Dot:
    """A dot on a line, drawn as a bright column."""

    def __init__(self, visuals):
        self.visuals, self.x = visuals, np.zeros(1)

    def start(self, rng):
        self.x = rng.uniform(-1, 1, 1)

    def state(self):
        return self.x.copy()

    def set_state(self, state):
        self.x = np.array(state, float)

    def step(self, action):
        self.x = np.clip(self.x + 0.1 * action, -1, 1)

    def render(self, size):
        frame = np.zeros((size, size, 3), np.uint8)
        frame[:, round((self.x[0] + 1) / 2 * (size - 1))] = 255
        return frame

    def close(self):
        pass


class Wander:
    def __init__(self, sim, rng):
        self.rng = rng

    def act(self, frame=None):
        return self.rng.uniform(-1, 1, 1)


def success(state, goal):
    return np.abs(state - goal).max(axis=-1) < 0.1


def make_task(**changes) -> Task:
    required = {"name": "dot", "action_dim": 1, "state_dim": 1, "simulator": Dot, "behavior": Wander}
    return Task(**{**required, "success": success, **changes})


@pytest.fixture
def tasks(monkeypatch):
    """The known tasks, as they were before when the test is over."""
    monkeypatch.setattr(TASKS, "_items", dict(TASKS._items))
    monkeypatch.setattr(registry, "_plugins", registry._plugins.copy())
    return TASKS


def test_the_required_fields_are_enough():
    task = make_task(action_dim=2, state_dim=3)
    assert task.title == "dot"
    assert task.probe_names == ("state_0", "state_1", "state_2")
    assert (task.low, task.high) == ((-1.0, -1.0), (1.0, 1.0))
    states = np.array([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    assert np.array_equal(task.probe(states), states)
    assert task.error(states, np.zeros(3)).tolist() == [3.0, 0.0]
    assert (task.clear_lewm, task.object_success, task.correction, task.away, task.plan_view) == (None,) * 5


def test_bounds_are_one_number_for_all_dimensions_or_one_for_each():
    task = make_task(action_dim=2, action_low=(0.0, -3.0), action_high=5)
    assert (task.low, task.high) == ((0.0, -3.0), (5.0, 5.0))
    with pytest.raises(ValueError, match=r"dot: action_low needs one number, or 3; got \(0\.0, -3\.0\)"):
        make_task(action_dim=3, action_low=(0.0, -3.0))


def test_a_simulator_draws_as_the_task_says_or_as_was_recorded():
    task = make_task(visuals={"line": 1}, native_visuals={"line": 2})
    assert task.simulate().visuals == {"line": 1}
    assert task.simulate({"line": 3}).visuals == {"line": 3}
    assert task.simulate({}).visuals == {"line": 2}


def test_its_episodes_are_collected_like_any_others():
    task = make_task()
    episode = run_episode(task, task.simulate(), CollectConfig(episodes=1, steps=20, every=5, size=16), 0)
    assert episode["pixels"].shape == (5, 16, 16, 3)
    assert episode["state"].shape == (5, 1)
    assert np.isfinite(episode["action"][:-1]).all()
    assert len(np.unique(episode["pixels"].argmax(axis=2)[:, 0, 0])) > 1  # the dot moves


def test_a_task_is_found_by_its_module_and_known_by_name_from_then_on(tasks, monkeypatch):
    module = types.ModuleType("module_of_a_test")
    module.TASK = make_task()
    monkeypatch.setitem(sys.modules, "module_of_a_test", module)
    with pytest.raises(ValueError, match="Unknown task 'dot'"):
        find_task("dot")
    assert find_task("module_of_a_test:TASK") is module.TASK
    assert find_task("dot") is get_task("dot") is module.TASK
    module.OTHER = make_task(state_dim=2)
    with pytest.raises(ValueError, match="There is a task 'dot' already"):
        find_task("module_of_a_test:OTHER")
    with pytest.raises(ValueError, match="could not be loaded"):
        find_task("module_of_a_test:MISSING")
