"""The samplers: windows of frames and blocks, planning problems, and rollouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import action_spec, synthetic_episodes

from leplanner.data.episodes import action_statistics
from leplanner.data.windows import PlanWindows, WorldWindows


def test_world_windows_align_blocks_with_the_frames_they_leave(rng):
    episodes = synthetic_episodes(rng)
    windows = WorldWindows(episodes, np.arange(3), action_spec(), frames=4)
    batch = windows.draw(rng, 64)
    assert (np.diff(batch.rows, axis=1) == 5).all()
    ends = (episodes.starts + episodes.lengths)[np.searchsorted(episodes.starts, batch.rows[:, 0], side="right") - 1]
    assert (batch.rows[:, -1] < ends).all()
    row, k = 7, 1
    start = batch.rows[row, k]
    assert np.array_equal(batch.blocks[row, k].reshape(5, 2), episodes.actions[start : start + 5, 0])
    assert np.array_equal(batch.frames[row, k], episodes.frames[start])


def test_one_action_a_row_and_five_actions_a_row_give_the_same_blocks(rng):
    fine = synthetic_episodes(rng, lengths=(31,))
    coarse = replace(
        fine,
        frames=fine.frames[::5],
        actions=np.concatenate([fine.actions[:30].reshape(6, 5, 2), np.full((1, 5, 2), np.nan, np.float32)]),
        states=fine.states[::5],
        lengths=np.array([7]),
        steps_per_row=5,
    )
    actions = action_spec((3.0, -1.0), (2.0, 5.0))
    a = WorldWindows(fine, np.array([0]), actions, 4).at(np.array([5]))
    b = WorldWindows(coarse, np.array([0]), actions, 4).at(np.array([1]))
    assert np.array_equal(a.blocks, b.blocks)
    assert np.array_equal(a.frames, b.frames)
    with pytest.raises(ValueError, match="does not divide"):
        coarse.rows_per_block(4)


def test_actions_are_standardized_then_packed(rng):
    episodes = synthetic_episodes(rng)
    actions = action_spec(*action_statistics(episodes, np.arange(3)))
    blocks = WorldWindows(episodes, np.arange(3), actions, 4).table.actions
    assert np.allclose(np.nanmean(blocks, axis=0), 0, atol=1e-5)
    assert np.allclose(np.nanstd(blocks, axis=0), 1, atol=1e-5)


def test_nan_inside_an_episode_is_an_error(rng):
    episodes = synthetic_episodes(rng)
    episodes.actions[4] = np.nan
    with pytest.raises(ValueError, match=r"'action' is not finite in 1 rows .* row 4"):
        WorldWindows(episodes, np.arange(3), action_spec(), 4)


def test_windows_that_do_not_fit_are_an_error(rng):
    episodes = synthetic_episodes(rng, lengths=(12, 9))
    with pytest.raises(ValueError, match="at least 16 rows; 2 episodes were given, the longest of 12"):
        WorldWindows(episodes, np.arange(2), action_spec(), 4)


@pytest.fixture
def plan_windows(rng):
    episodes = synthetic_episodes(rng)
    latents = np.arange(episodes.rows, dtype=np.float16)[:, None] * np.ones(
        (1, 4), np.float16
    )  # a latent names its row
    actions = action_spec((1.0, 2.0), (2.0, 4.0))
    return episodes, PlanWindows(latents, episodes, np.arange(3), actions, context=3)


def test_plan_windows_stay_in_their_episode(plan_windows, rng):
    episodes, windows = plan_windows
    batch = windows.draw(rng, 2000, max_offset=5)
    rows = batch.context[..., 0].astype(int)
    current, goal = rows[:, -1], batch.goal[:, 0].astype(int)
    assert np.array_equal(goal, current + 5 * batch.offset)
    episode = np.searchsorted(episodes.starts, current, side="right") - 1
    assert (goal < episodes.starts[episode] + episodes.lengths[episode]).all()
    assert (rows[:, 0] >= episodes.starts[episode]).all()
    assert set(batch.offset) == {1, 2, 3, 4, 5}
    short = windows.draw(rng, 500, max_offset=2, horizon=5)
    assert set(short.offset) == {1, 2}
    ahead = np.minimum(np.arange(1, 6), short.offset[:, None])  # at the goal from its arrival on
    assert np.array_equal(short.reference[..., 0], short.context[:, -1:, 0] + 5 * ahead)
    assert short.reference_known.all()


def test_padded_contexts_repeat_the_first_frame_with_raw_zero_actions(plan_windows):
    _, windows = plan_windows
    batch = windows.at(np.array([12, 12, 12]), np.array([1, 1, 1]), np.array([0, 1, 2]))
    assert batch.context[..., 0].tolist() == [[12, 12, 12], [7, 7, 12], [2, 7, 12]]
    zero = np.tile([-0.5, -0.5], 5)
    assert np.allclose(batch.past_blocks[0], zero)
    assert np.allclose(batch.past_blocks[1, 0], zero)
    assert np.array_equal(batch.past_blocks[1, 1], windows.table.leaving(np.array(7)))
    assert np.array_equal(batch.past_blocks[2], windows.table.leaving(np.array([2, 7])))
    assert np.array_equal(batch.first_block[0], windows.table.leaving(np.array(12)))


def test_the_start_of_an_episode_is_padded_and_so_is_a_share_of_the_rest(plan_windows, rng):
    episodes, windows = plan_windows
    batch = windows.draw(rng, 4000, max_offset=5)
    rows = batch.context[..., 0].astype(int)
    padded = rows[:, 0] == rows[:, 1]
    episode = np.searchsorted(episodes.starts, rows[:, -1], side="right") - 1
    deep = rows[:, -1] - episodes.starts[episode] >= 10
    assert padded[~deep].all()
    assert 0.1 < padded[deep].mean() < 0.25  # a quarter is cut, to 0, 1 or 2 blocks of history


def test_rollouts_are_drawn_from_on_policy_data_with_the_requested_probability(rng):
    episodes = synthetic_episodes(rng, lengths=(91, 31))
    latents = np.zeros((episodes.rows, 1))
    latents[91:] = 1.0
    on_policy = replace(episodes, goal_rows=np.array([[-1, -1], [8, 20]]))
    windows = PlanWindows(latents, on_policy, np.arange(2), action_spec(), 3)
    natural = (31 - 10) / (31 - 10 + 91 - 10)  # rows with two blocks of five ahead of them
    for prob, expected in ((None, natural), (0.5, 0.5 + 0.5 * natural), (1.0, 1.0)):
        drawn = windows.draw_rollouts(rng, 4000, 2, prob).context[:, -1, 0].mean()
        assert abs(drawn - expected) < 0.04
    with pytest.raises(ValueError, match="no episode of the data was collected by a planner"):
        PlanWindows(latents, episodes, np.arange(2), action_spec(), 3).draw_rollouts(rng, 4, 2, 0.5)


def test_recovery_problems_begin_where_an_episode_missed_its_goal_and_aim_for_that_goal(rng):
    episodes = synthetic_episodes(rng, lengths=(31, 31, 26))
    latents = rng.normal(size=(episodes.rows, 8)).astype(np.float16)
    latents[76] = latents[20]  # one of the on-policy rows below is at its goal
    on_policy = replace(
        episodes, goal_rows=np.array([[-1, -1], [-1, -1], [8, 20]])
    )  # the data was there after twelve rows
    windows = PlanWindows(latents, on_policy, np.arange(3), action_spec(), 3, pad_prob=0.0, recovery_prob=0.5)
    starts = set(range(62 + 12, 83)) - {76}
    assert set(windows.missed) == starts
    batch = windows.draw(rng, 4000, max_offset=2, horizon=5)
    again = (batch.goal == latents[20].astype(np.float32)).all(axis=1) & (batch.offset == 5)
    assert 0.45 < again.mean() < 0.55
    assert {tuple(latent) for latent in batch.context[again, -1]} == {
        tuple(latents[row].astype(np.float32)) for row in starts
    }
    assert set(batch.offset[~again]) == {1, 2}
    assert np.array_equal(batch.reference_known, ~again)
    assert len(batch.offset) == len(batch.past_blocks) == len(batch.first_block) == 4000
    with pytest.raises(ValueError, match="no episode was steered towards a goal"):
        PlanWindows(latents, episodes, np.arange(3), action_spec(), 3, recovery_prob=0.5)
    with pytest.raises(ValueError, match="no episode was steered towards a goal"):
        PlanWindows(
            latents, on_policy, np.arange(2), action_spec(), 3, recovery_prob=0.5
        )  # the on-policy one is not among them
    with pytest.raises(ValueError, match="all 1 on-policy episodes were at their goals"):
        PlanWindows(np.ones_like(latents), on_policy, np.arange(3), action_spec(), 3, recovery_prob=0.5)
    with pytest.raises(ValueError, match=r"far_goal_prob is a probability, from 0 to 1; got 1\.2"):
        PlanWindows(latents, on_policy, np.arange(3), action_spec(), 3, far_goal_prob=1.2)


def test_goals_are_as_far_as_allowed_with_the_requested_probability(rng):
    episodes = synthetic_episodes(rng, lengths=(31, 31))
    latents = np.zeros((62, 4), np.float16)
    even, far = (
        PlanWindows(latents, episodes, np.arange(2), action_spec(), 3, far_goal_prob=prob).draw(rng, 6000, 3).offset
        for prob in (0.0, 0.5)
    )
    assert set(even) == set(far) == {1, 2, 3}
    reach = 16 / 26  # rows that have three blocks ahead, of those that have one
    assert abs((even == 3).mean() - reach / 3) < 0.03
    assert abs((far == 3).mean() - (0.5 * reach + 0.5 * reach / 3)) < 0.03


def test_empty_planning_data_is_an_error(rng):
    episodes = synthetic_episodes(rng, lengths=(4, 5))
    with pytest.raises(ValueError, match="none of 2 episodes has 6 rows"):
        PlanWindows(np.zeros((9, 4), np.float16), episodes, np.arange(2), action_spec(), 3)
