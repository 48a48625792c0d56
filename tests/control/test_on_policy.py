"""On-policy data: what the planner really did, added to what the data holds."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np
import pytest
import torch
from support import encode_with

from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.control.on_policy import OnPolicyCollector
from leplanner.core.latent import LatentSpec
from leplanner.data.cache import build_cache
from leplanner.data.collect import CollectConfig, collect
from leplanner.data.episodes import is_validation
from leplanner.data.formats import open_episodes
from leplanner.data.windows import plan_windows
from leplanner.execution.executor import make_executor
from leplanner.planner.planner import load_bundle, save_bundle
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds.base import World, save_world

TWOROOM = TASKS["tworoom"]
CONFIG = CollectConfig(episodes=10, steps=20, size=32, seed=5)


@pytest.fixture(scope="module")
def collector(tiny_planner, tworoom_file, tmp_path_factory):
    bundle = tmp_path_factory.mktemp("bundle")
    save_bundle(tiny_planner, bundle)
    return OnPolicyCollector(str(bundle), tworoom_file)


@pytest.fixture(scope="module")
def collected(collector, tworoom_file, tmp_path_factory):
    out = tmp_path_factory.mktemp("on_policy") / "on_policy.h5"
    return collect(TWOROOM, CONFIG, out, make_executor(workers=2), collector=collector, onto=tworoom_file)


def test_the_data_comes_first_and_keeps_its_sides(collected, tworoom):
    joined = open_episodes(collected, TWOROOM)
    rows = tworoom.rows
    np.testing.assert_array_equal(joined.frames[:rows], tworoom.frames)
    np.testing.assert_array_equal(joined.actions[:rows], tworoom.actions)
    np.testing.assert_array_equal(joined.ids[:20], tworoom.ids)
    assert len(set(joined.ids)) == 30
    assert not is_validation(joined.ids[20:]).any()  # what is held out stays what it was
    assert joined.lengths[20:].tolist() == [5] * 10
    assert joined.rows == rows + 50


def test_episodes_start_where_training_episodes_were_and_record_what_was_done(collected, tworoom, simulators):
    joined, sim = open_episodes(collected, TWOROOM), simulators("tworoom")
    held_out = is_validation(tworoom.ids)
    states = tworoom.states.reshape(20, 9, 2)[~held_out, :8].reshape(-1, 2)  # rows with a block after them
    assert (joined.goal_rows[:20] == -1).all()
    for start, (begun, goal) in zip(joined.starts[20:], joined.goal_rows[20:], strict=True):
        np.testing.assert_array_equal(joined.states[start], tworoom.states[begun])
        assert begun < goal <= begun + 8
        assert begun // 9 == goal // 9  # the same episode
        assert (joined.states[start] == states).all(axis=1).any()
        sim.set_state(joined.states[start])
        for row in range(start, start + 4):
            for action in joined.actions[row]:
                sim.step(action)
            np.testing.assert_array_equal(sim.state(), joined.states[row + 1])


def test_tasks_that_say_how_a_miss_is_corrected_show_that_too(collector, tworoom, simulators, rng, monkeypatch):
    begun = []

    class Corrector:
        def __init__(self, sim, rng):
            begun.append(sim.state())

    correcting = replace(TWOROOM, correction=Corrector)
    monkeypatch.setattr("leplanner.control.on_policy.get_task", lambda name: correcting)
    sim = simulators("tworoom")
    for prob, least, most in ((0.0, 0, 0), (0.5, 5, 35), (1.0, 40, 40)):
        begun.clear()
        rows = [replace(collector, correction_prob=prob).begin(sim, rng)[1] for _ in range(40)]
        assert least <= len(begun) <= most
        assert rows.count((-1, -1)) == len(begun)  # steered to no goal: behavior, to whoever learns from it
    assert all((state == tworoom.states).all(axis=1).any() for state in begun)
    assert "correction_prob 0.4" in collector.identity()["on_policy"]


def test_goals_go_with_the_latents_and_count_in_the_digest(collected, tworoom, tmp_path):
    joined = open_episodes(collected, TWOROOM)
    cache = build_cache(
        joined, lambda frames: np.zeros((len(frames), 4)), LatentSpec((4,)), "encoder", tmp_path / "latents"
    )
    np.testing.assert_array_equal(cache.episodes.goal_rows, joined.goal_rows)
    with h5py.File(collected, "r") as source, h5py.File(tmp_path / "other.h5", "w") as copy:
        for name in source:
            source.copy(name, copy)
        copy.attrs.update(source.attrs)
        copy["goal_rows"][-5:, 1] += 1
    assert open_episodes(tmp_path / "other.h5", TWOROOM).digest != joined.digest
    with h5py.File(tmp_path / "other.h5", "r+") as copy:
        copy["goal_rows"][-5:, 1] = joined.rows
    with pytest.raises(ValueError, match=r"'goal_rows' of shape .* must hold two rows below"):
        open_episodes(tmp_path / "other.h5", TWOROOM)


def test_on_policy_data_is_added_to_on_policy_data(collector, collected, tmp_path):
    """The second round keeps the goals of the first, and stable-worldmodel still reads the file."""
    config, second = replace(CONFIG, episodes=12, seed=6), replace(collector, data=collected)
    out, executor = tmp_path / "twice.h5", make_executor(workers=1)
    twice = collect(TWOROOM, config, out, executor, collector=second, onto=collected)
    one, two = (open_episodes(path, TWOROOM) for path in (collected, twice))
    np.testing.assert_array_equal(two.goal_rows[:30], one.goal_rows)
    starts, ends = one.starts, one.starts + one.lengths
    for start, (begun, goal) in zip(two.starts[30:], two.goal_rows[30:], strict=True):
        np.testing.assert_array_equal(two.states[start], one.states[begun])
        episode = np.flatnonzero((starts <= begun) & (goal < ends))  # both in one
        assert len(episode) == 1
        assert not is_validation(one.ids[episode]).any()
    assert (two.goal_rows[30:, 0] >= one.starts[20]).any()  # some begin on rows of the first round
    theirs = import_swm("stable_worldmodel.data").HDF5Dataset(path=twice, frameskip=1, num_steps=2)
    assert [tuple(theirs[i]["goal_rows"].shape) for i in (0, len(theirs) - 1)] == [(2, 2), (2, 2)]


def test_training_on_behavior_sees_nothing_that_a_planner_collected(collected, tiny_world, tworoom, tmp_path):
    joined = open_episodes(collected, TWOROOM)
    digest = tiny_world.encoder_digest
    cache = build_cache(joined, encode_with(tiny_world), tiny_world.latent, digest, tmp_path / "latents")
    for behavior_only in (False, True):
        train, held_out = plan_windows(tiny_world, cache, far_goal_prob=1.0, behavior_only=behavior_only)
        assert (train.current >= tworoom.rows).any() != behavior_only
        assert (held_out.current < tworoom.rows).all()
        assert (train.far_goal_prob, held_out.far_goal_prob) == (1.0, 0.0)


def test_on_policy_data_is_a_function_of_seed_and_planner(collector, collected, tworoom_file, tmp_path):
    executor = make_executor(workers=1)
    again = collect(TWOROOM, CONFIG, tmp_path / "again.h5", executor, collector=collector, onto=tworoom_file)
    one, two = (open_episodes(path, TWOROOM) for path in (collected, again))
    assert one.digest == two.digest
    with pytest.raises(ValueError, match="was made otherwise"):
        collect(TWOROOM, CONFIG, again, executor, collector=replace(collector, farthest=2), onto=tworoom_file)
    small = replace(CONFIG, size=24)
    with pytest.raises(ValueError, match="cannot be continued"):
        collect(TWOROOM, small, tmp_path / "small.h5", executor, collector=collector, onto=tworoom_file)
    assert not (tmp_path / "small.h5").exists()


def test_noise_is_seen_by_the_controller(collector, tiny_planner, simulators):
    """What a controller remembers of the past is what was executed, noise included."""
    sim, executed = simulators("tworoom"), []
    for noise in (3.0, 0.0):
        loud = replace(collector, noise_prob=1.0, noise=noise)
        controller, _ = loud.begin(sim, np.random.default_rng(0))
        done = []
        for _ in range(5):
            frame = sim.render(32) if controller.needs_frame else None
            done.append(controller.act(frame))
            sim.step(done[-1])
        assert np.abs(done).max() <= 1.0
        standardized = tiny_planner.model.actions.blocks(np.stack(done)[None])[:, 0]
        np.testing.assert_allclose(controller.past[0].numpy(), standardized, rtol=1e-6)
        executed.append(np.stack(done))
    assert np.abs(executed[0] - executed[1]).max() > 0.1


def test_the_verb_collects_with_a_planner(collector, tworoom_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["collect", "tworoom", "--scale", "tiny", "--data", str(tworoom_file), "--episodes", "2", "--steps", "10"]
    assert main([*words, "--workers", "1", "--policy", collector.bundle]) == 0
    assert "2 episodes of 10 actions added" in capsys.readouterr().out
    assert (tmp_path / "runs" / "tworoom" / "on_policy.h5").exists()
    assert main([*words, "--policy", "nowhere", "--out", "other.h5"]) == 1
    assert "No bundle nowhere" in capsys.readouterr().err


def test_a_planner_starts_from_another_of_the_same_encoder(collector, tiny_world, tworoom, tmp_path, capsys):
    save_world(tiny_world, tmp_path / "world")
    digest = tiny_world.encoder_digest
    build_cache(tworoom, encode_with(tiny_world), tiny_world.latent, digest, tmp_path / "latents")
    words = ["train", "tworoom", "--scale", "tiny", "--steps", "2", "--support-weight", "0", "--learning-rate", "1e-12"]
    words += ["--half-weights", "--latents", str(tmp_path / "latents"), "--init", collector.bundle]
    assert main([*words, "--world", str(tmp_path / "world"), "--out", str(tmp_path / "on")]) == 0
    begun, ended = (load_bundle(folder).model.state_dict() for folder in (collector.bundle, tmp_path / "on"))
    for name, weight in begun.items():  # at such a rate it ends where it began, in half precision
        torch.testing.assert_close(ended[name], weight, rtol=1e-3, atol=1e-3)
    for without, average, message in ((2, "0.5", "no initial weights"), (0, "2", "a weight from 0 to 1; got 2.0")):
        wrong = [*words[: len(words) - without], "--init-average", average]
        assert main([*wrong, "--world", str(tmp_path / "world"), "--out", str(tmp_path / "wrong")]) == 1
        assert message in capsys.readouterr().err
    words[words.index("1e-12")] = "1e-2"
    for average in ("0", "0.5"):
        ending = ["--world", str(tmp_path / "world"), "--init-average", average, "--out", str(tmp_path / average)]
        assert main([*words, *ending]) == 0
    far, between = (load_bundle(tmp_path / average) for average in ("0", "0.5"))
    for name, weight in far.model.state_dict().items():
        torch.testing.assert_close(
            between.model.state_dict()[name], (begun[name] + weight) / 2, rtol=1e-3, atol=1e-3, msg=name
        )
    assert any(not torch.allclose(weight, begun[name], atol=5e-3) for name, weight in far.model.state_dict().items())
    histories = (read_json(tmp_path / average / "config.json")["training"] for average in ("0", "0.5"))
    arrived = [history["metrics"]["held_out_arrival"] for history in histories]
    assert arrived[0] != arrived[1]  # measured again, on the weights that are kept
    again = [*words, "--world", str(tmp_path / "world"), "--init-average", "0.5", "--out", str(tmp_path / "0")]
    assert main(again) == 1
    assert "ended with init_average 0.0; 0.5 was requested" in capsys.readouterr().err
    (tmp_path / "0" / "config.json").unlink()
    assert main(again) == 0  # ends anew, without training again
    assert load_bundle(tmp_path / "0").digest == between.digest
    save_world(World.build(tiny_world.spec), tmp_path / "other")
    assert main([*words, "--world", str(tmp_path / "other"), "--out", str(tmp_path / "off")]) == 1
    assert "another encoder" in capsys.readouterr().err
