"""Presets: every task, scale and recipe has one; the values are those that the shipped bundles were made with."""

from __future__ import annotations

import itertools
from dataclasses import replace

import own_families
import pytest

from leplanner.core.config import changed
from leplanner.pipeline.presets import RECIPES, SCALES, TRAININGS, get_preset
from leplanner.tasks import TASKS
from leplanner.worlds import FAMILIES, register_world

NAMES = tuple(TASKS)


@pytest.mark.parametrize(("scale", "recipe"), list(itertools.product(SCALES, RECIPES)))
def test_every_task_has_every_preset(scale, recipe):
    for name in TASKS:
        preset = get_preset(TASKS[name], scale, recipe)
        assert (preset.scale, preset.recipe, preset.family) == (scale, recipe, "lewm")
        assert preset.network.block_dim == preset.block * TASKS[name].action_dim
        assert preset.network.frame_size == preset.collect.size


@pytest.mark.parametrize(("name", "scale"), list(itertools.product(NAMES, SCALES)))
def test_the_paper_recipe_is_the_paper_and_nothing_else(name, scale):
    preset = get_preset(TASKS[name], scale, "paper")
    training = preset.training
    assert preset.world.grounding == 0
    assert preset.finetune.optim.steps == 0
    assert preset.on_policy.rounds == 0
    names = ("tracking_weight", "smooth_weight", "perturb_prob", "recovery_prob", "far_goal_prob", "init_average")
    assert {option: getattr(training, option) for option in names} == dict.fromkeys(names, 0.0)
    assert (training.objective, training.hold_weight, training.support_weight) == ("arrival-hold", 0.5, 0.01)
    assert training.curriculum == "0:2,0.25:3,0.5:5"
    assert training.optim.optimizer == "adamw"
    assert preset.on_policy_training == training
    assert preset.on_policy_finetune == preset.finetune


def test_a_scale_has_its_own_recipe_unless_one_is_named():
    recipes = {scale: get_preset(TASKS["pusht"], scale).recipe for scale in SCALES}
    assert recipes == {"paper": "paper", "compact": "best", "tiny": "best"}


def test_the_papers_scale_is_as_published():
    preset = get_preset(TASKS["pusht"], "paper")
    assert (preset.collect.size, preset.collect.native_visuals) == (224, True)
    assert (preset.training.optim.steps, preset.training.optim.batch) == (20_000, 128)
    assert preset.training.optim.learning_rate == 3e-4
    other = get_preset(TASKS["tworoom"], "paper").training.optim
    assert (other.batch, other.learning_rate) == (32, 1e-4)


def test_compact_tworoom():
    preset = get_preset(TASKS["tworoom"])
    assert (preset.collect.episodes, preset.collect.steps, preset.collect.size) == (3000, 100, 64)
    assert preset.network.encoder.extra_convolutions == 0
    assert (preset.network.latent, preset.network.depth, preset.network.projector) == (128, 3, 512)
    assert (preset.planner.width, preset.planner.depth, preset.planner.heads) == (128, 2, 4)
    world, finetune, training = preset.world, preset.finetune, preset.training
    assert (world.optim.steps, world.optim.batch, world.optim.learning_rate) == (3200, 64, 5e-4)
    assert (world.grounding, preset.objective.projections) == (0.0, 256)
    assert (finetune.optim.steps, finetune.optim.batch, finetune.horizon) == (8000, 128, "0:1,0.6:2,0.85:5")
    assert finetune.optim.optimizer == "adamw"
    assert (training.optim.steps, training.optim.batch, training.optim.learning_rate) == (4500, 64, 3e-4)
    assert (training.optim.optimizer, training.optim.precision) == ("adamw", "fp32")
    weights = (training.tracking_weight, training.smooth_weight, training.support_weight, training.hold_weight)
    assert weights == (0.1, 3e-3, 0.01, 0.5)
    assert (training.perturb_prob, training.far_goal_prob, training.recovery_prob) == (0.25, 0.4, 0.0)
    assert preset.on_policy.rounds == 0


