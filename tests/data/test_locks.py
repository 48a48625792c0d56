"""Two processes never write one dataset or one cache at once."""

from __future__ import annotations

import re

import pytest
from support import encode_with

from leplanner.artifacts import folder_lock
from leplanner.data.cache import build_cache
from leplanner.data.collect import CollectConfig, collect
from leplanner.tasks import TASKS


def test_a_second_collection_to_the_same_file_is_refused(tmp_path):
    out, parts = tmp_path / "data.h5", tmp_path / "data.h5.parts"
    config = CollectConfig(episodes=1, steps=5, size=32)
    with folder_lock(parts), pytest.raises(ValueError, match=rf"is writing to {re.escape(str(parts))}\."):
        collect(TASKS["tworoom"], config, out)
    assert not out.exists()
    assert [path.name for path in parts.iterdir()] == [".lock"]


def test_a_second_cache_in_the_same_folder_is_refused(tiny_world, tworoom, tmp_path):
    settings = (tworoom, encode_with(tiny_world), tiny_world.latent, tiny_world.encoder_digest, tmp_path)
    with folder_lock(tmp_path), pytest.raises(ValueError, match=rf"is writing to {re.escape(str(tmp_path))}\."):
        build_cache(*settings)
    assert len(build_cache(*settings).latents) == tworoom.rows  # the lock is free again
