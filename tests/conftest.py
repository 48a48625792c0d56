"""What tests share: one simulator a task, one small dataset, one small trained world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from leplanner.control.loaded import LoadedPlanner
from leplanner.core.actions import ActionBox
from leplanner.data.cache import build_cache
from leplanner.data.collect import CollectConfig, collect
from leplanner.data.episodes import Episodes, open_episodes
from leplanner.pipeline.presets import tiny
from leplanner.planner.model import LePlanner
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds.train import train_world

import_swm()  # before pytest's own warning filter sees swm's import


@pytest.fixture(scope="session")
def simulators():
    from leplanner.tasks.swm_simulator import make_simulator

    made = {}

    def get(name: str):
        if name not in made:
            made[name] = make_simulator(TASKS[name])
        return made[name]

    yield get
    for simulator in made.values():
        simulator.close()


@pytest.fixture(scope="session")
def tworoom_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tworoom.h5"
    return collect(CollectConfig("tworoom", episodes=20, steps=40, size=32, seed=3), path, workers=2)


@pytest.fixture(scope="session")
def tworoom(tworoom_file) -> Episodes:
    return open_episodes(tworoom_file, TASKS["tworoom"])


@pytest.fixture(scope="session")
def tiny_world(tworoom, tmp_path_factory):
    preset = tiny("tworoom")
    config = replace(preset.train, steps=40, validate_every=20)
    return train_world(TASKS["tworoom"], tworoom, preset.model, config, tmp_path_factory.mktemp("world"), device="cpu")


@pytest.fixture(scope="session")
def tiny_cache(tiny_world, tworoom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("latents")
    return build_cache(tworoom, tiny_world.latents, tiny_world.spec.model.latent, tiny_world.encoder_digest, folder)


@pytest.fixture(scope="session")
def tiny_planner(tiny_world):
    torch.manual_seed(0)
    shape = tiny("tworoom").planner_for(tiny_world.spec.model)
    return LoadedPlanner(tiny_world, LePlanner(shape, ActionBox.of(tiny_world.spec)))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


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
