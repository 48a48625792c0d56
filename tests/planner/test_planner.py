"""The planner: the paper's sizes, the laws every planner keeps, and the truth in a world whose optimum is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from linear_world import ACTIONS, HOLD, LATENT, OFFSET, SHAPE, LinearWorld, draw, optimal_plan, problem_of
from support import CPU

import leplanner as lp
from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.core.dynamics import imagination
from leplanner.core.fast_math import gelu
from leplanner.core.latent import LatentSpec
from leplanner.core.problem import PlanProblem
from leplanner.data.windows import plan_windows
from leplanner.density.mixture import Density, DensityConfig, MixtureDensity
from leplanner.pipeline.presets import get_preset
from leplanner.planner.checks import check_dynamics, check_planner
from leplanner.planner.fast import FastPlanner, fast_dynamics
from leplanner.planner.model import LePlanner, PlannerConfig
from leplanner.planner.objectives import LossInputs, arrival_and_hold
from leplanner.planner.planner import Planner, planner_for
from leplanner.planner.train import PlannerTrainConfig, fit_planner, perturb_starts, pick_step_engine, planner_losses
from leplanner.planner.validate import as_sample
from leplanner.tasks import TASKS
from leplanner.training.loop import parse_curriculum, stage_at
from leplanner.worlds.base import save_world
from leplanner.worlds.lewm.fast_rollout import FastRollout

DEVICE = torch.device("cpu")
TINY = get_preset(TASKS["tworoom"], "tiny")
SETTINGS = changed(TINY.training, steps=8, batch=8, validate_every=4, precision="fp32")
PAPER_ACTIONS = ActionSpec((0.0, 0.0), (1.0, 1.0), (-1.0, -1.0), (1.0, 1.0), block=5)


def linear_model(**changes) -> LePlanner:
    return LePlanner(replace(SHAPE, **changes), LatentSpec((LATENT,)), 3, ACTIONS)


def linear_planner(seed: int = 0, **changes) -> Planner:
    torch.manual_seed(seed)
    return Planner(LinearWorld(), linear_model(**changes))


def linear_problem(count: int = 7) -> PlanProblem:
    return problem_of(draw(np.random.default_rng(5), count))


def density_of(threshold: float, world_digest: str = "") -> Density:
    """For the tiny world's latents and blocks, with random weights."""
    return Density(
        MixtureDensity(DensityConfig(components=4, width=16), LatentSpec((32,)), 3, 10), threshold, world_digest
    )


# the paper's sizes


def test_paper_scale_has_6_8_million_parameters():
    model = LePlanner(PlannerConfig(), LatentSpec((192,)), 3, PAPER_ACTIONS)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert f"{count / 1e6:.1f}" == "6.8"
    assert count == 6_800_141
    assert model.consequence_in.in_features == 641
    assert model.refine_in.in_features == 512


def test_refinements_cost_no_parameters_but_their_step_size():
    counts = [sum(p.numel() for p in linear_model(refinements=k).parameters()) for k in (0, 3, 9)]
    assert [counts[1] - counts[0], counts[2] - counts[1]] == [3, 6]


def test_it_starts_as_the_paper_says():
    torch.manual_seed(0)
    model = LePlanner(PlannerConfig(), LatentSpec((192,)), 3, PAPER_ACTIONS)
    assert model.plan_query.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.delta_head.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert model.delta_head.bias.abs().max() == 0
    assert model.eta.sigmoid().tolist() == [0.5, 0.5, 0.5]


def test_paper_presets():
    preset = get_preset(TASKS["pusht"], "paper")
    pusht, tworoom = preset.training.optim, get_preset(TASKS["tworoom"], "paper").training.optim
    assert (pusht.steps, pusht.batch, pusht.learning_rate) == (20_000, 128, 3e-4)
    assert (tworoom.steps, tworoom.batch, tworoom.learning_rate) == (20_000, 32, 1e-4)
    assert (pusht.weight_decay, pusht.warmup, pusht.clip) == (1e-4, 0.05, 1.0)
    training = preset.training
    assert (training.support_weight, training.hold_weight, training.curriculum) == (0.01, 0.5, "0:2,0.25:3,0.5:5")
    density, optim = preset.density.model, preset.density.optim
    assert (density.components, density.width, optim.steps, optim.batch) == (16, 256, 4000, 256)
    assert optim.learning_rate == 1e-3


