"""Frames at another size: as the encoder's own frames were made, wherever they come from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import action_spec, encode_with, small_world, synthetic_episodes

from leplanner.data.cache import build_cache
from leplanner.data.resize import at_size, resize_frames
from leplanner.pipeline.presets import get_preset
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm, shrink
from leplanner.worlds import FAMILIES
from leplanner.worlds.base import IMAGENET_MEAN, IMAGENET_STD, WorldSpec


@pytest.fixture
def frames(rng) -> np.ndarray:
    """Smooth ones, as pictures are, with an edge."""
    coarse = rng.integers(0, 256, (3, 8, 8, 3)).repeat(28, axis=1).repeat(28, axis=2)
    coarse[:, 100:, :90] = 255
    return coarse.astype(np.uint8)


@pytest.mark.parametrize("size", [32, 64, 96, 112, 200])
def test_area_is_how_simulators_shrink(frames, size):
    resized = resize_frames(frames, size, "area")
    expected = np.stack([shrink(frame, size) for frame in frames])
    assert np.abs(resized.astype(int) - expected).max() <= 1  # one rounds halves up, the other to even


@pytest.mark.parametrize(("stored", "size"), [(224, 96), (224, 160), (96, 224)])
def test_bilinear_is_how_stable_worldmodel_resizes(frames, stored, size):
    """It normalizes first and resizes then; ours are rounded to whole levels in between."""
    import_swm()
    from torchvision.transforms import v2

    known = frames[:, :stored, :stored]
    pixels = torch.as_tensor(np.ascontiguousarray(known)).permute(0, 3, 1, 2)
    steps = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD), v2.Resize(size)]
    theirs = v2.Compose(steps)
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (IMAGENET_MEAN, IMAGENET_STD))
    ours = torch.as_tensor(resize_frames(known, size, "bilinear")).permute(0, 3, 1, 2) / 255
    assert ((ours - mean) / std - theirs(pixels)).abs().max() <= 0.51 / 255 / min(IMAGENET_STD)


def test_a_dataset_is_resized_as_it_is_read(frames, rng):
    episodes = replace(synthetic_episodes(rng, lengths=(2, 1)), frames=frames)
    sized = at_size(episodes, 64, "area")
    assert sized.frames.shape == (3, 64, 64, 3)
    assert sized.digest == episodes.digest
    assert at_size(episodes, 224, "area") is episodes
    expected = resize_frames(frames, 64, "area")
    for rows in (1, slice(0, 2), np.array([2, 0]), np.array([[0, 1], [2, 2]])):
        assert np.array_equal(sized.frames[rows], expected[rows])
    with pytest.raises(ValueError, match=r"square, 64 x 64 pixels; got 200 x 224. Crop"):
        at_size(replace(episodes, frames=frames[:, :200]), 64, "area")
    with pytest.raises(ValueError, match=r"frames have 224 px and the world takes 256"):
        at_size(episodes, 256, "bilinear")


def test_each_kind_of_encoder_says_how_its_frames_are_made():
    kinds = {}
    for scale in ("paper", "compact"):
        for family in ("lewm", "dino-wm", "tdmpc2"):
            network = get_preset(TASKS["tworoom"], scale, family=family).network
            spec = replace(_spec(network), family=FAMILIES.get(family).name)
            kinds[scale, family] = (spec.resampling, spec.frame_size)
    assert set(kinds.values()) == {("bilinear", 224), ("area", 64)}
    assert all(kind == ("bilinear", 224) for (scale, _), kind in kinds.items() if scale == "paper")


def _spec(network) -> WorldSpec:
    return WorldSpec("lewm", "tworoom", network, action_spec())


def test_a_world_learns_from_encodes_and_controls_with_frames_of_another_size(tworoom, tiny_world, tmp_path):
    """Twice as large, each pixel repeated: shrinking gives the very frames, and so the very world and latents."""
    large = replace(tworoom, frames=tworoom.frames.repeat(2, axis=1).repeat(2, axis=2))
    world = small_world(large, tmp_path / "world")
    assert world.digest == tiny_world.digest
    sized = world.spec.sized(large)
    cache = build_cache(sized, encode_with(world), world.latent, world.encoder_digest, tmp_path / "latents")
    assert np.array_equal(cache.latents[:4], tiny_world.encode(tworoom.frames[:4]).half().numpy())
