"""Practice: what the planner really did, added to what the data holds."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from leplanner.worlds.world import World, save_world

from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.control.on_policy import Practice
from leplanner.data.cache import build_cache
from leplanner.data.collect import CollectConfig, collect
from leplanner.data.episodes import is_validation, open_episodes
from leplanner.planner.planner import load_bundle, save_bundle
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds.lewm.model import LeWM

CONFIG = CollectConfig("tworoom", episodes=10, steps=20, size=32, seed=5)


@pytest.fixture(scope="module")
def player(tiny_planner, tworoom_file, tmp_path_factory):
    bundle = tmp_path_factory.mktemp("bundle")
    save_bundle(tiny_planner, bundle)
    return Practice(bundle, tworoom_file)


@pytest.fixture(scope="module")
def practiced(player, tworoom_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("practice") / "on_policy.h5"
    return collect(CONFIG, out, workers=2, player=player, onto=tworoom_file)


def test_the_data_comes_first_and_keeps_its_sides(practiced, tworoom):
    joined = open_episodes(practiced, TASKS["tworoom"])
    rows = tworoom.rows
    np.testing.assert_array_equal(joined.frames[:rows], tworoom.frames)
    np.testing.assert_array_equal(joined.actions[:rows], tworoom.actions)
    np.testing.assert_array_equal(joined.ids[:20], tworoom.ids)
    assert len(set(joined.ids)) == 30
    assert not is_validation(joined.ids[20:]).any()  # what is held out stays what it was
    assert joined.lengths[20:].tolist() == [5] * 10
    assert joined.rows == rows + 50


def test_practice_starts_where_training_episodes_were_and_records_what_was_done(practiced, tworoom, simulators):
    joined, sim = open_episodes(practiced, TASKS["tworoom"]), simulators("tworoom")
    held_out = is_validation(tworoom.ids)
    states = tworoom.states.reshape(20, 9, 2)[~held_out, :8].reshape(-1, 2)  # rows with a block after them
    assert (joined.played[:20] == -1).all()
    for start, (begun, goal) in zip(joined.starts[20:], joined.played[20:], strict=True):
        np.testing.assert_array_equal(joined.states[start], tworoom.states[begun])
        assert begun < goal <= begun + 8
        assert begun // 9 == goal // 9  # the same episode
        assert (joined.states[start] == states).all(axis=1).any()
        sim.set_state(joined.states[start])
        for row in range(start, start + 4):
            for action in joined.actions[row]:
                sim.step(action)
            np.testing.assert_array_equal(sim.state(), joined.states[row + 1])


def test_tasks_that_say_how_a_miss_is_corrected_practice_that_too(player, tworoom, simulators, rng, monkeypatch):
    begun = []

    class Corrector:
        def __init__(self, sim, rng):
            begun.append(sim.state())

    correcting = replace(TASKS["tworoom"], correcting=Corrector)
    monkeypatch.setattr("leplanner.control.practice.get_task", lambda name: correcting)
    sim = simulators("tworoom")
    for share, least, most in ((0.0, 0, 0), (0.5, 5, 35), (1.0, 40, 40)):
        begun.clear()
        rows = [replace(player, correcting_share=share).begin(sim, rng)[1] for _ in range(40)]
        assert least <= len(begun) <= most
        assert rows.count((-1, -1)) == len(begun)  # played for no goal: behavior, to whoever learns from it
    assert all((state == tworoom.states).all(axis=1).any() for state in begun)
    assert "correcting 0.4" in player.identity()["practice"]


def test_goals_go_with_the_latents_and_count_in_the_digest(practiced, tworoom, tmp_path):
    joined = open_episodes(practiced, TASKS["tworoom"])
    cache = build_cache(joined, lambda frames: np.zeros((len(frames), 4)), 4, "encoder", tmp_path / "latents")
    np.testing.assert_array_equal(cache.episodes.played, joined.played)
    with h5py.File(practiced, "r") as source, h5py.File(tmp_path / "other.h5", "w") as copy:
        for name in source:
            source.copy(name, copy)
        copy.attrs.update(source.attrs)
        copy["played"][-5:, 1] += 1
    assert open_episodes(tmp_path / "other.h5", TASKS["tworoom"]).digest != joined.digest
    with h5py.File(tmp_path / "other.h5", "r+") as copy:
        copy["played"][-5:, 1] = joined.rows
    with pytest.raises(ValueError, match=r"'played' of shape .* must hold two rows below"):
        open_episodes(tmp_path / "other.h5", TASKS["tworoom"])


def test_practice_is_added_to_practice(player, practiced, tmp_path):
    """The second round keeps what the first was played for, and stable-worldmodel still reads the file."""
    second = replace(player, data=practiced)
    twice = collect(
        replace(CONFIG, episodes=12, seed=6), tmp_path / "twice.h5", workers=1, player=second, onto=practiced
    )
    one, two = (open_episodes(path, TASKS["tworoom"]) for path in (practiced, twice))
    np.testing.assert_array_equal(two.played[:30], one.played)
    starts, ends = one.starts, one.starts + one.lengths
    for start, (begun, goal) in zip(two.starts[30:], two.played[30:], strict=True):
        np.testing.assert_array_equal(two.states[start], one.states[begun])
        episode = np.flatnonzero((starts <= begun) & (goal < ends))  # both in one
        assert len(episode) == 1
        assert not is_validation(one.ids[episode]).any()
    assert (two.played[30:, 0] >= one.starts[20]).any()  # some begin on practiced rows
    theirs = import_swm("stable_worldmodel.data").HDF5Dataset(path=twice, frameskip=1, num_steps=2)
    assert [tuple(theirs[i]["played"].shape) for i in (0, len(theirs) - 1)] == [(2, 2), (2, 2)]


def test_who_learns_what_the_data_does_sees_nothing_that_was_played(practiced, tiny_world, tworoom, tmp_path):
    joined = open_episodes(practiced, TASKS["tworoom"])
    cache = build_cache(joined, tiny_world.latents, 32, tiny_world.encoder_digest, tmp_path / "latents")
    for behavior_only, sees_played in ((False, True), (True, False)):
        train, held_out = tiny_world.plan_windows(cache, far_goal_prob=1.0, behavior_only=behavior_only)
        assert (train.current >= tworoom.rows).any() == sees_played
        assert (held_out.current < tworoom.rows).all()
        assert (train.far_goal_prob, held_out.far_goal_prob) == (1.0, 0.0)


def test_practice_is_a_function_of_seed_and_planner(player, practiced, tworoom_file, tmp_path):
    again = collect(CONFIG, tmp_path / "again.h5", workers=1, player=player, onto=tworoom_file)
    one, two = (open_episodes(path, TASKS["tworoom"]) for path in (practiced, again))
    assert one.digest == two.digest
    with pytest.raises(ValueError, match="was made otherwise"):
        collect(CONFIG, again, player=replace(player, farthest=2), onto=tworoom_file)
    with pytest.raises(ValueError, match="cannot be continued"):
        collect(replace(CONFIG, size=24), tmp_path / "small.h5", workers=1, player=player, onto=tworoom_file)
    assert not (tmp_path / "small.h5").exists()


def test_noise_is_seen_by_the_controller(player, tiny_planner, simulators):
    """What a controller remembers of the past is what was executed, noise included."""
    sim, executed = simulators("tworoom"), []
    for noise in (3.0, 0.0):
        loud = replace(player, noisy_share=1.0, noise=noise)
        controller, _ = loud.begin(sim, np.random.default_rng(0))
        done = []
        for _ in range(5):
            frame = sim.render(32) if controller.needs_frame else None
            done.append(controller.act(frame))
            sim.step(done[-1])
        assert np.abs(done).max() <= 1.0
        recording = controller.past[0].numpy()[0]
        standardized = tiny_planner.world.spec.action_scale.standardize(np.stack(done)).reshape(-1)
        np.testing.assert_allclose(recording, standardized, rtol=1e-6)
        executed.append(np.stack(done))
    assert np.abs(executed[0] - executed[1]).max() > 0.1


def test_the_verb_and_a_planner_that_starts_from_another(player, tworoom_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["practice", "tworoom", "--scale", "tiny", "--planner", str(player.bundle), "--data", str(tworoom_file)]
    assert main([*words, "--episodes", "2", "--steps", "10", "--workers", "1"]) == 0
    assert "2 episodes of 10 actions added" in capsys.readouterr().out
    assert main(["practice", "tworoom", "--planner", "nowhere", "--data", str(tworoom_file)]) == 1
    assert "does not practice tworoom" in capsys.readouterr().err


def test_a_planner_starts_from_another_of_the_same_encoder(player, tiny_world, tworoom, tmp_path, capsys):
    save_world(tiny_world, tmp_path / "world", {})
    build_cache(tworoom, tiny_world.latents, 32, tiny_world.encoder_digest, tmp_path / "latents")
    words = ["train", "tworoom", "--scale", "tiny", "--steps", "2", "--support-weight", "0", "--learning-rate", "1e-12"]
    words += ["--latents", str(tmp_path / "latents"), "--start", str(player.bundle)]
    assert main([*words, "--world", str(tmp_path / "world"), "--out", str(tmp_path / "on")]) == 0
    begun, ended = (load_bundle(folder).model.state_dict() for folder in (player.bundle, tmp_path / "on"))
    for name, weight in begun.items():  # at such a rate it ends where it began, in half precision
        torch.testing.assert_close(ended[name], weight, rtol=1e-3, atol=1e-3)
    for wrong in ([*words[:-2], "--init-average", "0.5"], [*words, "--init-average", "2"]):  # no start, no share
        assert main([*wrong, "--world", str(tmp_path / "world"), "--out", str(tmp_path / "wrong")]) == 1
        assert "a share of 0 to 1" in capsys.readouterr().err
    words[words.index("1e-12")] = "1e-2"
    for share in ("0", "0.5"):
        assert (
            main([*words, "--world", str(tmp_path / "world"), "--init-average", share, "--out", str(tmp_path / share)])
            == 0
        )
    far, between = (load_bundle(tmp_path / share) for share in ("0", "0.5"))
    for name, weight in far.model.state_dict().items():
        torch.testing.assert_close(
            between.model.state_dict()[name], (begun[name] + weight) / 2, rtol=1e-3, atol=1e-3, msg=name
        )
    assert any(not torch.allclose(weight, begun[name], atol=5e-3) for name, weight in far.model.state_dict().items())
    arrived = [
        read_json(tmp_path / share / "config.json")["training"]["metrics"]["held_out_arrival"] for share in ("0", "0.5")
    ]
    assert arrived[0] != arrived[1]  # measured again, on the weights that are kept
    again = [*words, "--world", str(tmp_path / "world"), "--init-average", "0.5", "--out", str(tmp_path / "0")]
    assert main(again) == 1
    assert "ended with a share of 0.0 of its start; 0.5 was asked for" in capsys.readouterr().err
    (tmp_path / "0" / "config.json").unlink()
    assert main(again) == 0  # ends anew, without training again
    assert load_bundle(tmp_path / "0").digest == between.digest
    other = World(LeWM(tiny_world.spec.model), tiny_world.spec)
    save_world(other, tmp_path / "other", {})
    assert main([*words, "--world", str(tmp_path / "other"), "--out", str(tmp_path / "off")]) == 1
    assert "another encoder" in capsys.readouterr().err
