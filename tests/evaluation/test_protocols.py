"""Which trials a protocol draws: the digests of known draws, published draws, and near-misses that filters must tell
apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from own_task import TASK as DOT
from support import synthetic_episodes

from leplanner.data.episodes import episodes_for_trials, is_validation
from leplanner.evaluation.manifest import draw_manifest
from leplanner.evaluation.protocols import PROTOCOLS, Protocol
from leplanner.evaluation.protocols.clear_lewm import draw_evenly
from leplanner.tasks import TASKS

TWOROOM, PUSHT = TASKS["tworoom"], TASKS["pusht"]

# drawn before protocols were a registry: frozen trials must stay what they are
KNOWN = {
    (1, "heldout"): "ff41c204a2d7da8398ff8fcc58b9b22b0d12dfcad122b513cbc8911b9c96565f",
    (1, "nontrivial"): "7be442692eecde2225308fa44ba492c2a417fcc76a12a0ac921f104aada5bf63",
    (5, "heldout"): "8a43593e43f316d8328ac380a9a4429256c294ee1efd678083fb09de46a145a6",
    (5, "nontrivial"): "e7e7259bf907c7454fef5696f03c0d3c58099a93f7f9d4a1a8850c1e15397799",
}


def dots(steps_per_row: int = 1, episodes: int = 60, rows: int = 40):
    return synthetic_episodes(np.random.default_rng(0), lengths=(rows,) * episodes, steps_per_row=steps_per_row)


@pytest.mark.parametrize(("steps_per_row", "protocol"), KNOWN)
def test_a_protocol_draws_what_it_always_drew(steps_per_row, protocol):
    settings = {"offset": 5 * steps_per_row, "block": 5, "context": 3, "simulator": DOT.simulate}
    manifest = draw_manifest(DOT, dots(steps_per_row), 6, 42, protocol, **settings)
    assert manifest.digest == KNOWN[steps_per_row, protocol]


def rows_of(episodes, manifest):
    return [
        int(episodes.starts[np.flatnonzero(episodes.ids == trial.episode)[0]]) + trial.start_step
        for trial in manifest.trials
    ]


def test_one_line_registers_a_protocol(monkeypatch):
    monkeypatch.setattr(PROTOCOLS, "_items", dict(PROTOCOLS._items))
    PROTOCOLS.register(Protocol("first", "the first", lambda request: request.candidates()[: request.count]))
    manifest = draw_manifest(DOT, dots(), 3, 0, "First", 5, block=5, context=1)
    assert (manifest.protocol, rows_of(dots(), manifest)) == ("first", [0, 1, 2])


def test_all_of_a_test_set_is_held_out():
    episodes = dots()
    assert episodes_for_trials(episodes).tolist() == np.flatnonzero(is_validation(episodes.ids)).tolist()
    test = replace(episodes, meta={"config": {"split": "test"}})
    assert episodes_for_trials(test).tolist() == list(range(60))
    settings = {"offset": 5, "block": 5, "context": 1, "simulator": DOT.simulate}
    for protocol in ("heldout", "nontrivial"):
        drawn = draw_manifest(DOT, test, 40, 0, protocol, **settings)
        assert not is_validation(np.array([trial.episode for trial in drawn.trials])).all()
    few = replace(dots(episodes=3), meta={"config": {"split": "test"}})
    assert len(draw_manifest(DOT, few, 9, 0, **settings).trials) == 9


# official


def le_wm_rows(episode_idx, step_idx, offset, count, seed):
    """The sampling of le-wm's eval.py, as it is written there."""
    length = {episode: step_idx[episode_idx == episode].max() + 1 for episode in np.unique(episode_idx)}
    latest = np.array([length[episode] - offset - 1 for episode in episode_idx])
    valid = np.nonzero(step_idx <= latest)[0]
    chosen = np.random.default_rng(seed).choice(len(valid) - 1, size=count, replace=False)
    return np.sort(valid[chosen])


@pytest.mark.parametrize(("count", "seed"), [(50, 42), (7, 0), (200, 45)])
def test_official_trials_are_those_of_le_wm(count, seed):
    lengths = (31, 26, 25, 80, 12, 90, 40, 77)  # some have no goal 25 ahead, one has a single one
    episodes = synthetic_episodes(np.random.default_rng(0), lengths)
    manifest = draw_manifest(DOT, episodes, min(count, 100), seed, "official", 25, block=5, context=1)
    step = np.concatenate([np.arange(n) for n in lengths])
    expected = le_wm_rows(np.repeat(episodes.ids, lengths), step, 25, min(count, 100), seed)
    assert sorted(rows_of(episodes, manifest)) == expected.tolist()


def test_official_never_draws_the_last_candidate():
    episodes = dots(episodes=2, rows=10)
    settings = {"protocol": "official", "offset": 5, "block": 5, "context": 1}
    drawn = rows_of(episodes, draw_manifest(DOT, episodes, 9, 3, **settings))
    assert sorted(drawn) == [0, 1, 2, 3, 4, 10, 11, 12, 13]
    with pytest.raises(ValueError, match=r"10 trials were requested, but the dataset's 2 episodes hold only 9 of"):
        draw_manifest(DOT, episodes, 10, 3, **settings)


