"""Refining a world: the encoder stays, the predictor gets better at imagining, runs resume bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from leplanner.worlds.world import load_world, read_safetensors, save_world
from support import synthetic_episodes

from leplanner.data.episodes import split
from leplanner.data.windows import ActionScale, PlanWindows
from leplanner.pipeline.presets import tiny
from leplanner.worlds.finetune import FinetuneConfig, finetune_world, rollout_errors

CONFIG = FinetuneConfig(steps=12, batch=16, learning_rate=1e-3, horizon="0:1,0.5:3", validate_every=6, precision="fp32")


def test_a_rollout_is_what_the_data_did_next(rng):
    episodes = synthetic_episodes(rng)
    latents = np.arange(episodes.rows, dtype=np.float32)[:, None].repeat(4, axis=1)
    scale = ActionScale(np.zeros(2), np.ones(2))
    windows = PlanWindows(latents, episodes, np.arange(3), scale, 5, 3, pad_prob=0.5)
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


def test_only_the_predicting_part_changes_and_a_stopped_run_continues_bit_for_bit(
    tiny_world, tworoom, tmp_path, tiny_cache
):
    before = {name: tensor.clone() for name, tensor in tiny_world.model.state_dict().items()}
    whole = finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "whole", device="cpu")
    finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "parts", device="cpu", stop_after=7)
    assert not (tmp_path / "parts" / "config.json").exists()
    parts = finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "parts", device="cpu")
    assert parts.digest == whole.digest == load_world(tmp_path / "parts").digest
    assert finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "parts", device="cpu").digest == whole.digest
    changed = {name for name, tensor in whole.model.state_dict().items() if not tensor.equal(before[name])}
    assert changed
    assert {name.split(".")[0] for name in changed} <= {"predictor", "action_encoder", "pred_proj"}
    assert not any("running" in name for name in changed)  # batch statistics stay
    assert all(tensor.equal(before[name]) for name, tensor in tiny_world.model.state_dict().items())


def test_refining_improves_imagination(tiny_world, tworoom, tmp_path, tiny_cache):
    """On the episodes it learns from: 20 are too few to tell anything of others."""
    latents = tiny_world.latents(tworoom.frames)
    windows = PlanWindows(latents, tworoom, split(tworoom)[0], tiny_world.spec.action_scale, 5, 3)
    batch = windows.draw_rollouts(np.random.default_rng(5), 256, 4)
    config = replace(CONFIG, steps=150, batch=64, horizon="0:1,0.5:4", validate_every=150)
    refined = finetune_world(tiny_world, tiny_cache, config, tmp_path, device="cpu")
    before, after = (rollout_errors(w.model, batch)["held_out_rollout"] for w in (tiny_world, refined))
    assert len(after) == 4
    assert np.mean(after) < 0.5 * np.mean(before)


def test_another_world_or_setting_is_refused(tiny_world, tworoom, tmp_path, tiny_cache):
    finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path, device="cpu", stop_after=3)
    with pytest.raises(ValueError, match="another configuration"):
        finetune_world(tiny_world, tiny_cache, replace(CONFIG, batch=8), tmp_path, device="cpu")
    save_world(tiny_world, tmp_path / "taken")
    with pytest.raises(ValueError, match="did not make"):
        finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "taken", device="cpu")


def test_half_weights_are_stored_in_half_and_nothing_is_lost(tiny_world, tworoom, tmp_path, tiny_cache):
    world = finetune_world(tiny_world, tiny_cache, replace(CONFIG, half_weights=True), tmp_path / "half", device="cpu")
    stored = read_safetensors(tmp_path / "half" / "world.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16, torch.int64}
    assert load_world(tmp_path / "half").digest == world.digest
    finetune_world(tiny_world, tiny_cache, CONFIG, tmp_path / "full", device="cpu")
    stored = read_safetensors(tmp_path / "full" / "world.safetensors")
    assert torch.float16 not in {tensor.dtype for tensor in stored.values()}


def test_only_compact_scales_refine():
    assert tiny("cube").refine.steps > 0
    from leplanner.pipeline.presets import paper

    assert paper("cube").refine.steps == 0