def test_the_curriculum():
    stages = parse_curriculum("0:2,0.25:3,0.5:5", 5)
    assert [stage_at(stages, share) for share in (0.0, 0.2499, 0.25, 0.4999, 0.5, 1.0)] == [2, 2, 3, 3, 5, 5]
    for wrong in ("", "2", "0.1:2", "0:2,0.5:6", "0:0", "0:3,0.5:4,0.25:5"):
        with pytest.raises(ValueError, match="SHARE:BLOCKS"):
            parse_curriculum(wrong, 5)


# laws


def test_contracts_hold_for_our_planner_and_worlds(tiny_world):
    check_planner(linear_planner(), linear_problem())
    problem = linear_problem()
    check_dynamics(LinearWorld(), problem.context, problem.past_blocks, torch.randn(7, 5, 2))
    context, past, plan = torch.randn(4, 3, 32), torch.randn(4, 2, 10), torch.randn(4, 5, 10)
    check_dynamics(tiny_world, context, past, plan)
    check_dynamics(FastRollout(tiny_world.model), context, past, plan)


def test_a_wrong_shortcut_is_detected():
    class Hasty(LinearWorld):
        def prepare(self, context, past_blocks):
            return lambda plan: 2 * self.rollout(context, past_blocks, plan)

    problem = linear_problem()
    with pytest.raises(ValueError, match="differs from rollout"):
        check_dynamics(Hasty(), problem.context, problem.past_blocks, torch.randn(7, 5, 2))


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (lambda z, plan: z[:, :4], "returned shape"),
        (lambda z, plan: z * float("nan"), "not finite"),
        (lambda z, plan: z + torch.randn_like(z), "another answer each time"),
        (lambda z, plan: z - z.mean(dim=0), "other rows of its batch"),
        (lambda z, plan: z + plan.sum(dim=(1, 2), keepdim=True), "a later block changes"),
        (lambda z, plan: z.detach(), "do not reach every block"),
    ],
)
def test_a_broken_world_is_detected(breaks, message):
    class Broken(LinearWorld):
        def rollout(self, context, past_blocks, plan):
            return breaks(super().rollout(context, past_blocks, plan), plan)

    problem = linear_problem()
    with pytest.raises(ValueError, match=message):
        check_dynamics(Broken(), problem.context, problem.past_blocks, torch.randn(7, 5, 2))


def test_a_world_that_would_train_is_detected():
    world = LinearWorld()
    world.layer = torch.nn.Linear(2, 2)
    problem = linear_problem()
    with pytest.raises(ValueError, match="freeze them"):
        check_dynamics(world, problem.context, problem.past_blocks, torch.randn(7, 5, 2))


def test_a_broken_planner_is_detected():
    planner = linear_planner()
    planner.model.register_forward_hook(
        lambda module, inputs, plans: (*plans[:-1], replace(plans[-1], blocks=plans[-1].blocks[:1].expand(7, -1, -1)))
    )
    with pytest.raises(ValueError, match="order of the batch"):
        check_planner(planner, linear_problem())


def test_gradients_reach_the_planner_through_the_world_and_never_the_world(tiny_world, tiny_cache):
    torch.manual_seed(0)
    model = planner_for(tiny_world, TINY.planner)
    sample = as_sample(plan_windows(tiny_world, tiny_cache)[0].draw(np.random.default_rng(0), 16, 5), DEVICE)
    density = density_of(-10.0, tiny_world.digest)
    plans = model(sample.problem, imagination(tiny_world, sample.problem))
    planner_losses(LossInputs(plans, sample, tiny_world, density, 5), SETTINGS)["loss"].backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    for frozen in (*tiny_world.model.parameters(), *density.model.parameters()):
        assert frozen.grad is None


