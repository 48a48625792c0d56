"""The training loop on a small regression: every step is logged, and a resumed run equals one
that was never stopped."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from leplanner.artifacts import folder_lock
from leplanner.training.loggers import LOGGERS, LoggerKind, read_metrics, read_validations, scalars
from leplanner.training.loop import TrainState, train_loop
from leplanner.training.optim import OptimConfig
from leplanner.training.runtime import Runtime

STEPS, PEAK = 10, 4  # the step with the highest learning rate
WEIGHTS = torch.tensor([[1.0, -2.0, 0.5]])


def run(out, stop_after=None, loggers=(), drawn=None, best_by=None, **changes) -> tuple[nn.Module, dict]:
    torch.manual_seed(0)
    settings = {
        "steps": STEPS,
        "learning_rate": 0.05,
        "warmup": PEAK / (STEPS + 1),
        "validate_every": 4,
        "precision": "fp32",
    }
    config = OptimConfig(**{**settings, **changes})
    module = nn.Linear(3, 1)
    state = TrainState(module, config, Runtime("cpu", tuple(loggers)), "a run")

    def draw(rng, step):
        if drawn is not None:
            drawn.append(step)
        return torch.from_numpy(rng.normal(size=(8, 3)).astype(np.float32))

    def losses(batch, generator):
        noise = 0.1 * torch.randn(batch.shape, generator=generator)
        fit = (module(batch + noise) - batch @ WEIGHTS.T).square().mean()
        size = module.weight.square().mean()
        return {"loss": fit + 0.01 * size, "fit": fit, "size": size}

    def validate():
        weight = module.weight.detach()
        return {"held_out": (weight - WEIGHTS).square().mean().item(), "each": weight[0].tolist()}

    metrics = train_loop(state, out, draw, losses, validate, {"rows": 8}, best_by=best_by, stop_after=stop_after)
    return module, metrics


def timeless(lines: list[dict]) -> list[dict]:
    """Metrics without those that depend on the clock."""
    return [{k: v for k, v in line.items() if k not in ("minutes", "loader_share", "rows_per_s")} for line in lines]


def test_every_step_is_logged_with_its_losses_and_learning_rate(tmp_path):
    run(tmp_path)
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    for line in lines:
        assert {"loss", "fit", "size", "gradient_norm", "lr"} <= set(line)
        assert line["loss"] == pytest.approx(line["fit"] + 0.01 * line["size"])
    rates = [line["lr"] for line in lines]
    assert rates[PEAK - 1] == pytest.approx(0.05)
    assert rates[:PEAK] == sorted(rates[:PEAK])  # warmed up, then down
    assert rates[PEAK:] == sorted(rates[PEAK:], reverse=True)
    assert rates[0] < 0.5 * 0.05 > rates[-1]


def test_validations_are_the_lines_with_more(tmp_path):
    _, metrics = run(tmp_path)
    validations = read_validations(tmp_path)
    assert [line["step"] for line in validations] == [4, 8, 10]
    assert all({"held_out", "each", "rows_per_s", "loader_share", "minutes"} <= set(line) for line in validations)
    assert metrics["held_out"] == validations[-1]["held_out"]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_run_equals_an_uninterrupted_one_without_gaps_or_repeats(optimizer, tmp_path):
    whole, metrics = run(tmp_path / "whole", optimizer=optimizer)
    for stop in (3, 4, 9):
        run(tmp_path / "parts", stop_after=stop, optimizer=optimizer)
    parts, resumed = run(tmp_path / "parts", optimizer=optimizer)
    assert torch.equal(parts.weight, whole.weight)
    assert timeless(read_metrics(tmp_path / "parts")) == timeless(read_metrics(tmp_path / "whole"))
    assert timeless([resumed]) == timeless([metrics])


def test_steps_logged_after_the_last_checkpoint_are_logged_once(tmp_path):
    """A killed run has logged more than it saved, and half of a line."""
    run(tmp_path / "whole")
    run(tmp_path / "parts", stop_after=5)
    with (tmp_path / "parts" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 6, "loss": -1.0}) + "\n" + '{"step": 7, "lo')
    run(tmp_path / "parts")
    assert timeless(read_metrics(tmp_path / "parts")) == timeless(read_metrics(tmp_path / "whole"))


def test_a_finished_run_is_not_run_again(tmp_path):
    module, metrics = run(tmp_path)
    drawn = []
    again, same = run(tmp_path, drawn=drawn)
    assert drawn == []
    assert torch.equal(again.weight, module.weight)
    assert same["held_out"] == metrics["held_out"]
    assert len(read_metrics(tmp_path)) == STEPS


def test_the_best_weights_are_kept(tmp_path):
    """A rate far too high at first: the last weights are worse than those of an earlier validation."""
    module, metrics = run(tmp_path, best_by="held_out", learning_rate=3.0, warmup=None, validate_every=1)
    validations = read_validations(tmp_path)
    best = min(validations, key=lambda line: line["held_out"])
    assert best["step"] < STEPS
    assert (metrics["step"], metrics["held_out"]) == (best["step"], best["held_out"])
    assert module.weight[0].tolist() == best["each"]


def test_a_folder_that_another_run_writes_to_is_refused(tmp_path):
    with folder_lock(tmp_path), pytest.raises(ValueError, match="is writing to"):
        run(tmp_path)


@pytest.fixture
def logged(monkeypatch):
    """A logger registered as "notes"; what it was told."""
    events = []

    class Notes:
        def __init__(self, info):
            events.append(("open", info.step, info.run, info.config["steps"]))

        def log(self, step, metrics):
            events.append(("log", step, metrics["loss"]))

        def close(self):
            events.append(("close",))

    monkeypatch.setattr(LOGGERS, "_items", dict(LOGGERS._items))
    LOGGERS.register(LoggerKind("notes", Notes))
    return events


def test_a_registered_logger_gets_every_step(logged, tmp_path):
    run(tmp_path, loggers=["notes"])
    assert logged[0] == ("open", 0, "a run", STEPS)
    assert logged[1:-1] == [("log", line["step"], line["loss"]) for line in read_metrics(tmp_path)]
    assert logged[-1] == ("close",)


def test_a_logger_of_a_resumed_run_knows_where_it_stood(logged, tmp_path):
    run(tmp_path, stop_after=7)
    run(tmp_path, loggers=["notes"])
    assert logged[0] == ("open", 7, "a run", STEPS)
    assert [event[1] for event in logged[1:-1]] == [8, 9, 10]


def test_an_unknown_logger_is_refused_before_training_starts(tmp_path):
    drawn = []
    with pytest.raises(ValueError, match=r"Unknown logger 'pigeon'\. Known: tensorboard, wandb, trackio"):
        run(tmp_path, loggers=["pigeon"], drawn=drawn)
    assert drawn == []
    assert read_metrics(tmp_path) == []


def test_a_logger_whose_package_is_missing_says_what_to_install(logged, tmp_path):
    def unavailable(info):
        raise ImportError("No module named 'pigeon'")

    LOGGERS.register(LoggerKind("pigeon", unavailable))
    drawn = []
    with pytest.raises(ImportError, match="pip install pigeon"):
        run(tmp_path, loggers=["notes", "pigeon"], drawn=drawn)
    assert drawn == []
    assert logged[-1] == ("close",)


def test_tensorboard_gets_every_step_as_curves(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, stop_after=6, loggers=["tensorboard"])
    run(tmp_path, loggers=["tensorboard"])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    lines = read_metrics(tmp_path)
    points = events.Scalars("loss")
    assert [point.step for point in points] == [line["step"] for line in lines]
    assert [point.value for point in points] == pytest.approx([line["loss"] for line in lines])
    assert [point.step for point in events.Scalars("each/2")] == [4, 8, 10]


def test_curves_are_numbers_and_lists_are_several():
    metrics = {"loss": 1, "each": [0.5, 0.25], "name": "x", "flag": True}
    assert scalars(metrics) == {"loss": 1.0, "each/0": 0.5, "each/1": 0.25}
