"""Datasets: layout, foreign files and their errors, resuming, and the split."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from support import action_spec, synthetic_episodes

from leplanner.data.collect import CollectConfig, collect
from leplanner.data.episodes import action_statistics, episodes_for_trials, is_validation, split
from leplanner.data.formats import open_episodes
from leplanner.data.windows import WorldWindows
from leplanner.execution.executor import make_executor
from leplanner.execution.inline import Inline
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm

TWOROOM = TASKS["tworoom"]
CONFIG = CollectConfig(episodes=20, steps=40, size=32, seed=3)  # as the fixture `tworoom_file` has it


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


def test_test_episodes_are_others_and_only_for_trials(tworoom, tmp_path):
    config = CollectConfig(episodes=4, steps=40, size=32, seed=3, split="test")
    path = collect(TWOROOM, config, tmp_path / "test.h5", Inline())
    test = open_episodes(path, TWOROOM)
    assert test.for_trials_only
    assert not tworoom.for_trials_only
    same = tworoom.episode_rows(np.arange(4))  # of the same seed and numbers
    assert test.states.shape == tworoom.states[same].shape
    assert not np.isclose(test.states[test.starts], tworoom.states[tworoom.starts[:4]]).all(axis=1).any()
    assert np.array_equal(episodes_for_trials(test), np.arange(4))
    assert np.array_equal(episodes_for_trials(tworoom), split(tworoom)[1])
    with pytest.raises(ValueError, match="test set, which nothing is trained or chosen on"):
        split(test)
    with pytest.raises(ValueError, match="made otherwise"):
        collect(TWOROOM, replace(config, split="train"), path, Inline())


def test_a_file_from_before_test_episodes_is_one_of_training(tmp_path):
    config = CollectConfig(episodes=2, steps=10, size=32)
    path = collect(TWOROOM, config, tmp_path / "data.h5", Inline())
    with h5py.File(path, "r+") as file:
        about = json.loads(file.attrs["leplanner"])
        del about["config"]["split"]
        file.attrs["leplanner"] = json.dumps(about)
    assert collect(TWOROOM, config, path, Inline()) == path
    with pytest.raises(ValueError, match="made otherwise"):
        collect(TWOROOM, replace(config, split="test"), path, Inline())
