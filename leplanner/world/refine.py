"""Refines a trained world: its encoder stays as it is, its predictor learns to imagine several blocks from its own imagination.

Training encoder and predictor together spends nearly all its time in the encoder and predicts one block at a time. With
the encoder frozen, frames are those of the latent cache, a step costs a fraction, and errors that compound over a plan
are seen and mended.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import digest_json, read_json
from ..data.cache import LatentCache
from ..data.windows import RolloutBatch
from ..learning import Learner, Metrics, TrainProgress, learn, parse_curriculum, stage_at
from ..precision import keep_freed_memory, pick_device, round_to_half
from .lewm import LeWM
from .world import World, load_world, save_world


@dataclass(frozen=True)
class RefineConfig:
    """Steps of 0: a scale that does not refine."""

    steps: int = 0
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    warmup_share: float | None = 0.05
    clip: float = 1.0
    optimizer: str = "adamw"  # or muon, for the matrices
    horizon: str = "0:1,0.5:2,0.75:5"  # from this share of the steps on, rollouts of so many blocks
    pad_share: float = 0.25  # contexts cut short as at an episode's start
    played_share: float | None = None  # of rollouts: drawn from what a planner played, not from all
    half_weights: bool = False  # end with a predictor whose weights fp16 holds exactly
    seed: int = 0
    precision: str = "auto"
    validate_every: int = 500
    checkpoint_minutes: float = 3.0


class PredictingPart(nn.Module):
    """All of a world but its encoder. Batch normalisation keeps its statistics: a rollout's latents drift from block to
    block, and a frozen world will meet each of them with the same ones."""

    def __init__(self, model: LeWM):
        super().__init__()
        self.predictor, self.action_encoder, self.pred_proj = model.predictor, model.action_encoder, model.pred_proj

    def train(self, mode: bool = True) -> PredictingPart:
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.eval()
        return self


def refine_world(
    world: World,
    cache: LatentCache,
    config: RefineConfig,
    out: Path,
    device: str = "auto",
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
) -> World:
    """Refine to `out`, or continue the run that `out` holds. `world` itself is not changed."""
    run = digest_json([world.digest, dataclasses.asdict(config), cache.data_digest])
    if (out / "config.json").exists():
        if read_json(out / "config.json")["training"].get("run") == run:
            return load_world(out)
        raise ValueError(f"{out} already holds a world that this run did not make. Choose another --out, or delete it.")
    keep_freed_memory()
    refined = World(copy.deepcopy(world.model), world.spec).to(pick_device(device))
    model = refined.model
    part = PredictingPart(model).requires_grad_(True)
    learner = Learner(part, config, refined.device, run, config.optimizer)
    train, held_out = world.plan_windows(cache, config.pad_share)
    stages = parse_curriculum(config.horizon)
    fixed = held_out.draw_rollouts(np.random.default_rng(0), 1024, max(horizon for _, horizon in stages))

    def losses(batch: RolloutBatch, generator: torch.Generator) -> dict[str, Tensor]:
        imagined, wanted = _imagine(model, batch)
        return {"loss": (imagined.float() - wanted).square().mean()}

    metrics = learn(
        learner,
        out,
        draw=lambda rng, step: train.draw_rollouts(
            rng, config.batch, stage_at(stages, step / config.steps), config.played_share
        ),
        losses=losses,
        validate=lambda: rollout_errors(model, fixed),
        counted={"rollouts": config.batch},
        on_progress=on_progress,
        stop_after=stop_after,
    )
    model.eval().requires_grad_(False)
    if learner.done < config.steps:
        return refined
    if config.half_weights:
        round_to_half(part)  # the encoder stays as it is: its latents are in the cache
    history = {"config": dataclasses.asdict(config), "precision": learner.precision, "metrics": metrics, "run": run}
    save_world(refined, out, history, data=cache.data_digest, refined_from=world.digest)
    return refined


@torch.no_grad()
def rollout_errors(model: LeWM, batch: RolloutBatch) -> Metrics:
    """Squared error after each block, as a share of what repeating the last real latent would err."""
    imagined, wanted = _imagine(model, batch)
    copied = torch.from_numpy(batch.context[:, -1:]).to(wanted.device)
    errors = (imagined - wanted).square().mean(dim=(0, 2)) / (copied - wanted).square().mean(dim=(0, 2))
    return {"held_out_error": errors[0].item(), "held_out_rollout": errors.tolist()}


def _imagine(model: LeWM, batch: RolloutBatch) -> tuple[Tensor, Tensor]:
    device = next(model.parameters()).device
    context, past, blocks, wanted = (
        torch.from_numpy(part).to(device) for part in (batch.context, batch.past_blocks, batch.blocks, batch.latents)
    )
    return model.rollout(context, past, blocks), wanted
