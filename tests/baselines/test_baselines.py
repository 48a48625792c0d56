"""Baselines: search counts its transitions and improves plans; learned policies learn, resume and are stored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from linear_world import ACTIONS, HORIZON, LATENT, LinearWorld, draw, make_model, problem_of
from support import CPU, action_spec, synthetic_episodes

from leplanner.baselines.learned import LEARNED, BaselineTrainConfig, load_baseline, train_baseline
from leplanner.baselines.simple import NoOp, RandomPolicy, Replay
from leplanner.baselines.swm_search import SearchPolicy
from leplanner.baselines.transitions import draw_transitions
from leplanner.control.methods import METHODS, MethodInputs, SearchBudget, methods_of
from leplanner.control.policy import PlannerPolicy, Request, imagined_distance
from leplanner.core.config import changed
from leplanner.core.problem import PlanProblem
from leplanner.data.windows import PlanWindows, plan_windows

SETTINGS = changed(BaselineTrainConfig(), steps=20, batch=32, validate_every=10)


def request_for(problem: PlanProblem, remaining: int = 50) -> Request:
    return Request(problem, remaining, None, tuple(range(100, 100 + len(problem.goal))))


def test_transitions_per_plan(tiny_planner):
    """20 for ours; 45,000 for CEM."""
    problem = PlanProblem(torch.randn(1, 3, 32), torch.randn(1, 2, 10), torch.randn(1, 32))
    ours = PlannerPolicy(tiny_planner)
    ours.decide(request_for(problem))
    assert ours.transitions == tiny_planner.transitions_per_plan == 20
    cem = METHODS.get("cem").make(MethodInputs(tiny_planner, budget=50))(None)
    cem.decide(request_for(problem))
    assert cem.transitions == 45_000


@pytest.mark.parametrize("kind", methods_of("search"))
def test_search_improves_stays_in_the_box_and_depends_on_its_seed_alone(kind, capsys):
    world, problem = LinearWorld(), problem_of(draw(np.random.default_rng(2), 4))
    policy = SearchPolicy(kind, world, make_model(), SearchBudget(samples=64, rounds=12))
    seeds = (5, 6, 7, 8)
    plans = policy.plan(problem, seeds)
    assert plans.shape == (4, HORIZON, 2)
    assert ((plans - ACTIONS.center).abs() <= ACTIONS.scale + 1e-5).all()
    reached = imagined_distance(world, problem, plans).mean()
    assert reached < 0.8 * imagined_distance(world, problem, torch.zeros(4, HORIZON, 2)).mean()
    again = policy.plan(problem, seeds, remaining_plan=plans[:, 1:])  # from where the last plan left off
    assert not torch.equal(again, plans)
    order = [2, 0, 3, 1]
    shuffled = PlanProblem(problem.context[order], problem.past_blocks[order], problem.goal[order])
    assert torch.equal(policy.plan(shuffled, tuple(seeds[i] for i in order)), plans[order])
    assert policy.decide(request_for(problem)).shape == (4, HORIZON, 2)
    assert capsys.readouterr().out == ""


class SummedWorld(LinearWorld):
    """Measures as stable-worldmodel's LeWM and PLDM do: the sum over a latent, not the mean."""

    def distance(self, latents, goal):
        return self.latent.size * super().distance(latents, goal)


def test_mppi_weighs_plans_as_stable_worldmodels_own_does():
    problem = problem_of(draw(np.random.default_rng(2), 4))
    budget, seeds = SearchBudget(samples=64, rounds=12), (5, 6, 7, 8)
    ours = SearchPolicy("mppi", LinearWorld(), make_model(), budget)
    theirs = SearchPolicy("mppi", SummedWorld(), make_model(), budget)
    theirs.solver.temperature = 0.5  # its default
    assert LinearWorld().latent.size > 1
    torch.testing.assert_close(ours.plan(problem, seeds), theirs.plan(problem, seeds))


def test_an_unknown_method_and_too_small_a_search_are_refused():
    with pytest.raises(ValueError, match="cem, icem, mppi, gradient"):
        METHODS.get("luck")
    for few in ({"samples": 19}, {"rounds": 0}):
        with pytest.raises(ValueError, match="two elites"):
            SearchBudget(**few)


