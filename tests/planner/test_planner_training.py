"""Training a planner: exact resume, bundles, metrics, the best weights, and clear errors."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import CPU, synthetic_episodes

import leplanner as lp
from leplanner.core.config import changed
from leplanner.core.latent import LatentSpec
from leplanner.core.problem import PlanProblem
from leplanner.data.cache import LatentCache
from leplanner.data.windows import plan_windows
from leplanner.density.mixture import Density, DensityConfig, MixtureDensity
from leplanner.density.train import train_density
from leplanner.pipeline.presets import get_preset
from leplanner.planner.checks import check_planner
from leplanner.planner.planner import load_bundle
from leplanner.planner.train import train_planner
from leplanner.tasks import TASKS
from leplanner.training.loggers import read_metrics, read_validations
from leplanner.training.loop import TrainState
from leplanner.training.muon import Muon
from leplanner.training.optim import OPTIMIZERS

TINY = get_preset(TASKS["tworoom"], "tiny")
SETTINGS = changed(TINY.training, steps=8, batch=8, validate_every=4, precision="fp32")


@pytest.fixture(scope="module")
def tiny_density(tiny_world, tiny_cache, tmp_path_factory):
    config = changed(TINY.density, steps=10)
    return train_density(tiny_world, tiny_cache, config, tmp_path_factory.mktemp("density"), CPU)


@pytest.fixture
def run(tiny_world, tiny_cache, tiny_density):
    def train(out, stop_after=None, dropout=0.0, **changes):
        shape, config = replace(TINY.planner, dropout=dropout), changed(SETTINGS, **changes)
        return train_planner(tiny_world, tiny_cache, tiny_density, shape, config, out, CPU, stop_after=stop_after)

    return train


@pytest.mark.parametrize("optimizer", OPTIMIZERS.names())
def test_a_stopped_run_continues_bit_for_bit(run, tmp_path, optimizer):
    settings = {"dropout": 0.1, "optimizer": optimizer}
    whole = run(tmp_path / "whole", **settings)
    run(tmp_path / "parts", **settings, stop_after=5)
    assert not (tmp_path / "parts" / "config.json").exists()
    assert run(tmp_path / "parts", **settings).digest == whole.digest
    lines, expected = (read_metrics(tmp_path / name) for name in ("parts", "whole"))
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert [line["step"] for line in read_validations(tmp_path / "parts")] == [4, 8]
    assert [line["loss"] for line in lines] == [line["loss"] for line in expected]


@pytest.mark.parametrize("steps", [1, 2, 19, 20])
def test_however_few_steps_have_a_schedule(steps):
    """With 19, a warm-up of 5 % would be none, by which PyTorch divides."""
    state = TrainState(torch.nn.Linear(2, 2), replace(SETTINGS.optim, steps=steps), CPU, "run")
    for _ in range(steps):
        state.step(lambda generator: {"loss": state.module(torch.ones(1, 2)).square().sum()})
    assert state.schedules[0].get_last_lr()[0] <= SETTINGS.optim.learning_rate * (1 + 1e-9)


def test_muon_gets_the_matrices_and_adamw_the_rest(run, tmp_path):
    model = run(tmp_path / "model").model.requires_grad_(True)
    state = TrainState(model, replace(SETTINGS.optim, optimizer="muon"), CPU, "run")
    adamw, muon = (
        {id(weight) for group in optimizer.param_groups for weight in group["params"]} for optimizer in state.optimizers
    )
    assert adamw.isdisjoint(muon)
    assert adamw | muon == {id(weight) for weight in model.parameters()}
    assert {id(model.consequence_in.weight), id(model.refine.blocks[0].qkv.weight)} <= muon
    assert id(model.plan_query) in adamw  # a table of vectors, no map
    with pytest.raises(ValueError, match="adamw, muon"):
        TrainState(model, replace(SETTINGS.optim, optimizer="sgd"), CPU, "run")


@pytest.mark.parametrize("shape", [(24, 64), (64, 24), (32, 32)])
def test_muon_makes_the_steps_of_torchs(shape):
    ours, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    rates = {"lr": 0.1, "weight_decay": 0.1}
    reference = torch.optim.Muon([theirs], adjust_lr_fn="match_rms_adamw", **rates)
    optimizer = Muon([ours], **rates, dtype=torch.bfloat16)
    exact = torch.nn.Parameter(torch.ones(shape))
    in_fp32 = Muon([exact], **rates, dtype=torch.float32)
    for step in range(4):
        gradient = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        for weight, each in ((ours, optimizer), (theirs, reference), (exact, in_fp32)):
            weight.grad = gradient.clone()
            each.step()
    moved = (theirs - 1).norm()
    assert (ours - theirs).norm() < 0.02 * moved  # bf16 rounds a hundredth
    assert (exact - theirs).norm() < 0.02 * moved
    assert moved > 0.1


def test_a_bundle_is_stored_and_restored(run, tmp_path):
    planner = run(tmp_path)
    again = lp.load(tmp_path)
    assert again.digest == planner.digest
    problem = PlanProblem(torch.randn(5, 3, 32), torch.randn(5, 2, 10), torch.randn(5, 32))
    assert torch.equal(again.plan(problem).blocks, planner.plan(problem).blocks)
    check_planner(again, problem)
    assert run(tmp_path).digest == planner.digest  # finished: nothing to do
    config = json.loads((tmp_path / "config.json").read_text())
    assert set(config["provenance"]["inputs"]) == {"world", "data", "density"}
    (tmp_path / "planner.safetensors").write_bytes((tmp_path / "density.safetensors").read_bytes())
    with pytest.raises(ValueError, match="do not fit the model"):
        load_bundle(tmp_path)


def test_metrics_report_every_refinement(run, tmp_path):
    run(tmp_path)
    line = read_validations(tmp_path)[-1]
    assert len(line["held_out_arrival"]) == len(line["held_out_terminal"]) == 4
    assert len(line["held_out_step_sizes"]) == 3
    assert np.shape(line["held_out_profile"]) == (5, 5)
    assert len(line["held_out_profile_minimum"]) == 5
    assert 0 <= line["held_out_off_support"] <= 1
    assert {"gradient_norm", "transitions_per_s", "samples_per_s", "support", "objective", "held_out_start"} <= set(
        line
    )
    assert line["transitions_per_s"] == pytest.approx(20 * line["samples_per_s"])


def test_the_best_weights_are_kept(run, tmp_path):
    """A last step that ruins the planner does not reach the bundle."""
    run(tmp_path / "good", steps=8, stop_after=4)
    best = torch.load(tmp_path / "good" / "checkpoint.pt", weights_only=True)["best"]
    checkpoint = torch.load(tmp_path / "good" / "checkpoint.pt", weights_only=True)
    checkpoint["state"]["action_head.3.bias"].fill_(50.0)
    checkpoint["best_score"] = 0.0  # a distance that nothing after it can beat, whatever the tiny world thinks of ruins
    torch.save(checkpoint, tmp_path / "good" / "checkpoint.pt")
    bundle = run(tmp_path / "good", steps=8)
    assert all(torch.equal(bundle.model.state_dict()[name], tensor) for name, tensor in best.items())


def test_the_last_weights_are_kept_on_request(run, tmp_path):
    """As after the last step, however bad; a run that keeps the best does not continue as one that does not."""
    planner = run(tmp_path, keep_best=False)
    last = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert not last["best"]
    assert all(torch.equal(planner.model.state_dict()[name], tensor) for name, tensor in last["state"].items())
    assert json.loads((tmp_path / "config.json").read_text())["training"]["best_held_out"] is None
    with pytest.raises(ValueError, match="another configuration"):
        run(tmp_path)


def test_fixed_terminal_and_ablations_train(run, tiny_world, tiny_cache, tmp_path):
    for name, changes in {
        "terminal": {"objective": "fixed-terminal"},
        "path": {"objective": "fixed-terminal", "path_weight": 0.1},
        "free": {"support_weight": 0.0},
    }.items():
        run(tmp_path / name, **changes)
    assert "support" not in read_metrics(tmp_path / "free")[-1]
    shape, unsupported = replace(TINY.planner, refinements=0), replace(SETTINGS, support_weight=0.0)
    draft_only = train_planner(tiny_world, tiny_cache, None, shape, unsupported, tmp_path / "draft", CPU)
    assert draft_only.density is None
    assert lp.load(tmp_path / "draft").digest == draft_only.digest


def test_mistakes_get_an_answer_and_nothing_is_overwritten(run, tiny_world, tiny_cache, tmp_path):
    with pytest.raises(ValueError, match="arrival-hold, fixed-terminal"):
        run(tmp_path / "a", objective="imitate")

    def train(cache, density, **changes):
        config = replace(SETTINGS, **changes)
        return train_planner(tiny_world, cache, density, TINY.planner, config, tmp_path / "a", CPU)

    with pytest.raises(ValueError, match="needs a density"):
        train(tiny_cache, None)
    with pytest.raises(ValueError, match="no initial weights to average with"):
        run(tmp_path / "a", init_average=0.5)
    with pytest.raises(ValueError, match=r"a weight from 0 to 1; got 2\.0"):
        run(tmp_path / "a", init_average=2.0)
    stale = Density(MixtureDensity(DensityConfig(), LatentSpec((32,)), 3, 10), 1.0, "0" * 64)
    with pytest.raises(ValueError, match="latents of another world"):
        train(tiny_cache, stale)
    wrong = Density(MixtureDensity(DensityConfig(), LatentSpec((4,)), 3, 10), 1.0)
    with pytest.raises(ValueError, match=r"fitted for latent .*\(4,\).*, the planner's world has .*\(32,\)"):
        train(tiny_cache, wrong)
    episodes = synthetic_episodes(np.random.default_rng(0), lengths=(1,) * 40, steps_per_row=5)
    empty = LatentCache(np.zeros((40, 32), np.float16), episodes, tiny_cache.encoder_digest, "synthetic")
    with pytest.raises(ValueError, match="No planning sample fits"):
        train(empty, None, support_weight=0.0)
    assert not (tmp_path / "a").exists()
    run(tmp_path / "b", stop_after=3)
    before = (tmp_path / "b" / "checkpoint.pt").read_bytes()
    with pytest.raises(ValueError, match="another configuration"):
        run(tmp_path / "b", learning_rate=1.0)
    checkpoint = torch.load(tmp_path / "b" / "checkpoint.pt", weights_only=True)
    assert (tmp_path / "b" / "checkpoint.pt").read_bytes() == before
    checkpoint["state"]["eta"].fill_(float("nan"))
    torch.save(checkpoint, tmp_path / "b" / "checkpoint.pt")
    before = (tmp_path / "b" / "checkpoint.pt").read_bytes()
    with pytest.raises(FloatingPointError, match="step 3"):
        run(tmp_path / "b")
    assert (tmp_path / "b" / "checkpoint.pt").read_bytes() == before
    with pytest.raises(ValueError, match="leplanner train TASK"):
        lp.load(tmp_path / "b")


def test_samples_stay_within_their_episode(tiny_world, tiny_cache):
    windows, _ = plan_windows(tiny_world, tiny_cache)
    row = windows.current[:1]
    for offset, history in ((np.array([99]), np.array([0])), (np.array([1]), windows.history[row] + 1)):
        with pytest.raises(ValueError, match="leave its episode"):
            windows.at(row, offset, history)