# CLEAR-LeWM


def tracks(*places, width=2):
    """Episodes of one start and one goal, as whole states of a task."""
    episodes = synthetic_episodes(np.random.default_rng(0), lengths=(len(places[0]),) * len(places))
    states = np.zeros((episodes.rows, width))
    flat = np.concatenate([np.array(track, float) for track in places])
    states[:, : flat.shape[1]] = flat
    return replace(episodes, states=states, actions=np.zeros((episodes.rows, 1, 2), np.float32))


def drawn(task, episodes, protocol, count):
    """Episodes that give a trial, in order."""
    ahead = int(episodes.lengths[0]) - 1
    manifest = draw_manifest(task, episodes, count, 0, protocol, ahead, block=1, context=3)
    return sorted(trial.episode for trial in manifest.trials)


def test_pairs_that_their_own_verdict_calls_solved_are_no_trials():
    goal = [100.0, 100, 200, 200, 0.1]
    pairs = {
        "same": goal,
        "the agent elsewhere": [150.0, 100, 200, 200, 0.1],
        "the block 15 px off": [100.0, 100, 215, 200, 0.1],
        "turned by 15 degrees, over zero": [100.0, 100, 200, 200, 0.1 - np.deg2rad(15)],
        "turned by 25 degrees": [100.0, 100, 200, 200, 0.1 + np.deg2rad(25)],
    }
    episodes = tracks(*([start, goal] for start in pairs.values()), width=7)
    assert drawn(PUSHT, episodes, "moderate", 2) == [1, 4]
    assert drawn(PUSHT, episodes, "strict", 3) == [2, 3, 4]
    with pytest.raises(ValueError, match="hold only 2"):
        drawn(PUSHT, episodes, "moderate", 3)


def test_rooms_must_be_opposite_and_every_recorded_step_legal():
    def line(start, end, y=49.0, rows=9):
        return np.stack([np.linspace(start, end, rows), np.full(rows, y)], axis=1)

    bend = line(80, 144)
    bend[4, 1] = 57.0  # one step beside the door post
    episodes = tracks(
        line(80, 144),
        line(40, 90),  # one room
        line(80, 144, y=150.0),  # through the wall
        line(80, 144, y=57.0),  # clips the door post
        bend,
        line(144, 80, y=42.5),
        line(80, 105),  # ends in the doorway, on its own side
    )
    for protocol in ("moderate", "strict"):
        assert drawn(TWOROOM, episodes, protocol, 2) == [0, 5]
        with pytest.raises(ValueError, match="hold only 2"):
            drawn(TWOROOM, episodes, protocol, 3)


@pytest.mark.parametrize(("protocol", "velocity"), [("strict", (0.0, 0.0)), ("strict-v0.8", (3.0, -4.0))])
def test_trials_start_at_rest_since_version_0_9(protocol, velocity):
    start, goal = [100.0, 100, 200, 200, 0.1, 3, -4], [100.0, 100, 300, 200, 0.1, 1, 1]
    (trial,) = draw_manifest(PUSHT, tracks([start, start, goal], width=7), 1, 0, protocol, 1, block=1, context=3).trials
    assert trial.start_state == (*start[:5], *velocity)
    assert trial.goal_state == tuple(goal)
    assert trial.history_states == ()  # what came before is not what a trial at rest came from


@pytest.mark.parametrize("name", ["pusht", "reacher", "cube", "tworoom"])
def test_rest_keeps_the_scene(name):
    task = TASKS[name]
    state = np.random.default_rng(0).normal(size=task.state_dim)
    state[17:21] = [1.0, 0, 0, 0] if name == "cube" else state[17:21]
    still = task.clear_lewm.at_rest(state)
    assert task.error(still, state) == 0
    moving = {"pusht": 2, "reacher": 2, "cube": 20, "tworoom": 0}[name]
    assert np.count_nonzero(still != state) == moving
    assert not still[task.state_dim - moving :].any()


def test_trials_are_spread_evenly_over_episodes():
    episode = np.repeat([0, 1, 2, 3], [50, 2, 9, 100])
    rows = np.arange(len(episode)) + 1000
    drawn = draw_evenly(rows, episode, 3, np.random.default_rng(0))
    assert len(set(episode[drawn - 1000])) == 3
    drawn = draw_evenly(rows, episode, 8, np.random.default_rng(0))
    assert np.bincount(episode[drawn - 1000]).tolist() == [2, 2, 2, 2]
    assert len(set(drawn)) == 8
    assert drawn.tolist() != sorted(drawn)


def test_a_task_that_clear_lewm_does_not_define_is_answered():
    with pytest.raises(ValueError, match=r"requested for dot, which it does not define; it defines .*tworoom"):
        draw_manifest(DOT, dots(), 2, 0, "strict", 5, block=5, context=1)