def test_floors_and_replay():
    problem = problem_of(draw(np.random.default_rng(2), 3))
    drawn = RandomPolicy(ACTIONS).decide(request_for(problem))
    assert drawn.shape[0] == 3
    assert np.abs(drawn).max() <= 1
    assert np.array_equal(RandomPolicy(ACTIONS).decide(request_for(problem)), drawn)
    assert not np.array_equal(drawn[0], drawn[1])
    assert not NoOp(ACTIONS).decide(request_for(problem)).any()
    actions = np.random.default_rng(0).uniform(-1, 1, (7, 2)).astype(np.float32)
    replayed = Replay(actions, budget=10).decide(request_for(problem))
    assert np.array_equal(replayed[1, :7], actions)
    assert not replayed[:, 7:].any()


def test_transitions_are_the_datas(tiny_world, tiny_cache, rng):
    windows, _ = plan_windows(tiny_world, tiny_cache)
    batch = draw_transitions(windows, rng, 200, max_offset=4, random_share=0.25)
    near = batch.horizon == 5
    assert np.array_equal(batch.following[near], batch.goal[near])
    assert np.array_equal(batch.reached, near)
    assert set(np.unique(batch.horizon)) == {0, 5, 10, 15, 20}
    assert 0.1 < np.mean(batch.horizon == 0) < 0.4


def row_windows(rng, steps_per_row: int) -> PlanWindows:
    """Latents that say which row they are of, in episodes whose actions do, too."""
    episodes = synthetic_episodes(rng, lengths=(80, 33, 6), steps_per_row=steps_per_row)
    latents = np.arange(episodes.rows, dtype=np.float32)[:, None]
    return PlanWindows(latents, episodes, np.arange(3), action_spec(), context=3)


def test_who_is_told_the_time_left_learns_every_horizon_that_the_data_holds(rng):
    """Triples (z_t, z_{t+h}, h) and the action after t, h = 1..50; for the others goals are at the ends of blocks."""
    for steps_per_row, every_row, horizons in ((1, True, range(1, 51)), (1, False, range(5, 51, 5))):
        batch = draw_transitions(row_windows(rng, steps_per_row), rng, 4000, max_offset=10, every_row=every_row)
        assert set(np.unique(batch.horizon)) == set(horizons)
        assert np.array_equal(batch.goal - batch.latent, batch.horizon[:, None])
        assert np.array_equal(batch.block[:, 0], 2 * batch.latent[:, 0])  # the first number of that row's action
    thinned = draw_transitions(row_windows(rng, 5), rng, 4000, max_offset=10, every_row=True)
    assert set(np.unique(thinned.horizon)) == set(range(5, 51, 5))
    assert np.array_equal(5 * (thinned.goal - thinned.latent), thinned.horizon[:, None])


def test_the_inverse_model_is_fitted_to_the_next_action_at_the_horizon_it_is_told():
    """|GC-IDM(z_t, z_{t+h}, h) - a_t|^2, whatever the rest of the block is."""
    torch.manual_seed(0)
    baseline = LEARNED.get("gcidm")
    model = baseline.network(LATENT, 10, 5, baseline.config(width=16))
    latent, goal, block = torch.randn(8, LATENT), torch.randn(8, LATENT), torch.randn(8, 10)
    block[:, 2:] = float("nan")
    horizon = torch.arange(8) + 1.0
    loss = model.losses({"latent": latent, "goal": goal, "block": block, "horizon": horizon})["loss"]
    expected = (model.blocks(latent, goal, horizon) - block[:, :2]).square().mean()
    assert torch.equal(loss, expected)


@pytest.mark.parametrize("name", [*LEARNED])
def test_a_learned_baseline_resumes_and_is_stored(name, tiny_world, tiny_cache, tmp_path):
    whole = train_baseline(name, tiny_world, tiny_cache, SETTINGS, tmp_path / "whole", CPU)
    train_baseline(name, tiny_world, tiny_cache, SETTINGS, tmp_path / "parts", CPU, stop_after=13)
    parts = train_baseline(name, tiny_world, tiny_cache, SETTINGS, tmp_path / "parts", CPU)
    stored = load_baseline(tmp_path / "whole", tiny_world)
    request = request_for(PlanProblem(torch.randn(3, 3, 32), torch.randn(3, 2, 10), torch.randn(3, 32)), 17)
    actions = whole.decide(request)
    assert actions.shape == ((3, 1, 2) if name == "gcidm" else (3, 5, 2))
    assert whole.stride == (1 if name == "gcidm" else 5)
    assert np.abs(actions).max() <= 1
    assert np.array_equal(parts.decide(request), actions)
    assert np.array_equal(stored.decide(request), actions)
    with pytest.raises(ValueError, match="another configuration"):
        train_baseline(name, tiny_world, tiny_cache, changed(SETTINGS, seed=9), tmp_path / "whole", CPU)


