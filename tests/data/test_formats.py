"""Dataset formats are found by name and by what they recognize; others may be registered."""

from __future__ import annotations

import pytest
from support import synthetic_episodes

from leplanner.data.formats import FORMATS, Format, open_episodes
from leplanner.tasks import TASKS


@pytest.fixture
def formats(monkeypatch):
    """The registry, as it was before when the test is over."""
    FORMATS.names()
    monkeypatch.setattr(FORMATS, "_items", dict(FORMATS._items))
    return FORMATS


@pytest.mark.parametrize("folder", [False, True])
def test_a_registered_format_is_used(folder, formats, rng, tmp_path):
    episodes, opened = synthetic_episodes(rng), []

    def read(path, task, in_memory):
        opened.append((path, task, in_memory))
        return episodes

    formats.register(Format("notes", lambda path: path.suffix == ".notes", read))
    path = tmp_path / "data.notes"
    path.mkdir() if folder else path.touch()
    assert open_episodes(str(path), TASKS["tworoom"], in_memory=True) is episodes
    assert opened == [(path, TASKS["tworoom"], True)]


def test_a_format_that_does_not_recognize_a_path_leaves_it_to_the_others(formats, tworoom_file, tworoom):
    formats.register(Format("notes", lambda path: path.suffix == ".notes", lambda path, task, in_memory: None))
    assert open_episodes(tworoom_file, TASKS["tworoom"]).digest == tworoom.digest


def test_what_no_format_recognizes_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(ValueError, match=r"of no known dataset format \(lance, hdf5"):
        open_episodes(tmp_path)
