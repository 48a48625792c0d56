"""Actions in both units: raw and in the environment's box, standardized and packed into blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from leplanner.core.actions import ActionSpec

MEAN, STD = (0.1, -2.0, 30.0), (0.5, 4.0, 10.0)
LOW, HIGH = (-1.0, -8.0, 0.0), (1.0, 4.0, 100.0)  # each dimension has its own bounds
SPEC = ActionSpec(MEAN, STD, LOW, HIGH, block=2)


def test_center_plus_and_minus_scale_is_exactly_the_box():
    top, bottom = SPEC.raw(SPEC.center + SPEC.scale), SPEC.raw(SPEC.center - SPEC.scale)
    assert torch.allclose(top, torch.tensor([HIGH, HIGH]), rtol=1e-6)
    assert torch.allclose(bottom, torch.tensor([LOW, LOW]), atol=1e-5)
    middle = (torch.tensor(LOW) + torch.tensor(HIGH)) / 2
    assert torch.allclose(SPEC.raw(SPEC.center), middle.expand(2, 3), rtol=1e-5)


def test_what_tanh_bounds_never_leaves_the_box_and_fills_it(rng):
    blocks = SPEC.center + SPEC.scale * torch.tanh(torch.from_numpy(rng.normal(size=(4000, 6)) * 5).float())
    actions = SPEC.raw_actions(blocks[:, None])
    assert actions.shape == (4000, 2, 3)
    assert (actions >= LOW).all()
    assert (actions <= HIGH).all()
    spans = np.ptp(actions.reshape(-1, 3), axis=0)
    assert (spans > 0.999 * (np.array(HIGH) - LOW)).all()


def test_blocks_beyond_the_box_are_brought_back_to_its_border():
    for sign, border in ((2.0, HIGH), (-2.0, LOW)):
        assert SPEC.raw(SPEC.center + sign * SPEC.scale).tolist() == [list(border)] * 2


def test_raw_actions_and_blocks_are_inverse(rng):
    actions = rng.uniform(LOW, HIGH, size=(5, 8, 3))
    blocks = SPEC.blocks(actions)
    assert blocks.shape == (5, 4, 6)
    assert np.allclose(SPEC.raw_actions(torch.from_numpy(blocks)), actions, rtol=1e-5, atol=1e-5)


def test_a_zero_block_is_of_raw_zero_actions():
    assert np.allclose(SPEC.raw(torch.from_numpy(SPEC.zero_block())), 0.0, atol=1e-5)


def test_sizes_that_do_not_agree_are_refused():
    assert (SPEC.dim, SPEC.block_dim) == (3, 6)
    with pytest.raises(ValueError, match="got 3, 3, 1, 3 numbers"):
        ActionSpec(MEAN, STD, (-1.0,), HIGH, 2)
    with pytest.raises(ValueError, match="block 0"):
        ActionSpec(MEAN, STD, LOW, HIGH, 0)
    with pytest.raises(ValueError, match="one number for each dimension"):
        ActionSpec((), (), (), (), 1)
