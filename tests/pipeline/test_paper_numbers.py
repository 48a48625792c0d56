"""The recipe `paper` at the scale `paper` has the numbers that the paper prints; compact changes sizes and steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from support import action_spec, synthetic_episodes

from leplanner.control.methods import SearchBudget
from leplanner.core.actions import ActionSpec
from leplanner.core.latent import LatentSpec
from leplanner.data.episodes import is_validation
from leplanner.data.windows import PlanWindows
from leplanner.evaluation.manifest import default_budget
from leplanner.pipeline.presets import Preset, get_preset
from leplanner.planner.model import LePlanner
from leplanner.planner.objectives import deep_supervision_weights
from leplanner.tasks import TASKS

TASK_NAMES = ("pusht", "reacher", "tworoom", "cube")


def paper(name: str, scale: str = "paper") -> Preset:
    return get_preset(TASKS[name], scale, "paper")


@pytest.mark.parametrize("name", TASK_NAMES)
def test_the_training_configuration(name):
    """Its table: identical across environments except for TwoRoom's rate and batch."""
    training, optim = paper(name).training, paper(name).training.optim
    assert (optim.optimizer, optim.weight_decay) == ("adamw", 1e-4)
    assert optim.learning_rate == (1e-4 if name == "tworoom" else 3e-4)
    assert optim.batch == (32 if name == "tworoom" else 128)
    assert (optim.steps, optim.clip, optim.warmup) == (20_000, 1.0, 0.05)  # OneCycleLR's pct_start
    assert training.curriculum == "0:2,0.25:3,0.5:5"
    assert (training.objective, training.hold_weight, training.support_weight) == ("arrival-hold", 0.5, 0.01)
    assert paper(name).planner.dropout == 0.1
    assert paper(name).controller == "leplanner"
    assert torch.allclose(deep_supervision_weights(3), torch.tensor([1.0, 2, 4, 8]) / 15)


def test_the_schedule_is_one_cycle_that_peaks_after_five_percent():
    from leplanner.training.optim import make_schedule

    config = paper("pusht").training.optim
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=config.learning_rate)
    schedule, rates = make_schedule(optimizer, config), []
    for _ in range(config.steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert np.argmax(rates) == pytest.approx(0.05 * config.steps, abs=1)
    assert max(rates) == pytest.approx(3e-4, rel=1e-6)
    assert rates[-1] < 1e-8


@pytest.mark.parametrize("name", TASK_NAMES)
def test_the_controllers_components(name):
    preset = paper(name)
    shape, task = preset.planner, TASKS[name]
    assert (shape.horizon, shape.refinements, shape.width) == (5, 3, 256)
    assert (shape.depth, shape.heads, shape.mlp_ratio) == (4, 8, 4)
    assert (preset.network.context, preset.network.latent_shape, preset.block) == (3, (192,), 5)
    assert preset.network.block_dim == {"cube": 25}.get(name, 10)
    zeros, ones = (0.0,) * task.action_dim, (1.0,) * task.action_dim
    torch.manual_seed(0)
    model = LePlanner(shape, LatentSpec((192,)), 3, ActionSpec(zeros, ones, task.low, task.high, 5))
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(6.8e6, abs=0.05e6)
    assert model.plan_query.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.delta_head.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert not model.delta_head.bias.any()
    assert len(model.eta) == 3


def test_the_action_bounds_of_pusht():
    actions = action_spec(mean=(-0.0078128, 0.0068606), std=(0.2082412, 0.2064913))
    assert actions.center[:2].tolist() == pytest.approx([0.0375, -0.0332], abs=5e-5)
    assert actions.scale[:2].tolist() == pytest.approx([4.8021, 4.8428], abs=5e-5)


@pytest.mark.parametrize("name", TASK_NAMES)
def test_the_behavior_density(name):
    """16 components, width 256, logarithms of deviations without a floor; 4000 steps, batch 256, Adam at 1e-3, of which
    no clipping is said; the 95th percentile."""
    density = paper(name).density
    assert (density.model.components, density.model.width, density.model.min_std) == (16, 256, 0.0)
    optim = density.optim
    assert (optim.steps, optim.batch, optim.learning_rate) == (4000, 256, 1e-3)
    assert (optim.optimizer, optim.weight_decay, optim.warmup, optim.clip) == ("adamw", 0.0, None, None)
    assert density.quantile == 0.95


def test_the_world_is_the_released_one_and_stays_frozen():
    for name in TASK_NAMES:
        preset = paper(name)
        encoder = preset.network.encoder
        assert (encoder.width, encoder.depth, encoder.heads, encoder.mlp_ratio) == (192, 12, 3, 4)  # an MLP of 768
        assert (encoder.frame_size, encoder.patch, preset.network.depth) == (224, 14, 6)
        assert (preset.finetune.optim.steps, preset.world.grounding, preset.on_policy.rounds) == (0, 0.0, 0)


def test_data_and_search():
    assert is_validation(np.arange(18_685)).mean() == pytest.approx(0.05, abs=0.005)
    budget = SearchBudget()
    assert (budget.samples, budget.rounds, budget.samples * budget.rounds * 5) == (300, 30, 45_000)
    assert default_budget(25) == 50


def test_offsets_are_drawn_as_the_paper_measured_them(rng):
    """25.9, 21.1, 18.9, 17.4 and 16.7 % of 4000 samples at the last stage of the curriculum. Released PushT episodes
    have 125 frames on average. Two standard errors of 4000 samples."""
    episodes = synthetic_episodes(rng, lengths=(125,) * 20)
    latents = np.zeros((episodes.rows, 1), np.float16)
    windows = PlanWindows(latents, episodes, np.arange(20), action_spec(), context=3)
    offset = windows.draw(rng, 100_000, max_offset=5).offset
    shares = np.bincount(offset, minlength=6)[1:] / len(offset)
    assert shares == pytest.approx([0.259, 0.211, 0.189, 0.174, 0.167], abs=2 * np.sqrt(0.2 * 0.8 / 4000))


SIZES = {
    "training": {"optim.steps", "optim.batch", "optim.precision", "optim.half_weights"},
    "density": {"optim.half_weights"},
    "planner": {"width", "depth", "heads"},
}


@pytest.mark.parametrize("name", TASK_NAMES)
def test_the_compact_scale_changes_sizes_and_steps_alone(name):
    large, small = paper(name), paper(name, "compact")
    for part, allowed in SIZES.items():
        one, other = (_flat(dataclasses.asdict(getattr(preset, part))) for preset in (large, small))
        assert {key for key in one if one[key] != other[key]} <= allowed, part


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in config.items():
        values |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return values
