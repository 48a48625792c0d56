"""Finetuning a world: the encoder stays, the predictor gets better at imagining, runs resume bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import CPU, encode_with, synthetic_episodes

from leplanner.artifacts import read_safetensors
from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.data.episodes import split
from leplanner.data.windows import PlanWindows
from leplanner.pipeline.presets import get_preset
from leplanner.tasks import TASKS
from leplanner.worlds import finetune, load_world, save_world
from leplanner.worlds.finetune import FinetuneConfig, finetune_world, rollout_errors

OPTIM = {"steps": 12, "batch": 16, "learning_rate": 1e-3, "validate_every": 6, "precision": "fp32"}
CONFIG = changed(FinetuneConfig(), horizon="0:1,0.5:3", **OPTIM)


def test_a_rollout_is_what_the_data_did_next(rng):
    episodes = synthetic_episodes(rng)
    latents = np.arange(episodes.rows, dtype=np.float32)[:, None].repeat(4, axis=1)
    actions = ActionSpec((0.0, 0.0), (1.0, 1.0), (-1.0, -1.0), (1.0, 1.0), block=5)
    windows = PlanWindows(latents, episodes, np.arange(3), actions, context=3, pad_prob=0.5)
    batch = windows.draw_rollouts(rng, 300, horizon=2)
    now = batch.context[:, -1, 0]
    assert np.array_equal(batch.latents[:, :, 0], now[:, None] + [5, 10])
    first = episodes.actions[now.astype(int)[:, None] + np.arange(10)].reshape(300, 2, 10)
    assert np.array_equal(batch.blocks, first)
    padded = (batch.past_blocks == 0).all(axis=2)
    assert padded[:, 0].any()
    assert not padded[:, 0].all()
    with pytest.raises(ValueError, match="9 blocks long"):
        windows.draw_rollouts(rng, 10, horizon=9)


def test_only_the_predicting_part_changes_and_a_stopped_run_continues_bit_for_bit(tiny_world, tiny_cache, tmp_path):
    before = {name: tensor.clone() for name, tensor in tiny_world.model.state_dict().items()}
    whole = finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "whole", CPU)
    finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "parts", CPU, stop_after=7)
    assert not (tmp_path / "parts" / "config.json").exists()
    parts = finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "parts", CPU)
    assert parts.digest == whole.digest == load_world(tmp_path / "parts").digest
    assert finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "parts", CPU).digest == whole.digest
    trained = {name for name, tensor in whole.model.state_dict().items() if not tensor.equal(before[name])}
    assert trained
    assert {name.split(".")[0] for name in trained} <= {"predictor", "action_encoder", "pred_proj"}
    assert not any("running" in name for name in trained)  # batch statistics stay
    assert all(tensor.equal(before[name]) for name, tensor in tiny_world.model.state_dict().items())


def test_finetuning_improves_imagination(tiny_world, tworoom, tiny_cache, tmp_path):
    """On the episodes it learns from: 20 are too few to tell anything of others."""
    latents = encode_with(tiny_world)(tworoom.frames)
    windows = PlanWindows(latents, tworoom, split(tworoom)[0], tiny_world.spec.actions, context=3)
    batch = windows.draw_rollouts(np.random.default_rng(5), 256, 4)
    config = changed(CONFIG, steps=150, batch=64, horizon="0:1,0.5:4", validate_every=150)
    finetuned = finetune_world(tiny_world, tiny_cache, config, tmp_path, CPU)
    before, after = (rollout_errors(w.model, batch)["held_out_rollout"] for w in (tiny_world, finetuned))
    assert len(after) == 4
    assert np.mean(after) < 0.5 * np.mean(before)


def test_errors_are_shares_of_what_copying_the_last_latent_errs(tiny_world, tworoom, monkeypatch):
    """Whatever the number of rollouts that are imagined at once."""
    latents = encode_with(tiny_world)(tworoom.frames)
    windows = PlanWindows(latents, tworoom, split(tworoom)[0], tiny_world.spec.actions, context=3)
    batch = windows.draw_rollouts(np.random.default_rng(5), 50, 4)
    imagined = tiny_world.model.rollout(*map(torch.as_tensor, (batch.context, batch.past_blocks, batch.blocks))).numpy()
    missed, moved = (((x - batch.latents) ** 2).mean(axis=(0, 2)) for x in (imagined, batch.context[:, -1:]))
    for at_once in (7, 128):
        monkeypatch.setattr(finetune, "ROLLED_OUT_AT_ONCE", at_once)
        errors = rollout_errors(tiny_world.model, batch)["held_out_rollout"]
        np.testing.assert_allclose(errors, missed / moved, rtol=1e-4)


def test_another_world_or_setting_is_refused(tiny_world, tiny_cache, tmp_path):
    finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path, CPU, stop_after=3)
    with pytest.raises(ValueError, match="another configuration"):
        finetune_world(tiny_world, tiny_cache, changed(CONFIG, batch=8), tmp_path, CPU)
    save_world(tiny_world, tmp_path / "taken")
    with pytest.raises(ValueError, match="did not make"):
        finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "taken", CPU)


def test_half_weights_are_stored_in_half_and_nothing_is_lost(tiny_world, tiny_cache, tmp_path):
    world = finetune_world(tiny_world, tiny_cache, changed(CONFIG, half_weights=True), tmp_path / "half", CPU)
    stored = read_safetensors(tmp_path / "half" / "world.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16, torch.int64}
    assert load_world(tmp_path / "half").digest == world.digest
    finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "full", CPU)
    stored = read_safetensors(tmp_path / "full" / "world.safetensors")
    assert torch.float16 not in {tensor.dtype for tensor in stored.values()}


def test_only_compact_scales_finetune():
    assert get_preset(TASKS["cube"], "tiny").finetune.optim.steps > 0
    assert get_preset(TASKS["cube"], "paper").finetune.optim.steps == 0
