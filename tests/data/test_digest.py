"""The identity of a dataset covers every frame and every number, however it is read."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from leplanner.data import digest
from leplanner.data.formats import open_episodes

ROWS, MIDDLE = 12, 5


def write_dataset(path, name=None, place=(), value=None, **attributes):
    """Three episodes of four rows, the last of them on-policy; one number may be another."""
    rng = np.random.default_rng(0)
    columns = {
        "pixels": rng.integers(0, 256, (ROWS, 8, 8, 3), dtype=np.uint8),
        "action": rng.normal(size=(ROWS, 2)).astype(np.float32),
        "state": rng.normal(size=(ROWS, 3)),
        "episode_idx": np.repeat([0, 1, 2], 4),
        "goal_rows": np.repeat([[-1, -1], [-1, -1], [1, 3]], 4, axis=0),
        "ep_len": np.full(3, 4),
        "ep_offset": np.array([0, 4, 8]),
    }
    if name is not None:
        columns[name][place] = value
    with h5py.File(path, "w") as file:
        for column, values in columns.items():
            file[column] = values
        file.attrs.update(attributes)
    return path


@pytest.fixture
def original(tmp_path):
    return open_episodes(write_dataset(tmp_path / "original.h5")).digest


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("pixels", (MIDDLE, 3, 4, 1), 7),
        ("action", (MIDDLE, 1), 0.25),
        ("state", (MIDDLE, 2), 0.25),
        ("episode_idx", slice(4, 8), 9),
        ("goal_rows", (slice(8, 12), 1), 2),
    ],
)
def test_the_digest_changes_with_every_column(name, place, value, original, tmp_path):
    other = write_dataset(tmp_path / "other.h5", name, place, value)
    assert open_episodes(other).digest != original


def test_every_frame_counts(original, tmp_path):
    for row in range(ROWS):
        other = write_dataset(tmp_path / "other.h5", "pixels", (row, 0, 0, 0), 0)
        assert open_episodes(other).digest != original, row


def test_the_digest_is_of_the_contents_however_they_are_read(original, tmp_path, monkeypatch):
    same = write_dataset(tmp_path / "same.h5", leplanner="{}")
    assert open_episodes(same, in_memory=True).digest == original
    assert open_episodes(same, in_memory=False).digest == original
    monkeypatch.setattr(digest, "CHUNK_BYTES", 5 * 8 * 8 * 3)  # three parts, the last of them shorter
    assert open_episodes(same, in_memory=False).digest == original


def test_the_digest_of_a_large_file_is_computed_once_and_again_when_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(digest, "REMEMBER_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path, computed = write_dataset(tmp_path / "data.h5"), []
    compute = lambda: computed.append(1) or f"digest {len(computed)}"  # noqa: E731
    assert [digest.remembered_digest(path, compute) for _ in range(2)] == ["digest 1", "digest 1"]
    write_dataset(tmp_path / "new.h5", "action", (0, 0), 1.0).replace(path)
    assert digest.remembered_digest(path, compute) == "digest 2"
    (entry,) = (tmp_path / "cache").rglob("*.json")
    entry.write_text("not ours")
    assert digest.remembered_digest(path, compute) == "digest 3"
