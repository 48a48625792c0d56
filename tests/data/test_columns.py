"""Every released layout is read, columns may be called otherwise, and what is missing is said with what was found."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from leplanner.data.formats import columns_text, open_episodes, rename_columns
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm

TWOROOM, REACHER, PUSHT, CUBE = (TASKS[name] for name in ("tworoom", "reacher", "pusht", "cube"))
LENGTHS = np.array([6, 4])


def columns(task, rng, **others) -> dict:
    """Of a released file: one action a row, the last of an episode unknown; `others` in place of a state."""
    rows = int(LENGTHS.sum())
    action = rng.uniform(-1, 1, (rows, task.action_dim)).astype(np.float32)
    action[np.cumsum(LENGTHS) - 1] = np.nan
    found = {"pixels": rng.integers(0, 256, (rows, 24, 24, 3), dtype=np.uint8), "action": action}
    found |= {"ep_len": LENGTHS, "ep_offset": np.cumsum(LENGTHS) - LENGTHS, "step_idx": np.arange(rows)}
    found |= {"ep_idx": np.repeat([3, 8], LENGTHS)}
    return found | {name: rng.normal(size=(rows, size)) for name, size in others.items()}


def write(path, found):
    with h5py.File(path, "w") as file:
        for name, value in found.items():
            file[name] = value
    return path


RELEASED = {
    "tworoom": (TWOROOM, {"proprio": 2, "pos_agent": 2, "pos_target": 2}, ("proprio",)),
    "pusht": (PUSHT, {"state": 7, "proprio": 4}, ("state",)),
    "reacher": (REACHER, {"qpos": 2, "qvel": 2, "observation": 6}, ("qpos", "qvel")),
    "cube": (CUBE, {"qpos": 21, "qvel": 20, "privileged/block_0_pos": 3}, ("qpos", "qvel")),
    "a state of another kind": (REACHER, {"state": 6, "qpos": 2, "qvel": 2}, ("qpos", "qvel")),
}


@pytest.mark.parametrize("layout", RELEASED)
def test_released_layouts_are_read(layout, rng, tmp_path):
    """What the ecosystem's files hold; TwoRoom's has no `state`, its position is in `proprio`."""
    task, others, names = RELEASED[layout]
    found = columns(task, rng, **others)
    episodes = open_episodes(write(tmp_path / "released.h5", found), task)
    assert np.array_equal(episodes.states, np.concatenate([found[name] for name in names], axis=1))
    assert np.array_equal(episodes.ids, [3, 8])
    assert np.array_equal(episodes.actions[:, 0], found["action"], equal_nan=True)
    assert set(episodes.columns) == set(found)


NAMED = "pixels=image,action=control,state=where+how_fast,ep_len=lengths,ep_offset=begin,episode_idx=about/number"


def renamed(found: dict) -> dict:
    theirs = {"pixels": "image", "action": "control", "ep_len": "lengths", "ep_offset": "begin"}
    theirs |= {"ep_idx": "about/number", "qpos": "where", "qvel": "how_fast"}
    return {theirs.get(name, name): value for name, value in found.items()}


@pytest.mark.parametrize("in_memory", [True, False])
def test_columns_that_are_called_otherwise_are_the_same_dataset(in_memory, rng, tmp_path):
    found = columns(REACHER, rng, qpos=2, qvel=2)
    ours = open_episodes(write(tmp_path / "ours.h5", found), REACHER)
    task = rename_columns(REACHER, NAMED)
    assert columns_text(task) == NAMED
    theirs = open_episodes(write(tmp_path / "theirs.h5", renamed(found)), task, in_memory)
    assert theirs.digest == ours.digest
    assert np.array_equal(theirs.frames[np.array([7, 2])], ours.frames[[7, 2]])
    assert np.array_equal(theirs.ids, ours.ids)


def test_a_lance_table_with_other_names(rng, tmp_path):
    found = columns(TWOROOM, rng)
    path = tmp_path / "theirs.lance"
    with import_swm("stable_worldmodel.data").LanceWriter(path) as writer:
        for start, length in zip(found["ep_offset"], LENGTHS, strict=True):
            rows = slice(start, start + length)
            control = np.nan_to_num(found["action"][rows])
            episode = {"image": found["pixels"][rows], "control": control, "place": control}
            writer.write_episode({name: list(values) for name, values in episode.items()})
    task = rename_columns(TWOROOM, "pixels=image,action=control,state=place")
    episodes = open_episodes(path, task)
    assert episodes.frames[np.array([3, 1])].shape == (2, 24, 24, 3)
    assert np.allclose(episodes.states, np.nan_to_num(found["action"]))
    with pytest.raises(ValueError, match=r"no column 'pixels'; found: .*control.*--columns pixels=NAME"):
        open_episodes(path, TWOROOM)
    with pytest.raises(ValueError, match=r"no column 'places', which was named as 'state'; found: .*place"):
        open_episodes(path, rename_columns(TWOROOM, "pixels=image,action=control,state=places"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no column 'pixels'; found: action, .*proprio.*--columns pixels=NAME.*leplanner collect"),
        ("pixels=frame", r"no column 'frame', which was named as 'pixels'; found: .*image"),
        ("pixels=image,state=place", r"no column 'place', which was named as 'state'; found: "),
        ("pixels=image,state=proprio+action", r"the state \(proprio, action\) has 4 numbers.*state=NAME\+NAME"),
        ("pixels=image,episode_idx=number", r"no column 'number', which was named as 'episode_idx'"),
        ("pixels=proprio", r"column 'proprio' has shape \(10, 2\)"),
    ],
)
def test_a_missing_column_is_said_with_what_was_found_and_how_to_name_it(text, message, rng, tmp_path):
    found = columns(TWOROOM, rng, proprio=2)
    found["image"] = found.pop("pixels")
    with pytest.raises(ValueError, match=message):
        open_episodes(write(tmp_path / "theirs.h5", found), rename_columns(TWOROOM, text))


@pytest.mark.parametrize("text", ["frames=image", "pixels", "pixels=", "pixels=a+b", "state=a+", "state=a,state=b"])
def test_names_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError, match=r"--columns .*OURS=THEIRS.*pixels, action, state.*state=qpos\+qvel"):
        rename_columns(TWOROOM, text)


def test_a_dataset_without_states_can_be_read_and_says_what_it_has_when_they_are_needed(rng, tmp_path):
    episodes = open_episodes(write(tmp_path / "blind.h5", columns(TWOROOM, rng, position=2)), TWOROOM)
    assert episodes.states is None
    with pytest.raises(ValueError, match=r"A probe reads .*no physical states.*it has .*position.*state=NAME"):
        episodes.need_states("A probe reads physical states")
