"""What a plan is rewarded for, on the paper's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from linear_world import LinearWorld, draw, make_model
from support import CPU

from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.core.dynamics import imagination, pairwise_distance
from leplanner.planner.objectives import (
    OBJECTIVES,
    TERMS,
    LossInputs,
    LossTerm,
    Objective,
    arrival,
    arrival_and_hold,
    contexts_before,
    deep_supervision,
    deep_supervision_weights,
    fixed_terminal,
    hold,
    roughness,
    support_penalty,
    tracking_loss,
)
from leplanner.planner.train import PlannerTrainConfig, fit_planner, held_out_metrics, planner_losses
from leplanner.planner.validate import as_sample

DEFERS = [0.090, 0.053, 0.035, 0.023, 0.014]
ARRIVES = [0.015, 0.014, 0.014, 0.015, 0.014]
BOTH = torch.tensor([DEFERS, ARRIVES])


def test_the_papers_two_profiles_for_a_goal_one_block_away():
    """The terminal loss cannot tell them apart; arrival-and-hold prefers arriving by 4.8 times."""
    assert [f"{x:.4f}" for x in fixed_terminal(BOTH)] == ["0.0140", "0.0140"]
    new = arrival_and_hold(BOTH, torch.tensor([1, 1]), hold_weight=0.5)
    assert [f"{x:.4f}" for x in new] == ["0.1056", "0.0221"]
    assert f"{new[0] / new[1]:.1f}" == "4.8"


def test_every_offset_reads_its_own_block():
    distances = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0]]).repeat(5, 1)
    offset = torch.arange(1, 6)
    assert arrival(distances, offset).tolist() == [1, 2, 4, 8, 16]
    assert hold(distances, offset).tolist() == pytest.approx([30 / 4, 28 / 3, 24 / 2, 16.0, 0.0])


def test_hold_is_zero_when_the_goal_is_at_the_plans_end():
    offset = torch.full((2,), 5)
    assert torch.equal(arrival_and_hold(BOTH, offset, 0.5), BOTH[:, -1])
    assert torch.equal(arrival_and_hold(BOTH, torch.tensor([1, 2]), 0.0), torch.tensor([0.090, 0.014]))


def test_the_path_loss_adds_the_distances_before_the_end():
    assert torch.allclose(fixed_terminal(BOTH, 0.1), BOTH[:, -1] + 0.1 * BOTH[:, :4].mean(dim=1))


def test_offsets_beyond_the_plan_are_refused():
    for offset in (0, 6):
        with pytest.raises(ValueError, match=r"1\.\.5"):
            arrival_and_hold(BOTH, torch.tensor([1, offset]))


def test_deep_supervision_weights():
    assert torch.allclose(deep_supervision_weights(3), torch.tensor([1.0, 2, 4, 8]) / 15)
    losses = [torch.tensor(x) for x in (15.0, 30.0, 0.0, 7.5)]
    assert deep_supervision(losses).item() == pytest.approx(1 + 4 + 4)
    assert deep_supervision(losses[:1]).item() == 15.0


def test_the_support_penalty_is_zero_inside_one_sided_and_squared():
    inside = torch.tensor([[-5.0, 1.0, 1.5306]], requires_grad=True)
    penalty = support_penalty(inside, 1.5306)
    assert penalty.item() == 0.0
    penalty.backward()
    assert torch.equal(inside.grad, torch.zeros_like(inside))
    assert support_penalty(torch.tensor([[0.0, 3.5], [0.0, 1.5]]), 1.5).item() == pytest.approx(4 / 4)


def test_the_context_before_each_block_slides_into_imagination():
    context, latents = torch.arange(3.0).view(1, 3, 1), torch.arange(3.0, 8.0).view(1, 5, 1)
    before = contexts_before(context, latents)
    assert before[0, :, :, 0].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]


def test_the_papers_action_constants_for_pusht():
    actions = ActionSpec((-0.0078128, 0.0068606), (0.2082412, 0.2064913), (-1.0, -1.0), (1.0, 1.0), block=5)
    assert [f"{x:.4f}" for x in actions.center[:2]] == ["0.0375", "-0.0332"]
    assert [f"{x:.4f}" for x in actions.scale[:2]] == ["4.8021", "4.8428"]
    assert actions.center.shape == actions.scale.shape == (10,)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 2.0)])
def test_raw_actions_are_exactly_the_box(low, high):
    actions = ActionSpec((-0.0078128, 0.0068606), (0.2082412, 0.2064913), (low, low), (high, high), block=5)
    u = torch.linspace(-30, 30, 2001).unsqueeze(1).expand(-1, 10)
    raw = actions.raw(actions.center + actions.scale * u.tanh())
    assert raw.shape == (2001, 5, 2)
    assert raw.min() == low
    assert raw.max() == high
    middle, half = (high + low) / 2, (high - low) / 2
    assert torch.allclose(raw[:, 0, 0], middle + half * u[:, 0].tanh(), atol=2e-6)


def test_tracking_is_charged_before_arrival_only_and_only_where_a_reference_is_known():
    world, reference = LinearWorld(), torch.zeros(4, 3, 2)
    latents = torch.tensor([1.0, 2.0, 9.0]).view(1, 3, 1).expand(4, 3, 2).clone().requires_grad_()
    offset, known = torch.tensor([3, 2, 1, 3]), torch.tensor([True, True, True, False])
    charged = tracking_loss(pairwise_distance(world, latents, reference), offset, known)
    assert charged.tolist() == [(1 + 4) / 2, 1.0, 0.0, 0.0]
    charged.sum().backward()
    assert latents.grad is not None
    assert latents.grad[0, :2].abs().min() > 0
    assert latents.grad[2:].abs().max() == 0
    assert tracking_loss(pairwise_distance(world, reference, reference), offset, known).max() == 0


def test_roughness_charges_changes_between_neighboring_actions_across_blocks():
    actions = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 2.0], [1.0, 2.0]])  # changes: 1, 2 and 0
    blocks = actions.reshape(1, 2, 4)  # two blocks of two actions
    assert roughness(blocks, 2).item() == pytest.approx((1 + 4) / 6)
    assert roughness(torch.ones(3, 5, 10), 5).item() == 0


# terms and objectives of other packages


@pytest.fixture
def registered(monkeypatch):
    """Registers an objective or a loss term for the length of a test."""

    def register(registry, item):
        registry.names()  # complete
        monkeypatch.setattr(registry, "_items", dict(registry._items))
        return registry.register(item)

    return register


@pytest.fixture
def inputs() -> LossInputs:
    torch.manual_seed(0)
    world, sample = LinearWorld(), as_sample(draw(np.random.default_rng(3), 6), torch.device("cpu"))
    plans = make_model()(sample.problem, imagination(world, sample.problem))
    return LossInputs(plans, sample, world, density=None, block=1)


def effort(inputs: LossInputs) -> torch.Tensor:
    return inputs.plans[-1].blocks.square().mean()


def test_a_registered_term_is_added_with_its_weight(registered, inputs):
    registered(TERMS, LossTerm("effort", effort))
    plain = planner_losses(inputs, PlannerTrainConfig())
    charged = planner_losses(inputs, PlannerTrainConfig(extra_terms={"effort": 0.25}))
    assert "effort" not in plain
    assert charged["effort"].item() == pytest.approx(effort(inputs).item())
    assert charged["loss"].item() == pytest.approx(plain["loss"].item() + 0.25 * effort(inputs).item())
    assert charged["loss"].item() > plain["loss"].item() + 1e-3


def test_a_term_that_does_not_apply_is_left_out(registered, inputs):
    registered(TERMS, LossTerm("elsewhere", lambda inputs: None))
    losses = planner_losses(inputs, PlannerTrainConfig(extra_terms={"elsewhere": 1.0}))
    assert set(losses) == {"loss", "objective"}


def test_a_registered_term_trains_and_an_unknown_one_is_refused(registered, tmp_path):
    registered(TERMS, LossTerm("effort", effort))
    held_out = draw(np.random.default_rng(1), 16)
    norms = []
    for number, weight in enumerate((0.0, 100.0)):
        torch.manual_seed(0)
        model, config = make_model(), PlannerTrainConfig(curriculum="0:5", extra_terms={"effort": weight})
        config = changed(config, steps=20, batch=16, learning_rate=3e-3, precision="fp32", validate_every=20)
        fit_planner(model, LinearWorld(), None, draw, held_out, config, tmp_path / str(number), "effort", CPU)
        sample = as_sample(held_out, torch.device("cpu"))
        with torch.no_grad():
            plans = model(sample.problem, imagination(LinearWorld(), sample.problem))
        norms.append(plans[-1].blocks.square().mean().item())
    assert norms[1] < 0.5 * norms[0]
    config = changed(config, extra_terms={"elegance": 1.0})
    with pytest.raises(ValueError, match=r"Unknown loss term 'elegance'\. Known: support, tracking, smooth, effort"):
        fit_planner(make_model(), LinearWorld(), None, draw, held_out, config, tmp_path / "no", "effort", CPU)
    assert not (tmp_path / "no").exists()


def test_objectives_are_registered_by_name(registered, inputs):
    assert OBJECTIVES.names() == ["arrival-hold", "fixed-terminal"]
    nearest = Objective("nearest", lambda distances, offset, config: distances.min(dim=1).values, chosen_by="terminal")
    registered(OBJECTIVES, nearest)
    losses = planner_losses(inputs, PlannerTrainConfig(objective="nearest"))
    expected = deep_supervision([plan.distances.min(dim=1).values.mean() for plan in inputs.plans])
    assert losses["objective"].item() == pytest.approx(expected.item())
    model, world, sample = make_model(), inputs.dynamics, inputs.sample
    for name, chosen_by in (("nearest", "terminal"), ("arrival-hold", "arrival")):
        metrics = held_out_metrics(model, world, sample, None, name)
        assert metrics["held_out_chosen_by"] == metrics[f"held_out_{chosen_by}"][-1]
    with pytest.raises(ValueError, match="Did you mean 'nearest'"):
        planner_losses(inputs, PlannerTrainConfig(objective="nearer"))
