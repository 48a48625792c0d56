"""Bounds that differ from one action dimension to the next are kept by everything that acts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from linear_world import HORIZON, LATENT, SHAPE, LinearWorld, draw, problem_of

from leplanner.baselines.simple import RandomPolicy
from leplanner.baselines.swm_search import SearchPolicy
from leplanner.control.methods import SearchBudget
from leplanner.control.on_policy import NoisyPolicy
from leplanner.control.policy import PlannerPolicy, Request
from leplanner.control.solver import Solver
from leplanner.core.actions import ActionSpec
from leplanner.core.latent import LatentSpec
from leplanner.planner.checks import check_planner
from leplanner.planner.model import LePlanner
from leplanner.planner.planner import Planner

LOW, HIGH = (-1.0, 0.25), (0.5, 4.0)
ACTIONS = ActionSpec((-0.1, 1.5), (0.3, 0.8), LOW, HIGH, block=1)


@pytest.fixture
def planner() -> Planner:
    """Whose actions are almost all at a bound."""
    torch.manual_seed(0)
    model = LePlanner(SHAPE, LatentSpec((LATENT,)), 3, ACTIONS)
    with torch.no_grad():
        model.action_head[3].weight.mul_(100.0)
    return Planner(LinearWorld(), model, engine="eager")


@pytest.fixture
def query() -> Request:
    problem = problem_of(draw(np.random.default_rng(0), 50))
    return Request(problem, None, None, tuple(range(50)))


def assert_within(actions: np.ndarray, reached: float) -> None:
    """Inside the box, and as near to each bound as a share of its width."""
    assert actions.shape[-1] == 2
    flat = actions.reshape(-1, 2)
    assert (flat >= np.float32(LOW)).all()
    assert (flat <= np.float32(HIGH)).all()
    width = np.array(HIGH) - np.array(LOW)
    assert (flat.min(axis=0) <= LOW + reached * width).all()
    assert (flat.max(axis=0) >= HIGH - reached * width).all()


@pytest.mark.parametrize("engine", ["eager", "onnx"])
def test_plans_stay_inside_each_dimensions_bounds(planner, query, engine):
    planner = Planner(planner.dynamics, planner.model, engine=engine)
    actions = PlannerPolicy(planner).decide(query)
    assert actions.shape == (50, HORIZON, 2)
    assert_within(actions, reached=0.01)


def test_the_planners_contract_holds_with_bounds_by_dimension(planner, query):
    check_planner(planner, query.problem)


def test_random_actions_stay_inside_each_dimensions_bounds(query):
    assert_within(RandomPolicy(ACTIONS).decide(query), reached=0.01)


def test_noisy_actions_stay_inside_each_dimensions_bounds(planner, query):
    policy = NoisyPolicy(PlannerPolicy(planner), HORIZON, noise=3.0, rng=np.random.default_rng(0))
    actions = policy.decide(query)
    assert_within(actions, reached=0.01)
    assert not np.allclose(actions, PlannerPolicy(planner).decide(query), atol=0.1)


def test_searched_actions_stay_inside_each_dimensions_bounds(planner, query):
    policy = SearchPolicy("cem", planner.dynamics, planner.model, SearchBudget(samples=40, rounds=3))
    problem = query.problem[slice(0, 4)]
    assert_within(policy.decide(Request(problem, None, None, (0, 1, 2, 3))), reached=0.5)


def test_the_solver_hands_out_actions_inside_each_dimensions_bounds(planner):
    process = Solver(planner).process["action"]
    raw = np.random.default_rng(0).uniform(LOW, HIGH, (20, 2))
    np.testing.assert_allclose(process.inverse_transform(process.transform(raw)), raw, atol=1e-6)
    assert process.inverse_transform(np.full((3, 2), 100.0)).tolist() == [list(HIGH)] * 3
    assert process.inverse_transform(np.full((3, 2), -100.0)).tolist() == [list(LOW)] * 3


def test_bounds_without_one_number_for_each_dimension_are_refused():
    with pytest.raises(ValueError, match="one number for each dimension"):
        ActionSpec((0.0, 0.0), (1.0, 1.0), (-1.0,), (1.0, 1.0), block=1)