def test_compact_pusht():
    preset = get_preset(TASKS["pusht"])
    assert (preset.collect.episodes, preset.collect.size) == (12_000, 64)
    assert (preset.planner.width, preset.planner.heads) == (256, 8)
    world, finetune, training = preset.world, preset.finetune, preset.training
    assert (world.optim.steps, world.optim.learning_rate, world.grounding) == (2400, 5e-4, 1.0)
    assert (finetune.optim.steps, finetune.optim.batch, finetune.optim.learning_rate) == (5000, 256, 2e-3)
    assert (finetune.optim.optimizer, finetune.horizon) == ("muon", "0:1,0.3:2,0.6:5")
    assert (training.optim.steps, training.optim.batch, training.optim.learning_rate) == (4500, 64, 1e-3)
    assert (training.optim.optimizer, training.optim.precision) == ("muon", "auto")
    assert training.curriculum == "0:2,0.1:3,0.25:5"
    assert (training.tracking_weight, training.smooth_weight, training.support_weight) == (0.3, 3e-3, 0.01)
    assert (training.perturb_prob, training.far_goal_prob) == (0.25, 0.4)
    assert preset.decoder.optim.steps == 14_000
    assert (preset.on_policy.rounds, preset.on_policy.episodes) == (1, 9000)
    on_policy = preset.on_policy_training
    assert (on_policy.optim.steps, on_policy.optim.learning_rate) == (4500, pytest.approx(4e-4))
    assert (on_policy.tracking_weight, on_policy.recovery_prob, on_policy.init_average) == (
        pytest.approx(0.1),
        0.15,
        0.5,
    )
    assert on_policy.curriculum == "0:5"
    later = preset.on_policy_finetune
    assert (later.optim.steps, later.optim.learning_rate) == (3000, pytest.approx(1.2e-3))
    assert (later.horizon, later.on_policy_prob) == ("0:2,0.3:5", 0.5)
    assert (preset.on_policy_collect.episodes, preset.on_policy_collect.steps) == (9000, 50)


def test_compact_cube():
    preset = get_preset(TASKS["cube"])
    assert (preset.collect.episodes, preset.collect.size, preset.network.encoder.frame_size) == (3000, 96, 96)
    assert (preset.planner.width, preset.planner.heads) == (256, 8)
    world, finetune, training = preset.world, preset.finetune, preset.training
    assert (world.optim.steps, world.grounding) == (2000, 1.0)
    assert (finetune.optim.steps, finetune.optim.batch, finetune.optim.learning_rate) == (5000, 256, 2e-3)
    assert (finetune.optim.optimizer, finetune.horizon) == ("muon", "0:1,0.3:2,0.6:5")
    assert (training.optim.steps, training.optim.learning_rate, training.optim.optimizer) == (5500, 1e-3, "muon")
    assert (training.tracking_weight, training.smooth_weight, training.support_weight) == (0.3, 3e-3, 0.3)
    assert (training.perturb_prob, training.far_goal_prob) == (0.25, 0.3)
    assert preset.on_policy.rounds == 0


def test_a_task_without_presets_of_its_own_gets_the_generic_ones():
    plain = replace(TASKS["pusht"], name="plain", scales={}, recipes={}, networks={})
    preset = get_preset(plain)
    assert (preset.collect.episodes, preset.collect.size, preset.planner.width) == (3000, 64, 128)
    assert (preset.world.optim.steps, preset.world.grounding, preset.training.optim.steps) == (2400, 0.0, 3000)
    assert (preset.training.tracking_weight, preset.training.smooth_weight) == (0.0, 3e-3)
    assert preset.on_policy.rounds == 0
    assert preset.network.encoder.extra_convolutions > 0


def test_a_task_changes_sizes_wherever_a_family_has_them(forgets_registrations):
    """TwoRoom's one dot needs no extra convolution, whoever's keypoint encoder it is; other networks stay untouched."""
    register_world(own_families.TOKENS)
    unchanged, adjusted = set(), set()
    for family in FAMILIES:
        general = get_preset(replace(TASKS["tworoom"], networks={}), family=family).network
        network = get_preset(TASKS["tworoom"], family=family).network
        if network == general:
            unchanged.add(family)
        else:
            assert network == changed(general, extra_convolutions=0)
            adjusted.add(family)
    assert adjusted >= {"lewm", "pldm"}
    assert own_families.TOKENS.name in unchanged


@pytest.mark.parametrize("scale", ["compact", "tiny"])
def test_a_size_that_no_family_has_is_refused(scale):
    wider = replace(TASKS["tworoom"], networks={scale: {"latent": 48}})
    assert get_preset(wider, scale).network.latent == 48
    misspelled = replace(TASKS["tworoom"], networks={scale: {"extra_convolution": 0}})
    with pytest.raises(ValueError, match=r"'extra_convolution'.*spelling"):
        get_preset(misspelled, scale)


def test_effort_is_a_share_of_all_training_steps_and_of_nothing_else():
    whole, half = get_preset(TASKS["pusht"]), get_preset(TASKS["pusht"], effort=0.5)
    for name in TRAININGS:
        assert getattr(half, name).optim.steps == round(getattr(whole, name).optim.steps / 2)
        again = changed(getattr(half, name), steps=getattr(whole, name).optim.steps)
        assert again == getattr(whole, name)
    assert half.on_policy == replace(whole.on_policy, finetune_steps=1500, steps=2250)
    assert (half.collect, half.network, half.planner, half.effort) == (whole.collect, whole.network, whole.planner, 0.5)
    assert get_preset(TASKS["pusht"], "compact", "paper", effort=0.5).finetune.optim.steps == 0


@pytest.mark.parametrize("effort", [0.0, -1.0, float("nan"), float("inf")])
def test_effort_is_above_zero(effort):
    with pytest.raises(ValueError, match="above 0"):
        get_preset(TASKS["pusht"], effort=effort)
