"""Fits the behaviour density to the data's own blocks, and calibrates its threshold on held-out ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..artifacts import digest_json
from ..data.cache import LatentCache
from ..data.windows import PlanBatch, PlanWindows
from ..learning import Learner, TrainProgress, learn
from ..precision import pick_device, round_to_half
from ..world.world import World
from .mixture import Density, DensityConfig, MixtureDensity, load_density, save_density


@dataclass(frozen=True)
class DensityTrainConfig:
    """Defaults are the paper's: Adam (no weight decay), a constant rate, 4000 steps. The clip only stops accidents."""

    components: int = 16
    width: int = 256
    quantile: float = 0.95  # of held-out scores: blocks above it count as unsupported
    steps: int = 4000
    batch: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    warmup_share: float | None = None
    clip: float = 100.0
    half_weights: bool = False  # end with weights that fp16 holds exactly
    seed: int = 0
    precision: str = "fp32"
    validate_every: int = 250
    checkpoint_minutes: float = 3.0


def train_density(
    world: World,
    cache: LatentCache,
    config: DensityTrainConfig,
    out: Path,
    device: str = "auto",
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
) -> Density:
    """Fit to `out`, or continue the fit that `out` holds. The weights that explain held-out blocks best are kept."""
    train, held_out = world.plan_windows(cache, behaviour_only=True)
    shape = DensityConfig(
        latent=world.spec.model.latent,
        block_dim=world.spec.model.block_dim,
        context=world.spec.model.context,
        components=config.components,
        width=config.width,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = MixtureDensity(shape)
    run = digest_json([dataclasses.asdict(shape), dataclasses.asdict(config), world.digest, cache.data_digest])
    learner = Learner(model, config, pick_device(device), run)

    def losses(batch: PlanBatch, generator: torch.Generator) -> dict[str, Tensor]:
        return {"loss": _scores(model, batch).mean()}

    metrics = learn(
        learner,
        out,
        draw=lambda rng, step: train.draw(rng, config.batch, max_offset=1),
        losses=losses,
        validate=lambda: {"held_out_score": float(held_out_scores(model, held_out, seed=0, count=1024).mean())},
        counted={"blocks": config.batch},
        best_by="held_out_score",
        on_progress=on_progress,
        stop_after=stop_after,
    )
    if (out / "config.json").exists():
        return load_density(out)
    if config.half_weights and learner.done == config.steps:
        round_to_half(model)
    threshold = float(np.quantile(held_out_scores(model, held_out, seed=1), config.quantile))
    density = Density(model, threshold, world.digest)
    if learner.done == config.steps:
        history = {"config": dataclasses.asdict(config), "metrics": metrics, "held_out_score": learner.best_score}
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
