"""World training: learns, resumes bit for bit, does not wait for data, and fails clearly."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from leplanner.data.windows import ActionScale, WorldWindows
from leplanner.presets.scales import tiny
from leplanner.tasks import TASKS
from leplanner.world.lewm import LeWM
from leplanner.world.precision import pick_precision
from leplanner.world.probe import probe_world, ridge
from leplanner.world.train import calibrate, prefetch, train_world
from leplanner.world.world import WorldSpec, load_world, normalise

PRESET = tiny("tworoom")
TASK = TASKS["tworoom"]


def run(episodes, out, stop_after=None, **changes):
    config = replace(PRESET.train, **{"steps": 12, "batch": 8, "validate_every": 4, "precision": "fp32", **changes})
    return train_world(TASK, episodes, PRESET.model, config, out, device="cpu", stop_after=stop_after)


@pytest.mark.parametrize("grounding", [0.0, 1.0])
def test_a_stopped_run_continues_bit_for_bit(tworoom, tmp_path, grounding):
    whole = run(tworoom, tmp_path / "whole", grounding=grounding)
    run(tworoom, tmp_path / "parts", stop_after=5, grounding=grounding)
    assert not (tmp_path / "parts" / "config.json").exists()
    parts = run(tworoom, tmp_path / "parts", grounding=grounding)
    assert parts.digest == whole.digest
    assert load_world(tmp_path / "parts").digest == whole.digest
    lines = [json.loads(line) for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12]
    expected = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [line["loss"] for line in expected]


def test_another_seed_is_another_world(tworoom, tmp_path):
    assert run(tworoom, tmp_path / "a", steps=2).digest != run(tworoom, tmp_path / "b", steps=2, seed=1).digest


def test_a_folder_of_another_run_is_left_alone(tworoom, tmp_path):
    run(tworoom, tmp_path, stop_after=2)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(ValueError, match="another configuration or dataset"):
        run(tworoom, tmp_path, learning_rate=1e-5)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_training_learns(tworoom, tmp_path):
    """On 20 episodes the held-out error falls to a fraction, and a probe finds the dot."""
    world = run(tworoom, tmp_path, steps=150, batch=32, grounding=1.0, validate_every=30)
    errors = [json.loads(line)["held_out_error"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert errors[-1] < 0.5 * errors[0]
    report = probe_world(world, TASK, tworoom)
    assert all(error < 30 for error in report.rmse.values())  # a dot anywhere in the rooms would err by 55 px


def test_calibration_measures_the_statistics_of_the_weights_as_they_are(tworoom):
    """After it, normalised activations over the same batches have mean 0 and variance 1, whatever ran before."""
    spec = WorldSpec("tworoom", PRESET.model, 5, (0.0, 0.0), (1.0, 1.0))
    model = LeWM(PRESET.model)
    windows = WorldWindows(tworoom, np.arange(20), ActionScale(np.zeros(2), np.ones(2)), 5, 3)
    model.projector.net[1].running_mean += 100.0
    calibrate(model, spec, windows, batches=4)
    rng = np.random.default_rng(1)  # the batches that calibration draws
    frames = np.concatenate([windows.draw(rng, 64).frames.reshape(-1, 32, 32, 3) for _ in range(4)])
    with torch.no_grad():
        hidden = model.projector.net[:2](model.encoder(normalise(torch.from_numpy(frames), spec)))
    assert hidden.mean(0).abs().max() < 1e-2
    assert (hidden.var(0) - 1).abs().max() < 0.2
    assert not model.training
    assert model.projector.net[1].momentum == 0.1


def test_divergence_stops_before_the_checkpoint_is_touched(tworoom, tmp_path):
    run(tworoom, tmp_path, stop_after=3)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    tworoom.states[0, 0], kept = np.nan, tworoom.states[0, 0]
    try:
        with pytest.raises(FloatingPointError, match="not finite at step"):
            run(tworoom, tmp_path / "grounded", grounding=1.0, batch=64)
    finally:
        tworoom.states[0, 0] = kept
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_frames_of_another_size_are_refused(tworoom, tmp_path):
    model = replace(PRESET.model, encoder=replace(PRESET.model.encoder, frame_size=64))
    with pytest.raises(ValueError, match="32x32 px, the world wants 64 px"):
        train_world(TASK, tworoom, model, PRESET.train, tmp_path)


def test_ridge_recovers_a_linear_map(rng):
    x = rng.normal(size=(500, 8))
    weights, level = rng.normal(size=(8, 3)), rng.normal(size=3)
    fitted = ridge(x, x @ weights + level, strength=1e-9)
    new = rng.normal(size=(20, 8))
    assert np.allclose(fitted(new), new @ weights + level, atol=1e-6)


def test_prefetch_keeps_order_and_raises_the_sources_error():
    assert list(prefetch(iter(range(50)), depth=3)) == list(range(50))

    def breaks():
        yield 1
        raise ValueError("the source broke")

    items = prefetch(breaks(), depth=2)
    assert next(items) == 1
    with pytest.raises(ValueError, match="the source broke"):
        next(items)


def test_precision_is_chosen_or_refused():
    assert pick_precision("auto", torch.device("cpu")) in ("fp32", "bf16")
    assert pick_precision("bf16", torch.device("cpu")) == "bf16"
    with pytest.raises(ValueError, match="auto, fp32 or bf16"):
        pick_precision("fp8", torch.device("cpu"))
