"""World training: learns, resumes bit for bit, and fails clearly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import CPU

from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.data.windows import WorldWindows
from leplanner.pipeline.presets import get_preset
from leplanner.tasks import TASKS
from leplanner.training.loggers import read_metrics, read_validations
from leplanner.training.loop import prefetch
from leplanner.training.precision import pick_device, pick_precision
from leplanner.worlds import WorldSpec, load_world, save_world
from leplanner.worlds.base import normalize
from leplanner.worlds.lewm.model import LeWM
from leplanner.worlds.probe import probe_world
from leplanner.worlds.train import train_world
from leplanner.worlds.validate import STRENGTH, best_strength, calibrate, ridge

TASK = TASKS["tworoom"]
PRESET = get_preset(TASK, "tiny")


def run(episodes, out, stop_after=None, **changes):
    config = changed(PRESET.world, **{"steps": 12, "batch": 8, "validate_every": 4, "precision": "fp32", **changes})
    sizes = (PRESET.family, PRESET.network, PRESET.objective, config)
    return train_world(TASK, episodes, *sizes, out, PRESET.block, CPU, stop_after=stop_after)


@pytest.mark.parametrize("grounding", [0.0, 1.0])
def test_a_stopped_run_continues_bit_for_bit(tworoom, tmp_path, grounding):
    whole = run(tworoom, tmp_path / "whole", grounding=grounding)
    run(tworoom, tmp_path / "parts", stop_after=5, grounding=grounding)
    assert not (tmp_path / "parts" / "config.json").exists()
    parts = run(tworoom, tmp_path / "parts", grounding=grounding)
    assert parts.digest == whole.digest
    assert load_world(tmp_path / "parts").digest == whole.digest
    assert [line["step"] for line in read_validations(tmp_path / "parts")] == [4, 8, 12]
    lines, expected = read_metrics(tmp_path / "parts"), read_metrics(tmp_path / "whole")
    assert [line["step"] for line in lines] == list(range(1, 13))
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
    """On 20 episodes the state head explains the training frames, and a probe finds the dot in held-out ones."""
    world = run(tworoom, tmp_path, steps=150, batch=32, grounding=1.0, validate_every=150)
    (line,) = read_validations(tmp_path)
    assert line["state"] < 0.3  # 1 is knowing nothing
    report = probe_world(world, TASK, tworoom)
    assert np.mean(list(report.rmse.values())) < 30  # px; a dot anywhere in the rooms would err by 55


def test_calibration_measures_the_statistics_of_the_weights_as_they_are(tworoom):
    """After it, normalized activations over the same batches have mean 0 and variance 1, whatever ran before."""
    actions = ActionSpec((0.0, 0.0), (1.0, 1.0), TASK.low, TASK.high, block=5)
    spec = WorldSpec("lewm", "tworoom", PRESET.network, actions)
    model = LeWM(PRESET.network)
    windows = WorldWindows(tworoom, np.arange(20), actions, frames=4)
    model.projector.net[1].running_mean += 100.0
    calibrate(model, spec, windows, PRESET.objective, batches=4)
    rng = np.random.default_rng(1)  # the batches that calibration draws
    frames = np.concatenate([windows.draw(rng, 64).frames.reshape(-1, 32, 32, 3) for _ in range(4)])
    with torch.no_grad():
        hidden = model.projector.net[:2](model.encoder(normalize(torch.from_numpy(frames), spec)))
    assert hidden.mean(0).abs().max() < 1e-2
    assert (hidden.var(0) - 1).abs().max() < 0.2
    assert not model.training
    assert model.projector.net[1].momentum == 0.1


def test_divergence_stops_before_the_checkpoint_is_touched(tworoom, tmp_path):
    run(tworoom, tmp_path, stop_after=3, grounding=1.0)
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    checkpoint["state"]["state_head.bias"].fill_(float("inf"))
    torch.save(checkpoint, tmp_path / "checkpoint.pt")
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(FloatingPointError, match="not finite at step 3"):
        run(tworoom, tmp_path, grounding=1.0)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_world_that_stands_there_is_not_trained_over(tiny_world, tworoom, tmp_path):
    save_world(tiny_world, tmp_path)
    with pytest.raises(ValueError, match="already holds a model"):
        run(tworoom, tmp_path)
    assert load_world(tmp_path).digest == tiny_world.digest


def test_precision_is_decided_once_a_run(tworoom, tmp_path):
    """Measuring again on resume could choose otherwise, and the run would not continue bit for bit."""
    run(tworoom, tmp_path, stop_after=2, precision="auto")
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    other = "bf16" if checkpoint["precision"] == "fp32" else "fp32"
    torch.save(checkpoint | {"precision": other}, tmp_path / "checkpoint.pt")
    run(tworoom, tmp_path, precision="auto", stop_after=3)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["precision"] == other


def test_metrics_tell_of_the_probe_and_of_the_loader(tworoom, tmp_path):
    run(tworoom, tmp_path, steps=4)
    (line,) = read_validations(tmp_path)
    assert {"probe_agent_x", "probe_agent_y", "held_out_error", "loader_share", "frames_per_s"} <= set(line)


def test_oblong_frames_are_refused_before_anything_is_written(tworoom, tmp_path):
    oblong = replace(tworoom, frames=tworoom.frames[:, :24])
    with pytest.raises(ValueError, match="square, 32 x 32 pixels; got 24 x 32"):
        train_world(TASK, oblong, PRESET.family, PRESET.network, PRESET.objective, PRESET.world, tmp_path, PRESET.block)
    assert not any(tmp_path.iterdir())


def test_ridge_recovers_a_linear_map(rng):
    x = rng.normal(size=(500, 8))
    weights, level = rng.normal(size=(8, 3)), rng.normal(size=3)
    fitted = ridge(x, x @ weights + level, strength=1e-9)
    new = rng.normal(size=(20, 8))
    assert np.allclose(fitted(new), new @ weights + level, atol=1e-6)


def test_ridge_is_the_same_with_more_features_than_rows(rng):
    """Rows of zeros change neither the sums of squares nor the penalty, but choose the other way to solve."""
    x, y = rng.normal(size=(20, 30)), rng.normal(size=(20, 2))
    x, y, new = x - x.mean(axis=0), y - y.mean(axis=0), rng.normal(size=(5, 30))
    padded = [np.concatenate([part, np.zeros((20, part.shape[1]))]) for part in (x, y)]
    assert np.allclose(ridge(x, y, 0.1)(new), ridge(*padded, 0.1)(new))


def test_with_few_rows_a_probe_is_regularized_as_much_as_helps(rng):
    """Of 64 features one holds the quantity; 70 noisy rows, fitted without shrinking, would find it in all of them."""
    x, new = rng.normal(size=(70, 64)), rng.normal(size=(500, 64))
    y = x[:, :1] + rng.normal(size=(70, 1))
    plain, chosen = (np.square(ridge(x, y, s)(new) - new[:, :1]).mean() for s in (STRENGTH, best_strength(x, y)))
    assert chosen < 0.8 < 1 < plain
    many = rng.normal(size=(200, 64))
    assert best_strength(many, many[:, :1]) == STRENGTH  # nothing is gained by shrinking what fits


def test_prefetch_keeps_order_and_raises_the_error_of_drawing():
    assert list(prefetch(lambda n: n * n, range(50))) == [n * n for n in range(50)]

    def breaks(number):
        if number == 4:
            raise ValueError("drawing broke")
        return number

    items = prefetch(breaks, range(9))
    assert [next(items) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="drawing broke"):
        next(items)


def test_devices_and_precision_are_chosen_or_refused():
    assert pick_device("cpu").type == "cpu"
    with pytest.raises(ValueError, match="this machine has"):
        pick_device("gpu")
    assert pick_precision("auto", torch.device("cpu")) in ("fp32", "bf16")
    assert pick_precision("bf16", torch.device("cpu")) == "bf16"
    with pytest.raises(ValueError, match="auto, fp32 or bf16"):
        pick_precision("fp8", torch.device("cpu"))
