"""Projections: shipped ones find things in frames, and they are the linear map they say, in memory and on disk."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from own_task import TASK as DOT

import leplanner as lp
from leplanner.diagnostics.projection import (
    FILE,
    Projection,
    fit_projection,
    load_projection,
    projection_of,
    save_projection,
)
from leplanner.tasks import TASKS
from leplanner.zoo import shipped

NAMES = tuple(TASKS)  # as shipped: other tests register tasks of their own


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_projection_finds_things_in_encoded_frames(name, simulators):
    """Truth is the simulator's state: 3 px of the world's frames, on episodes that were not fitted to."""
    world, task, sim = lp.load(name).world, TASKS[name], simulators(name)
    projection = load_projection(shipped()[name] / FILE)
    assert projection.encoder_digest == world.encoder_digest  # else: python scripts/fit_projections.py
    assert (shipped()[name] / FILE).stat().st_size < 10_000
    frames, states = [], []
    for seed in range(10):
        rng = np.random.default_rng([5, seed])
        sim.start(rng)
        behavior = task.behavior(sim, rng)
        for _ in range(15):
            sim.step(behavior.act(None))
        frames.append(sim.render(world.spec.frame_size))
        states.append(sim.state())
    points = projection.points(world.encode(np.stack(frames)))
    assert task.plan_view is not None
    away = np.linalg.norm(points - task.plan_view(np.stack(states)), axis=-1) * world.spec.frame_size
    assert np.median(away) < 3.0
    assert max(projection.error_px) < 3.0


def test_it_is_the_map_it_says_and_survives_the_disk(tmp_path):
    """Token latents too: (2, 3) numbers, two points."""
    rng = torch.Generator().manual_seed(0)
    weights, offset = torch.randn(2, 3, 2, 2, generator=rng).half(), torch.randn(2, 2, generator=rng).half()
    projection = Projection(weights, offset, "digest", (1.0, 2.0))
    latents = torch.randn(4, 5, 2, 3, generator=rng)
    expected = latents.flatten(2) @ weights.float().reshape(6, 4) + offset.float().reshape(4)
    np.testing.assert_allclose(projection.points(latents), expected.reshape(4, 5, 2, 2), atol=1e-5)
    save_projection(projection, tmp_path / FILE)
    again = load_projection(tmp_path / FILE)
    assert (again.encoder_digest, again.error_px) == ("digest", (1.0, 2.0))
    np.testing.assert_array_equal(again.points(latents), projection.points(latents))
    with pytest.raises(ValueError, match=r"reads latents of shape \(2, 3\); got \(4, 6\)"):
        projection.points(torch.zeros(4, 6))


def test_it_is_fitted_once_and_again_for_another_encoder(tiny_world, tmp_path):
    told: list[tuple[int, int]] = []

    def projected() -> Projection:
        told.clear()
        tell = lambda done, total: told.append((done, total))  # noqa: E731
        return projection_of(tiny_world, TASKS["tworoom"], tmp_path, tell, episodes=10)

    first = projected()
    assert told[-1] == (10, 10)
    assert first.weights.shape == (*tiny_world.latent.shape, 1, 2)
    again = projected()
    assert not told
    assert torch.equal(again.weights, first.weights)
    save_projection(Projection(first.weights, first.offset, "another", ()), tmp_path / FILE)
    assert projected().encoder_digest == tiny_world.encoder_digest
    assert told


def test_a_task_without_a_view_says_what_to_give(tiny_world):
    with pytest.raises(ValueError, match="Give the task a plan_view"):
        fit_projection(tiny_world, DOT)


def test_a_broken_file_says_what_to_do(tmp_path):
    (tmp_path / FILE).write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="Delete it"):
        load_projection(tmp_path / FILE)
