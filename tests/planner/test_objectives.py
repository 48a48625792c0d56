"""What a plan is rewarded for, on the paper's own numbers."""

from __future__ import annotations

import pytest
import torch

from leplanner.core.actions import ActionSpec
from leplanner.core.dynamics import pairwise_distance
from leplanner.planner.objectives import (
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