def test_only_the_inverse_model_knows_the_deadline(tiny_world, tiny_cache, tmp_path):
    problem = PlanProblem(torch.randn(2, 3, 32), torch.randn(2, 2, 10), torch.randn(2, 32))
    for name in LEARNED:
        policy = train_baseline(name, tiny_world, tiny_cache, SETTINGS, tmp_path / name, CPU)
        soon, late = policy.decide(request_for(problem, 3)), policy.decide(request_for(problem, 40))
        assert np.array_equal(soon, late) == (name != "gcidm")


@pytest.mark.parametrize("name", [*LEARNED])
def test_a_learned_baseline_learns(name):
    """Blocks that lead from a latent to its goal, the difference of the two: every baseline recovers them."""
    torch.manual_seed(0)
    baseline = LEARNED.get(name)
    model = baseline.network(LATENT, 4, 1, baseline.config(width=64))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def batch(count: int = 128) -> dict[str, torch.Tensor]:
        latent, goal = torch.randn(count, LATENT), torch.randn(count, LATENT)
        ones = torch.ones(count)
        return {
            "latent": latent, "goal": goal, "block": goal - latent, "following": goal,
            "reached": ones, "horizon": ones, "future": ones,
        }  # fmt: skip

    for _ in range(300):
        loss = model.losses(batch())["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    test = batch(256)
    predicted = model.blocks(test["latent"], test["goal"], torch.ones(256))
    assert (predicted - test["block"]).square().mean() < 0.1 * test["block"].square().mean()


@pytest.mark.parametrize("name", ["gcivl", "gciql"])
def test_offline_learning_prefers_the_block_that_arrives(name):
    """From every latent half of the blocks lead to the goal and half away from it. Cloning would answer with their
    mean, zero; a value tells them apart."""
    torch.manual_seed(0)
    baseline = LEARNED.get(name)
    model = baseline.network(LATENT, 4, 1, baseline.config(width=64))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(600):
        goal = torch.nn.functional.normalize(torch.randn(256, LATENT), dim=1)
        sign = torch.randint(0, 2, (256, 1)) * 2.0 - 1
        latent = torch.zeros(256, LATENT)
        batch = {"latent": latent, "goal": goal, "block": sign * goal, "following": sign * goal}
        batch |= {"reached": (sign[:, 0] > 0).float(), "horizon": torch.ones(256), "future": torch.ones(256)}
        loss = model.losses(batch)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    goal = torch.nn.functional.normalize(torch.randn(256, LATENT), dim=1)
    chosen = model.blocks(torch.zeros(256, LATENT), goal, torch.ones(256))
    assert (chosen * goal).sum(dim=1).mean() > 0.3


def test_a_method_that_needs_the_deadline_must_be_given_it(tiny_world, tiny_cache, tmp_path):
    policy = train_baseline("gcidm", tiny_world, tiny_cache, SETTINGS, tmp_path, CPU)
    problem = PlanProblem(torch.randn(2, 3, 32), torch.randn(2, 2, 10), torch.randn(2, 32))
    with pytest.raises(ValueError, match="deadline"):
        policy.decide(Request(problem, None, None, (1, 2)))


def test_a_baseline_of_another_encoder_is_refused(tiny_world, tiny_cache, tmp_path):
    train_baseline("gcbc", tiny_world, tiny_cache, SETTINGS, tmp_path, CPU)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace(tiny_world.encoder_digest, "0" * 64))
    with pytest.raises(ValueError, match="another encoder"):
        load_baseline(tmp_path, tiny_world)
    with pytest.raises(ValueError, match="leplanner baselines"):
        load_baseline(tmp_path / "no-op", tiny_world)
