"""The latent cache: equal to encoding, refused for another encoder or dataset, resumed after a kill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support import encode_with

from leplanner.core.latent import LatentSpec
from leplanner.data.cache import build_cache, open_cache
from leplanner.worlds import save_world


def make(world, episodes, folder, encode=None, **options):
    return build_cache(
        episodes,
        encode or encode_with(world),
        world.latent,
        world.encoder_digest,
        folder,
        batch=16,
        save_every=2,
        **options,
    )


def test_cache_equals_encoding(tiny_world, tworoom, tmp_path):
    cache = make(tiny_world, tworoom, tmp_path / "c")
    direct = tiny_world.encode(tworoom.frames).numpy()
    assert isinstance(cache.latents, np.memmap)
    assert cache.latents.dtype == np.float16
    assert np.allclose(cache.latents, direct, atol=2e-3)
    assert np.array_equal(cache.episodes.actions, tworoom.actions, equal_nan=True)
    assert np.array_equal(cache.episodes.states, tworoom.states)
    assert cache.episodes.steps_per_row == 5


def test_another_world_or_dataset_is_refused(tiny_world, tworoom, tmp_path):
    make(tiny_world, tworoom, tmp_path / "c")
    with pytest.raises(ValueError, match="another encoder"):
        open_cache(tmp_path / "c", encoder_digest="0" * 64)
    with pytest.raises(ValueError, match="another data"):
        make(tiny_world, replace(tworoom, digest="f" * 64), tmp_path / "c")


def test_a_killed_run_continues(tiny_world, tworoom, tmp_path):
    calls = []

    def dies(frames):
        if len(calls) == 5:
            raise KeyboardInterrupt
        calls.append(len(frames))
        return encode_with(tiny_world)(frames)

    with pytest.raises(KeyboardInterrupt):
        make(tiny_world, tworoom, tmp_path / "c", encode=dies)
    with pytest.raises(ValueError, match="unfinished"):
        open_cache(tmp_path / "c")
    later = []
    cache = make(
        tiny_world, tworoom, tmp_path / "c", encode=lambda f: later.append(len(f)) or encode_with(tiny_world)(f)
    )
    assert sum(later) == tworoom.rows - 4 * 16  # two saves of two batches were safe
    whole = make(tiny_world, tworoom, tmp_path / "undisturbed")
    assert np.array_equal(cache.latents, whole.latents)


def test_what_a_shorter_cache_holds_is_not_encoded_again(tiny_world, tworoom, tmp_path):
    cut = int(tworoom.starts[12])
    parts = {name: getattr(tworoom, name)[:cut] for name in ("frames", "actions", "states")}
    index = {name: getattr(tworoom, name)[:12] for name in ("starts", "lengths", "ids")}
    short = make(tiny_world, replace(tworoom, **parts, **index, digest="short"), tmp_path / "short")
    encoded = []
    known = make(
        tiny_world,
        tworoom,
        tmp_path / "long",
        encode=lambda f: encoded.append(len(f)) or encode_with(tiny_world)(f),
        known=short,
    )
    assert sum(encoded) == tworoom.rows - cut
    whole = make(tiny_world, tworoom, tmp_path / "whole")
    assert np.allclose(known.latents, whole.latents, atol=2e-3)
    moved = replace(tworoom, actions=tworoom.actions + 1)
    with pytest.raises(ValueError, match="do not begin"):
        make(tiny_world, moved, tmp_path / "other", known=short)


def test_latents_beyond_fp16_are_an_error(tiny_world, tworoom, tmp_path):
    with pytest.raises(FloatingPointError, match="diverged"), np.errstate(over="ignore"):
        make(tiny_world, tworoom, tmp_path / "c", encode=lambda f: np.full((len(f), 32), 1e9))


def test_a_disk_without_room_is_told_before_anything_is_encoded(tworoom, tmp_path):
    encoded = []
    huge = LatentSpec((10**6, 10**6))
    with pytest.raises(ValueError, match=r"take [\d.]+ GB; .* GB free"):
        build_cache(tworoom, lambda f: encoded.append(f), huge, "0" * 64, tmp_path / "c")
    assert not encoded


def test_what_another_world_left_unfinished_is_never_taken_up(tiny_world, tworoom, tmp_path):
    """A is killed, B starts over it and is killed at once, A comes back: every latent must be A's."""

    def dies_after(batches):
        calls = iter(range(batches))
        return lambda frames: (next(calls), encode_with(tiny_world)(frames))[1]

    folder = tmp_path / "c"
    with pytest.raises(StopIteration):
        make(tiny_world, tworoom, folder, encode=dies_after(4))
    with pytest.raises(StopIteration):
        build_cache(tworoom, dies_after(1), LatentSpec((32,)), "b" * 64, folder, batch=16, save_every=2)
    cache = make(tiny_world, tworoom, folder)
    assert np.allclose(cache.latents, encode_with(tiny_world)(tworoom.frames), atol=2e-3)


def test_a_folder_of_another_kind_is_refused(tiny_world, tworoom, tmp_path):
    save_world(tiny_world, tmp_path)
    with pytest.raises(ValueError, match="does not describe a leplanner latent cache"):
        make(tiny_world, tworoom, tmp_path)
