"""Datasets: layout, foreign files and their errors, resuming, the split, and the samplers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from support import synthetic_episodes

from leplanner.core.actions import ActionSpec
from leplanner.data.collect import CollectConfig, collect
from leplanner.data.episodes import action_statistics, is_validation, split
from leplanner.data.formats import open_episodes
from leplanner.data.windows import PlanWindows, WorldWindows
from leplanner.execution.executor import make_executor
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm

TWOROOM = TASKS["tworoom"]
CONFIG = CollectConfig(episodes=20, steps=40, size=32, seed=3)  # as the fixture `tworoom_file` has it


def action_spec(mean=(0.0, 0.0), std=(1.0, 1.0), block: int = 5) -> ActionSpec:
    return ActionSpec(tuple(mean), tuple(std), (-1.0, -1.0), (1.0, 1.0), block)


def test_layout(tworoom):
    assert tworoom.rows == 20 * 9
    assert tworoom.frames.shape == (180, 32, 32, 3)
    assert tworoom.actions.shape == (180, 5, 2)
    last = tworoom.starts + tworoom.lengths - 1
    assert np.isnan(tworoom.actions[last]).all()
    assert np.isfinite(np.delete(tworoom.actions, last, axis=0)).all()
    assert tworoom.meta["visuals"]["shadows"] is False
    finite = tworoom.actions[np.isfinite(tworoom.actions).all((1, 2))].reshape(-1, 2)
    assert np.allclose(tworoom.meta["action_mean"], finite.mean(0), atol=1e-5)


def test_stable_worldmodel_reads_our_file(tworoom_file, tworoom, tmp_path):
    # a copy: its reader asks for a mode that HDF5 refuses for a file that is open in this process
    path = Path(shutil.copy(tworoom_file, tmp_path / "copy.h5"))
    reader = import_swm("stable_worldmodel.data").HDF5Dataset(path=path, frameskip=1, num_steps=4)
    sample = reader[0]
    assert tuple(sample["pixels"].shape) == (4, 3, 32, 32)
    assert np.array_equal(sample["pixels"].permute(0, 2, 3, 1).numpy(), tworoom.frames[:4])
    assert np.array_equal(sample["action"].numpy().reshape(4, 5, 2), tworoom.actions[:4])
    assert len(reader.lengths) == 20


def test_collecting_again_returns_the_file_and_other_settings_are_refused(tworoom_file):
    before = tworoom_file.stat().st_mtime_ns
    collect(TWOROOM, CONFIG, tworoom_file)
    assert tworoom_file.stat().st_mtime_ns == before
    with pytest.raises(ValueError, match="made otherwise"):
        collect(TWOROOM, replace(CONFIG, seed=4), tworoom_file)


def test_a_killed_collection_continues_to_the_same_bytes(tworoom, tmp_path):
    """Killed between parts, then continued with another number of workers: the same dataset."""
    out = tmp_path / "again.h5"
    code = (
        "from pathlib import Path\n"
        "from leplanner.data.collect import CollectConfig, collect\n"
        "from leplanner.execution.executor import make_executor\n"
        "from leplanner.tasks import TASKS\n"
        "if __name__ == '__main__':\n"
        f"    collect(TASKS['tworoom'], {CONFIG!r}, Path({str(out)!r}), make_executor(workers=1))\n"
    )
    script = tmp_path / "run.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)])
    parts = out.with_name(out.name + ".parts")
    wait_until(lambda: list(parts.glob("*.npz")))
    workers = children(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))  # none is left behind
    assert not out.exists()
    finished = {path.name: path.stat().st_mtime_ns for path in parts.glob("*.npz")}
    seen, kept = [], {}

    def progress(done, total):
        seen.append(done)
        kept.update({path.name: path.stat().st_mtime_ns for path in parts.glob("*.npz")})

    collect(TWOROOM, CONFIG, out, make_executor(workers=2), progress)
    assert seen[0] >= 8 * 9  # the finished part was not collected again
    assert finished.items() <= kept.items()
    again = open_episodes(out, TWOROOM)
    assert again.digest == tworoom.digest
    assert np.array_equal(again.frames, tworoom.frames)
    assert not parts.exists()


def wait_until(condition, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True).stdout
    return [int(line) for line in listed.split()]


def test_an_interrupt_stops_a_collection_at_once(tmp_path):
    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    out = tmp_path / "data.h5"
    config = CollectConfig(episodes=400, steps=40, size=32)
    with pytest.raises(KeyboardInterrupt):
        collect(TWOROOM, config, out, make_executor(workers=1), interrupt)
    assert len(list((tmp_path / "data.h5.parts").glob("*.npz"))) < 20  # of 50


def rewrite(source, target, change) -> str:
    """A copy of a dataset whose columns (and attributes) `change` edits."""
    with h5py.File(source, "r") as old, h5py.File(target, "w") as new:
        columns = {name: old[name][:] for name in old}
        attributes = dict(old.attrs)
        change(columns, attributes, new)
        for name, value in columns.items():
            if name not in new:
                new[name] = value
        for name, value in attributes.items():
            new.attrs[name] = value
    return str(target)


def test_released_variants(tworoom_file, tworoom, tmp_path):
    """`ep_idx` instead of `episode_idx`, Blosc, one action a row, no attributes of ours."""
    import hdf5plugin

    def change(columns, attributes, new):
        attributes.clear()
        columns["ep_idx"] = columns.pop("episode_idx") + 100
        columns["action"] = columns["action"][:, :2]
        new.create_dataset("pixels", data=columns.pop("pixels"), chunks=(1, 32, 32, 3), **hdf5plugin.Blosc())

    foreign = open_episodes(rewrite(tworoom_file, tmp_path / "foreign.h5", change), TWOROOM)
    assert foreign.steps_per_row == 1
    assert foreign.actions.shape == (180, 1, 2)
    assert foreign.ids.tolist() == list(range(100, 120))
    assert np.array_equal(foreign.frames, tworoom.frames)
    assert foreign.digest != tworoom.digest


def test_frames_on_disk_equal_frames_in_memory(tworoom_file, tworoom):
    actions = action_spec(*action_statistics(tworoom, split(tworoom)[0]))
    on_disk = open_episodes(tworoom_file, TWOROOM, in_memory=False)
    draws = [WorldWindows(e, np.arange(20), actions, 4).draw(np.random.default_rng(1), 16) for e in (tworoom, on_disk)]
    assert np.array_equal(draws[0].frames, draws[1].frames)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, a, n: c.pop("pixels"), "no column 'pixels'"),
        (lambda c, a, n: c.pop("ep_len"), "no column 'ep_len'"),
        (lambda c, a, n: c.update(pixels=c["pixels"][..., 0]), "'pixels' has shape"),
        (lambda c, a, n: c.update(pixels=c["pixels"][:100]), "'action' has 180 rows"),
        (lambda c, a, n: c.update(ep_len=c["ep_len"] + 1), "reach row 181"),
        (lambda c, a, n: c.update(action=np.zeros((180, 25), np.float32)), "TwoRoom has 2"),
        (lambda c, a, n: c.update(action=np.zeros((180, 7), np.float32)), "do not divide"),
        (lambda c, a, n: c.update(ep_offset=c["ep_offset"][::-1].copy()), "out of order"),
        (lambda c, a, n: c.update(ep_offset=c["ep_offset"] + 500), "reach row 680"),
        (lambda c, a, n: c.update(episode_idx=c["episode_idx"][:50]), "'episode_idx' has 50 rows"),
        (lambda c, a, n: c.update(state=c["state"][:, :1]), "TwoRoom's state has 2"),
        (lambda c, a, n: c["state"].__setitem__(7, np.nan), "not finite in 1 rows .first: row 7"),
        (lambda c, a, n: c.update(pixels=c["pixels"][:0]), "'pixels' has shape"),
    ],
)
def test_bad_files_name_the_column(change, message, tworoom_file, tmp_path):
    path = rewrite(tworoom_file, tmp_path / "bad.h5", change)
    with pytest.raises(ValueError, match=message):
        open_episodes(path, TWOROOM)


def test_truncated_and_missing_files(tworoom_file, tmp_path):
    truncated = tmp_path / "truncated.h5"
    truncated.write_bytes(tworoom_file.read_bytes()[:50_000])
    with pytest.raises(ValueError, match="truncated"):
        open_episodes(truncated)
    with pytest.raises(ValueError, match="leplanner collect"):
        open_episodes(tmp_path / "nothing.h5")


def test_lance_reads_through_swm(tworoom, tmp_path):
    data = import_swm("stable_worldmodel.data")
    path = tmp_path / "small.lance"
    with data.LanceWriter(path) as writer:
        for start, length in zip(tworoom.starts[:4], tworoom.lengths[:4], strict=True):
            rows = slice(start, start + length)
            writer.write_episode(
                {
                    "pixels": list(tworoom.frames[rows]),
                    "action": list(np.nan_to_num(tworoom.actions[rows, 0])),
                    "state": list(tworoom.states[rows].astype(np.float32)),
                }
            )
    lance = open_episodes(path, TWOROOM)
    assert lance.lengths.tolist() == [9] * 4
    assert lance.frames.shape == (36, 32, 32, 3)
    assert np.allclose(lance.states, tworoom.states[:36], atol=1e-4)
    assert np.allclose(lance.actions[:, 0], np.nan_to_num(tworoom.actions[:36, 0]))
    assert np.array_equal(lance.frames[5], lance.frames[4:6][1])
    frames = lance.frames[np.array([5, 3])]
    difference = np.abs(frames.astype(int) - tworoom.frames[[5, 3]])
    assert difference.mean() < 6  # Lance stores JPEG
    batch = WorldWindows(lance, np.arange(4), action_spec(block=1), 4).draw(np.random.default_rng(0), 5)
    assert batch.frames.shape == (5, 4, 32, 32, 3)


def test_split_depends_on_identity_alone(rng):
    ids = np.arange(20_000)
    held_out = is_validation(ids)
    assert 0.045 < held_out.mean() < 0.055
    order = rng.permutation(ids)
    assert np.array_equal(is_validation(order), held_out[order])
    assert np.array_equal(is_validation(ids[:137]), held_out[:137])
    few = synthetic_episodes(rng)  # three episodes, none of which the hash holds out
    with pytest.raises(ValueError, match="leaves one side empty"):
        split(few)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pusht", "reacher", "cube"])
def test_every_task_collects_through_worker_processes(name, tmp_path):
    task = TASKS[name]
    config = CollectConfig(episodes=10, steps=20, size=32, seed=1)
    out = collect(task, config, tmp_path / "data.h5", make_executor(workers=2))
    episodes = open_episodes(out, task)
    assert episodes.rows == 10 * 5
    again = collect(task, config, tmp_path / "again.h5", make_executor(workers=1))
    assert open_episodes(again, task).digest == episodes.digest
