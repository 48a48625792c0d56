"""Fits the behavior density to the data's own blocks, and calibrates its threshold on held-out ones."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..artifacts import digest_json, is_whole
from ..data.cache import LatentCache
from ..data.windows import PlanBatch, PlanWindows, plan_windows
from ..training.loop import OnProgress, TrainState, no_progress, train_loop
from ..training.optim import OptimConfig
from ..training.precision import round_to_half
from ..training.runtime import Runtime, seeded
from ..worlds.base import World
from .mixture import Density, DensityConfig, MixtureDensity, load_density, save_density


@dataclass(frozen=True)
class DensityTrainConfig:
    """How the density is fitted. Without a preset as in the paper: Adam (AdamW without decay), a constant rate, 4000
    steps, no clipping."""

    model: DensityConfig = field(default_factory=DensityConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(steps=4000, batch=256, learning_rate=1e-3, clip=None, precision="fp32")
    )
    quantile: float = 0.95
    """of held-out scores: blocks above it count as unsupported"""


def train_density(
    world: World,
    cache: LatentCache,
    config: DensityTrainConfig,
    out: Path,
    runtime: Runtime | None = None,
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
) -> Density:
    """Fit to `out`, or continue the fit that `out` holds. The weights that explain held-out blocks best are kept."""
    train, held_out = plan_windows(world, cache, behavior_only=True)
    spec, optim = world.spec, config.optim
    with seeded(optim.seed):
        model = MixtureDensity(config.model, spec.latent, spec.context, spec.actions.block_dim)
    run = digest_json([dataclasses.asdict(config), world.digest, cache.data_digest])
    state = TrainState(model, optim, runtime or Runtime(), run)

    def losses(batch: PlanBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"loss": _scores(model, batch).mean()}

    metrics = train_loop(
        state,
        out,
        draw=lambda rng, step: train.draw(rng, optim.batch, max_offset=1),
        losses=losses,
        validate=lambda: {"held_out_score": float(held_out_scores(model, held_out, seed=0, count=1024).mean())},
        counted={"blocks": optim.batch},
        best_by="held_out_score",
        on_progress=on_progress,
        stop_after=stop_after,
    )
    if is_whole(out):
        return load_density(out)
    if optim.half_weights and state.finished:
        round_to_half(model)
    threshold = float(np.quantile(held_out_scores(model, held_out, seed=1), config.quantile))
    density = Density(model, threshold, world.digest)
    if state.finished:
        history = {"config": dataclasses.asdict(config), "metrics": metrics, "held_out_score": state.best_score}
        save_density(density, out, history, world=world.digest, data=cache.data_digest)
    return density


def held_out_scores(model: MixtureDensity, windows: PlanWindows, seed: int, count: int = 8192) -> np.ndarray:
    """Scores of real blocks, in contexts padded as often as in training."""
    with torch.no_grad():
        batch = windows.draw(np.random.default_rng(seed), count, max_offset=1)
        return _scores(model, batch).cpu().numpy()


def _scores(model: MixtureDensity, batch: PlanBatch) -> Tensor:
    device = next(model.parameters()).device
    return model.score(torch.from_numpy(batch.context).to(device), torch.from_numpy(batch.first_block).to(device))
