"""Small things that tests of every layer are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.data.episodes import Episodes
from leplanner.pipeline.presets import get_preset
from leplanner.tasks import TASKS
from leplanner.training.runtime import Runtime
from leplanner.worlds.base import World
from leplanner.worlds.train import train_world

CPU = Runtime("cpu")


def small_world(episodes: Episodes, folder: Path, **changes) -> World:
    """A tiny LeWM for TwoRoom, trained for as long as a test can wait."""
    preset = get_preset(TASKS["tworoom"], "tiny")
    config = changed(preset.world, **{"steps": 40, "validate_every": 20, **changes})
    sizes = (preset.family, preset.network, preset.objective, config)
    return train_world(TASKS["tworoom"], episodes, *sizes, folder, preset.block, CPU)


def encode_with(world: World):
    """As `build_cache` wants it."""
    return lambda frames: world.encode(frames).float().cpu().numpy()


def action_spec(mean=(0.0, 0.0), std=(1.0, 1.0), block: int = 5) -> ActionSpec:
    return ActionSpec(tuple(mean), tuple(std), (-1.0, -1.0), (1.0, 1.0), block)


def synthetic_episodes(
    rng: np.random.Generator, lengths=(30, 17, 42), steps_per_row: int = 1, dim: int = 2
) -> Episodes:
    """Episodes without a simulator: action values name their own row and step."""
    lengths = np.array(lengths)
    rows = int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    actions = np.arange(rows * steps_per_row * dim, dtype=np.float32).reshape(rows, steps_per_row, dim)
    actions[starts + lengths - 1] = np.nan
    return Episodes(
        frames=rng.integers(0, 256, (rows, 8, 8, 3), dtype=np.uint8),
        actions=actions,
        states=rng.normal(size=(rows, 2)),
        starts=starts,
        lengths=lengths,
        ids=np.arange(len(lengths)),
        steps_per_row=steps_per_row,
        digest="synthetic",
    )