def test_the_draft_and_each_correction_are_recorded():
    planner, problem = linear_planner(), linear_problem()
    trace = planner.plan(problem, record="trace")
    assert len(trace.plans) == 4
    assert torch.equal(trace.final.blocks, planner.plan(problem).blocks)
    for plan in trace.plans:
        imagined = LinearWorld().rollout(problem.context, problem.past_blocks, plan.blocks)
        assert torch.allclose(plan.latents, imagined)
        assert torch.allclose(plan.distances, (imagined - problem.goal[:, None]).square().mean(-1))
    assert len(linear_planner(refinements=0).plan(problem, record="trace").plans) == 1


def test_bad_problems_get_an_answer():
    planner, problem = linear_planner(), linear_problem()
    with pytest.raises(ValueError, match=r"context must have shape \(7, 3, 4\)"):
        planner.plan(replace(problem, context=problem.context[..., :3], goal=problem.goal[:, :3]))
    with pytest.raises(ValueError, match=r"past_blocks must have shape \(7, 2, 2\)"):
        planner.plan(replace(problem, past_blocks=problem.past_blocks[..., :1]))
    unchecked = SimpleNamespace(**vars(problem) | {"goal": problem.goal[:, :3]})  # outside tests shapes are not checked
    with pytest.raises(ValueError, match=r"goal must have shape \(7, 4\)"):
        planner.plan(unchecked)
    with pytest.raises(ValueError, match="context holds NaN"):
        planner.plan(replace(problem, context=problem.context * float("nan")))
    with pytest.raises(ValueError, match="final"):
        planner.plan(problem, record="everything")


# speed without change


