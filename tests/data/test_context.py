"""A controller's context at the start of an episode is the one that planners are trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import synthetic_episodes

from leplanner.core.actions import ActionSpec
from leplanner.data.context import context_places, fill_context
from leplanner.data.windows import PlanWindows

ACTIONS = ActionSpec((1.0, -2.0), (2.0, 4.0), (-1.0, -1.0), (1.0, 1.0), block=5)
CURRENT = 27  # a row with five blocks of its episode behind it


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("context", [1, 2, 3, 4])
def test_filling_equals_the_windows_for_every_number_of_known_frames(context, shape, rng):
    episodes = synthetic_episodes(rng, lengths=(40,))
    latents = rng.normal(size=(episodes.rows, *shape)).astype(np.float32)
    windows = PlanWindows(latents, episodes, np.array([0]), ACTIONS, context)
    for known in range(1, context + 1):
        expected = windows.at(np.array([CURRENT]), np.array([1]), np.array([known - 1]))
        rows = [CURRENT - 5 * age for age in reversed(range(known))]
        frames = [torch.from_numpy(latents[row])[None] for row in rows]
        blocks = [torch.from_numpy(windows.table.leaving(np.array([row]))) for row in rows[:-1]]
        filled, past = fill_context(frames, blocks, context, ACTIONS)
        assert filled.shape == (1, context, *shape)
        assert past.shape == (1, context - 1, 10)
        assert np.array_equal(filled.numpy(), expected.context)
        assert np.array_equal(past.numpy(), expected.past_blocks)


def test_of_a_long_history_the_last_frames_are_taken():
    latents = [torch.full((2, 3), float(i)) for i in range(6)]
    blocks = [torch.full((2, 10), float(i)) for i in range(5)]
    filled, past = fill_context(latents, blocks, 3, ACTIONS)
    assert filled[0, :, 0].tolist() == [3, 4, 5]
    assert past[1, :, 0].tolist() == [3, 4]


def test_padding_repeats_the_first_frame_with_raw_zero_actions_between():
    filled, past = fill_context([torch.ones(1, 3), torch.zeros(1, 3)], [torch.full((1, 10), 7.0)], 4, ACTIONS)
    assert filled[0, :, 0].tolist() == [1, 1, 1, 0]
    assert torch.allclose(ACTIONS.raw(past[:, :2]), torch.zeros(1, 2, 5, 2))
    assert (past[0, 2] == 7.0).all()


def test_places_of_several_samples_at_once():
    places, real = context_places(np.array([1, 2, 3]), 3)
    assert places.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    assert real.tolist() == [[False, False], [False, True], [True, True]]
