"""What tests share: one simulator a task, one small dataset, one small trained world."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from support import encode_with, small_world

import leplanner.baselines  # noqa: F401  (registers every method)
from leplanner.control.loaded import LoadedPlanner
from leplanner.core import registry as registry_module
from leplanner.data.cache import build_cache
from leplanner.data.collect import CollectConfig, collect
from leplanner.data.episodes import Episodes
from leplanner.data.formats import open_episodes
from leplanner.execution.executor import make_executor
from leplanner.pipeline.presets import get_preset
from leplanner.planner.planner import planner_for
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds import FAMILIES

import_swm()  # before pytest's own warning filter sees swm's import


@pytest.fixture(scope="session")
def simulators():
    created = {}

    def get(name: str):
        if name not in created:
            created[name] = TASKS[name].simulate()
        return created[name]

    yield get
    for simulator in created.values():
        simulator.close()


@pytest.fixture(scope="session")
def tworoom_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "tworoom.h5"
    return collect(
        TASKS["tworoom"], CollectConfig(episodes=20, steps=40, size=32, seed=3), path, make_executor(workers=2)
    )


@pytest.fixture(scope="session")
def tworoom(tworoom_file) -> Episodes:
    return open_episodes(tworoom_file, TASKS["tworoom"])


@pytest.fixture(scope="session")
def tiny_world(tworoom, tmp_path_factory):
    return small_world(tworoom, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def tiny_cache(tiny_world, tworoom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("latents")
    return build_cache(tworoom, encode_with(tiny_world), tiny_world.latent, tiny_world.encoder_digest, folder)


@pytest.fixture(scope="session")
def tiny_planner(tiny_world):
    torch.manual_seed(0)
    return LoadedPlanner(tiny_world, planner_for(tiny_world, get_preset(TASKS["tworoom"], "tiny").planner))


@pytest.fixture(scope="module")
def browser():
    """A real one, without a window."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for name in names if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no Chromium here: sh scripts/browser.sh")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def forgets_registrations():
    """What a module registers is unknown to the others."""
    registries = (TASKS, FAMILIES)
    items, named = [dict(registry._items) for registry in registries], list(registry_module._plugins)
    yield
    for registry, known in zip(registries, items, strict=True):
        registry._items = known
    registry_module._plugins[:] = named


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