def test_gelu_is_gelu():
    x = torch.linspace(-9, 9, 4001, requires_grad=True)
    exact = torch.nn.functional.gelu(x.double())  # the library's own fp32 errs by up to 9e-7, depending on the machine
    assert (gelu(x) - exact).abs().max() < 1e-6
    (ours,) = torch.autograd.grad(gelu(x).sum(), x)
    (theirs,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
    assert (ours - theirs).abs().max() < 1e-5


def trained_like(world):
    """AdaLN starts as zeros, which would hide mistakes: give a world's modulations and norms real values."""
    torch.manual_seed(1)
    for name, parameter in world.model.named_parameters():
        if "adaLN" in name or "norm" in name or "net.1" in name:
            parameter.add_(0.2 * torch.randn_like(parameter))
    return world


@pytest.mark.timeout(900)  # compiling takes minutes
@pytest.mark.filterwarnings("ignore")  # torch's own, on compiling
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_fast_step_has_the_same_loss_and_gradients(compiled, tiny_world, tiny_cache, tmp_path):
    save_world(tiny_world, tmp_path)
    world = trained_like(lp.load_world(tmp_path))
    torch.manual_seed(0)
    model = planner_for(world, replace(TINY.planner, depth=2))
    sample = as_sample(plan_windows(tiny_world, tiny_cache)[0].draw(np.random.default_rng(0), 6, 5), DEVICE)
    density = density_of(-1.0)
    results = []
    fast = (FastPlanner(model, compiled), fast_dynamics(world, compiled))
    for forward, dynamics in ((model, world), fast):
        model.zero_grad()
        plans = forward(sample.problem, imagination(dynamics, sample.problem))
        losses = planner_losses(LossInputs(plans, sample, world, density, 5), SETTINGS)
        losses["loss"].backward()
        results.append((losses, torch.cat([p.grad.flatten() for p in model.parameters()])))
    (plain, plain_gradient), (quick, quick_gradient) = results
    for name in ("loss", "objective", "support"):
        assert quick[name].item() == pytest.approx(plain[name].item(), rel=1e-5)
    assert (quick_gradient - plain_gradient).norm() < 1e-4 * plain_gradient.norm()


def test_step_engines_are_chosen_or_refused():
    assert pick_step_engine("plain", DEVICE) == "plain"
    assert pick_step_engine("auto", torch.device("mps")) == "plain"
    with pytest.raises(ValueError, match="auto, plain, compiled"):
        pick_step_engine("warp", DEVICE)


# truth


def test_a_trained_planner_comes_within_ten_percent_of_the_optimum(tmp_path):
    world, planner = LinearWorld(), linear_planner()
    settings = {"steps": 700, "batch": 128, "learning_rate": 3e-3, "precision": "fp32", "validate_every": 700}
    config = changed(PlannerTrainConfig(curriculum="0:5"), **settings)
    held_out = draw(np.random.default_rng(1), 128)
    planner.model.requires_grad_(True)
    fit_planner(planner.model, world, None, draw, held_out, config, tmp_path, "linear", CPU)
    trace = planner.plan(problem_of(held_out), record="trace")
    offset = torch.full((128,), OFFSET)
    by_k = [arrival_and_hold(plan.distances, offset, HOLD).mean().item() for plan in trace.plans]
    best = np.mean([optimal_plan(world, c[-1], g)[0] for c, g in zip(held_out.context, held_out.goal, strict=True)])
    assert best > 0.02  # worth comparing with
    assert best <= by_k[-1] < 1.1 * best, (by_k, best)
    assert by_k == sorted(by_k, reverse=True), by_k


def test_the_optimum_is_one(rng):
    """The solver's plan costs what the world model says, and no random plan costs less."""
    world, batch = LinearWorld(), draw(rng, 1)
    best, plan = optimal_plan(world, batch.context[0, -1], batch.goal[0])
    problem = problem_of(batch)
    latents = world.rollout(problem.context, problem.past_blocks, torch.tensor(plan, dtype=torch.float32)[None])
    distances = (latents - problem.goal).square().mean(-1)
    assert arrival_and_hold(distances, torch.tensor([OFFSET]), HOLD).item() == pytest.approx(best, rel=1e-3)
    plans = ACTIONS.center + ACTIONS.scale * torch.tanh(torch.randn(20_000, 5, 2))
    latents = world.rollout(problem.context.expand(20_000, -1, -1), problem.past_blocks, plans)
    costs = arrival_and_hold((latents - problem.goal).square().mean(-1), torch.full((20_000,), OFFSET), HOLD)
    assert best <= costs.min()
    assert costs.min() < 3 * best


def test_a_perturbed_start_is_one_imagined_block_away_and_keeps_its_goal():
    world, batch = LinearWorld(), draw(np.random.default_rng(0), 40)
    sample = replace(as_sample(batch, DEVICE), reference_known=torch.ones(40, dtype=torch.bool))
    taken = torch.randn(40, 2)
    moved = perturb_starts(sample, taken, world, 1, prob=1.0, generator=torch.Generator().manual_seed(3))
    again = perturb_starts(sample, taken, world, 1, prob=1.0, generator=torch.Generator().manual_seed(3))
    assert torch.equal(moved.problem.context, again.problem.context)
    block = moved.problem.past_blocks[:, -1:]
    assert not torch.allclose(block[:, 0], taken)
    expected = world.rollout(sample.problem.context, sample.problem.past_blocks, block)
    assert torch.equal(moved.problem.context[:, -1:], expected)
    assert torch.equal(moved.problem.context[:, :-1], sample.problem.context[:, 1:])
    assert torch.equal(moved.problem.past_blocks[:, :-1], sample.problem.past_blocks[:, 1:])
    assert torch.equal(moved.problem.goal, sample.problem.goal)
    assert torch.equal(moved.offset, sample.offset)
    none = perturb_starts(sample, taken, world, 1, prob=0.0, generator=torch.Generator().manual_seed(3))
    assert torch.equal(none.problem.context, sample.problem.context)
    some = perturb_starts(sample, taken, world, 1, prob=0.5, generator=torch.Generator().manual_seed(3))
    same = (some.problem.context == sample.problem.context).flatten(1).all(1)
    assert 5 < int(same.sum()) < 35
    assert torch.equal(some.reference_known, same)  # no reference leads from elsewhere
