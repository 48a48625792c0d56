"""Finetunes a trained world over several blocks: its encoder stays frozen, its predictor
learns from its own imagination.

Training encoder and predictor together spends nearly all its time in the encoder and predicts one block at a time. With
the encoder frozen, frames are those of the latent cache, a step costs a fraction, and errors that compound over a plan
are seen and corrected.
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import digest_json, is_whole, read_json
from ..data.cache import LatentCache
from ..data.windows import RolloutBatch, plan_windows
from ..training.loop import Metrics, OnProgress, TrainState, no_progress, parse_curriculum, stage_at, train_loop
from ..training.optim import OptimConfig
from ..training.precision import keep_freed_memory, round_to_half
from ..training.runtime import Runtime
from .base import World, load_world, save_world

ROLLED_OUT_AT_ONCE = 128  # patch latents of 1,024 rollouts would not fit


@dataclass(frozen=True)
class FinetuneConfig:
    """No steps: worlds are used as they are."""

    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            steps=20_000, batch=256, learning_rate=1e-3, weight_decay=1e-3, warmup=0.05, validate_every=500
        )
    )
    horizon: str = "0:1,0.5:2,0.75:5"
    """blocks of a rollout by share of the steps"""
    pad_prob: float = 0.25
    """probability of a context cut short as at an episode's start"""
    on_policy_prob: float | None = None
    """probability of a rollout from what a planner collected, instead of from all data"""


class Predictor(nn.Module):
    """All of a world's network but its encoder. Batch normalization keeps its statistics: a rollout's latents drift
    from block to block, and a frozen world will meet each of them with the same ones."""

    def __init__(self, model: Any):
        super().__init__()
        frozen = {id(part) for part in model.encoder_parts().values()}
        for name, part in model.named_children():
            if id(part) not in frozen:
                self.add_module(name, part)
        for name, parameter in model.named_parameters(recurse=False):
            self.register_parameter(name, parameter)

    def train(self, mode: bool = True) -> Predictor:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.eval()
        return self


def finetune_world(
    world: World,
    cache: LatentCache,
    config: FinetuneConfig,
    out: Path,
    runtime: Runtime | None = None,
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
) -> World:
    """Finetune to `out`, or continue the run that `out` holds. `world` itself is not changed."""
    run = digest_json([world.digest, dataclasses.asdict(config), cache.data_digest])
    if is_whole(out):
        if read_json(out / "config.json")["training"].get("run") == run:
            return load_world(out)
        raise ValueError(f"{out} already holds a world that this run did not make. Choose another --out, or delete it.")
    if config.optim.steps < 1:
        raise ValueError("This preset does not finetune its worlds. Give --steps to finetune one all the same.")
    keep_freed_memory()
    finetuned = World(copy.deepcopy(world.model), world.spec)
    model = finetuned.model
    part = Predictor(model).requires_grad_(True)
    state = TrainState(part, config.optim, runtime or Runtime(), run)
    finetuned.to(state.device)
    train, held_out = plan_windows(world, cache, config.pad_prob)
    stages = parse_curriculum(config.horizon)
    fixed = held_out.draw_rollouts(np.random.default_rng(0), 1024, max(horizon for _, horizon in stages))

    def losses(batch: RolloutBatch, generator: torch.Generator) -> dict[str, Tensor]:
        imagined, expected = _imagine(model, batch)
        return {"loss": (imagined.float() - expected).square().mean()}

    metrics = train_loop(
        state,
        out,
        draw=lambda rng, step: train.draw_rollouts(
            rng, config.optim.batch, stage_at(stages, step / config.optim.steps), config.on_policy_prob
        ),
        losses=losses,
        validate=lambda: rollout_errors(model, fixed),
        counted={"rollouts": config.optim.batch},
        on_progress=on_progress,
        stop_after=stop_after,
    )
    model.eval().requires_grad_(False)
    if not state.finished:
        return finetuned
    if config.optim.half_weights:
        round_to_half(part)  # the encoder stays as it is: its latents are in the cache
    history = {"config": dataclasses.asdict(config), "precision": state.precision, "metrics": metrics, "run": run}
    save_world(finetuned, out, history, data=cache.data_digest, finetuned_from=world.digest)
    return finetuned


@torch.no_grad()
def rollout_errors(model: Any, batch: RolloutBatch) -> Metrics:
    """Squared error after each block, as a share of what repeating the last real latent would err."""
    missed, moved = torch.zeros(()), torch.zeros(())
    for begin in range(0, len(batch.context), ROLLED_OUT_AT_ONCE):
        part = RolloutBatch(*(values[begin : begin + ROLLED_OUT_AT_ONCE] for values in vars(batch).values()))
        imagined, expected = _imagine(model, part)
        copied = torch.as_tensor(part.context[:, -1:]).to(expected.device)
        missed = missed + (imagined - expected).square().transpose(0, 1).flatten(1).sum(dim=1).cpu()
        moved = moved + (copied - expected).square().transpose(0, 1).flatten(1).sum(dim=1).cpu()
    errors = [float(error) for error in missed / moved]
    return {"held_out_error": errors[0], "held_out_rollout": errors}


def _imagine(model: Any, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
    device = next(model.parameters()).device
    context, past, blocks, expected = (
        torch.as_tensor(part).to(device) for part in (batch.context, batch.past_blocks, batch.blocks, batch.latents)
    )
    return model.rollout(context, past, blocks), expected
