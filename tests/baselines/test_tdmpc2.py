"""TD-MPC2's planner: it finds what its world values, at a known cost, and depends on its problem and seed alone."""

from __future__ import annotations

import pytest
import torch
from linear_world import ACTIONS, LinearWorld, draw, make_model, problem_of

from leplanner.baselines.tdmpc2 import MPPIConfig, TDMPC2Policy
from leplanner.control.methods import METHODS
from leplanner.core.dynamics import mean_squared_distance
from leplanner.core.problem import PlanProblem

SEEDS = (5, 6, 7, 8)


class ValuedWorld(LinearWorld):
    """A return with a known best plan: every block at the goal's first numbers, in units of the box. The policy knows
    `share` of the way there."""

    share = 0.0

    def best(self, goal):
        return ACTIONS.center + ACTIONS.scale * goal[:, : ACTIONS.block_dim].tanh()

    def plan_return(self, context, past_blocks, plan, goal):
        return -10.0 * mean_squared_distance(plan, self.best(goal)).mean(dim=1)

    def propose_plan(self, context, past_blocks, goal, noise):
        return ACTIONS.center + self.share * (self.best(goal) - ACTIONS.center).unsqueeze(1) + 0.0 * noise


@pytest.fixture
def problem(rng) -> PlanProblem:
    return problem_of(draw(rng, 4))


def test_the_published_settings_and_what_a_decision_costs(problem):
    policy = TDMPC2Policy(ValuedWorld(), make_model())
    assert policy.plan(problem, SEEDS).shape == (4, 3, ACTIONS.block_dim)
    assert policy.transitions == 4 * (24 * 3 + 6 * 512 * 3)
    assert METHODS.get("tdmpc2").title_with("300 x 30") == "TD-MPC2"


def test_it_finds_what_its_world_values_and_stays_in_the_box(problem):
    world = ValuedWorld()
    policy, none = TDMPC2Policy(world, make_model()), world.propose_plan(None, None, problem.goal, torch.zeros(4, 3, 2))
    plans = policy.plan(problem, SEEDS)
    assert ((plans - ACTIONS.center).abs() <= ACTIONS.scale + 1e-5).all()
    gained = world.plan_return(None, None, plans, problem.goal) / world.plan_return(None, None, none, problem.goal)
    assert gained.mean() < 0.2


def test_a_plan_depends_on_its_problem_and_seed_alone(problem):
    policy = TDMPC2Policy(ValuedWorld(), make_model(), MPPIConfig(samples=64, elites=8))
    plans, order = policy.plan(problem, SEEDS), torch.tensor([2, 0, 3, 1])
    assert torch.equal(policy.plan(problem, SEEDS), plans)
    assert torch.equal(policy.plan(problem[order], tuple(SEEDS[i] for i in order)), plans[order])
    assert torch.equal(policy.plan(problem[1:2], SEEDS[1:2]), plans[1:2])
    assert not torch.equal(policy.plan(problem, tuple(seed + 1 for seed in SEEDS)), plans)


def test_the_policys_plans_are_among_the_candidates(problem):
    """With as good as no samples of its own, it takes the policy's."""
    world = ValuedWorld()
    world.share = 1.0
    config = MPPIConfig(samples=25, proposals=24, elites=1, iterations=1)
    plans = TDMPC2Policy(world, make_model(), config).plan(problem, SEEDS)
    torch.testing.assert_close(plans, world.best(problem.goal).unsqueeze(1).expand_as(plans))


def test_the_search_begins_at_the_remaining_plan(problem):
    """One narrow iteration cannot go far from there; blocks that no plan is left for begin at the box's center."""
    config = MPPIConfig(iterations=1, proposals=0, max_std=0.05)
    policy = TDMPC2Policy(ValuedWorld(), make_model(), config)
    remaining = ACTIONS.center + 0.8 * ACTIONS.scale * torch.ones(4, 2, ACTIONS.block_dim)
    units = (policy.plan(problem, SEEDS, remaining) - ACTIONS.center) / ACTIONS.scale
    assert (units[:, :2] - 0.8).abs().max() < 0.3
    assert units[:, 2].abs().max() < 0.3


def test_a_world_without_values_is_told_apart():
    with pytest.raises(ValueError, match=r"LinearWorld has none.*--family tdmpc2"):
        TDMPC2Policy(LinearWorld(), make_model())
