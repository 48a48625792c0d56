"""Trains a world of any family: the family's own objective, and an optional state head beside it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import digest_json, is_whole
from ..core.actions import ActionSpec
from ..data.episodes import Episodes, action_statistics, split
from ..data.windows import WorldBatch, WorldWindows
from ..tasks import Task
from ..training.loop import CHECKPOINT, OnProgress, TrainState, no_progress, train_loop
from ..training.optim import OptimConfig
from ..training.precision import keep_freed_memory, round_to_half
from ..training.runtime import Runtime, seeded
from . import pretraining
from .base import FAMILIES, World, WorldSpec, build_network, normalize, save_world
from .pretraining import Pretraining
from .validate import calibrate, probe_rows, validate


@dataclass(frozen=True)
class WorldTrainConfig:
    """How the world is trained."""

    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            steps=100_000, batch=128, learning_rate=5e-5, weight_decay=1e-3, warmup=0.05
        )
    )
    grounding: float = 0.0
    """weight of a linear head that reads the physical state from latents, dropped after
    training; 0 is the pure objective"""


class TrainedParts(nn.Module):
    """Everything that is optimized: the network, and the state head while it helps."""

    def __init__(self, model: Any, latent_size: int, probe_dim: int):
        super().__init__()
        self.model = model
        self.state_head = nn.Linear(latent_size, probe_dim) if probe_dim else None


def world_loss(
    parts: TrainedParts,
    frames: Tensor,  # (B, T, 3, S, S) normalized
    blocks: Tensor,  # (B, T-1, A)
    targets: Tensor | None,  # (B, T, P) standardized physical state
    config: WorldTrainConfig,
    objective: Any,
    generator: torch.Generator,
    runtime: Runtime,
) -> dict[str, Tensor]:
    model = parts.model
    latents = model.encode(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
    losses = model.losses(latents, blocks, objective, generator, runtime.gather)
    if parts.state_head is None:
        return losses
    assert targets is not None
    state = (parts.state_head(latents.float().flatten(2)) - targets).square().mean()
    return losses | {"loss": losses["loss"] + config.grounding * state, "state": state}


def train_world(
    task: Task,
    episodes: Episodes,
    family: str,
    network: Any,
    objective: Any,
    config: WorldTrainConfig,
    out: Path,
    block: int,
    runtime: Runtime | None = None,
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
) -> World:
    """Train to `out`, or continue the run that `out` holds. `stop_after` ends this call early, resumable."""
    keep_freed_memory()
    runtime = runtime or Runtime()
    train, held_out = split(episodes)
    mean, std = action_statistics(episodes, train)
    actions = ActionSpec(tuple(mean.tolist()), tuple(std.tolist()), task.low, task.high, block)
    visuals = episodes.meta.get("visuals", {})
    kind = FAMILIES.get(family)
    frames = kind.window(network)
    spec = WorldSpec(family, task.name, network, actions, visuals=visuals)
    with seeded(config.optim.seed):
        model = build_network(spec)
        grounded = config.grounding > 0
        if grounded and not _trains_encoder(model):
            raise ValueError(
                f"Grounding {config.grounding:g} was requested, but the encoder of {family} is frozen, and a state "
                "head would change nothing that is kept. Use --grounding 0."
            )
        parts = TrainedParts(model, spec.latent.size, len(task.probe_names) if grounded else 0)
    spec = dataclasses.replace(spec, grounded=grounded)
    episodes = spec.sized(episodes)
    windows = WorldWindows(episodes, train, actions, frames)
    validation = WorldWindows(episodes, held_out, actions, frames)
    targets = _probe_targets(task, episodes, train) if grounded else None
    settings = [dataclasses.asdict(part) for part in (objective, config)]
    run = digest_json([spec.to_json(), *settings, episodes.digest, task.probe_names if config.grounding else None])
    if kind.pretrain is not None and not is_whole(out) and not (out / CHECKPOINT).exists():  # which hold the encoder
        single, unseen = (WorldWindows(episodes, chosen, actions, 1) for chosen in (train, held_out))
        work = Pretraining(
            frames=lambda rng, count: single.draw(rng, count).frames[:, 0],
            held_out=lambda rng, count: unseen.draw(rng, count).frames[:, 0],
            normalize=lambda frames: normalize(frames, spec),
            optim=config.optim,
            folder=out / pretraining.FOLDER,
            run=run,
            runtime=runtime,
            on_progress=on_progress,
        )
        kind.pretrain(model, work)
    parts.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    state = TrainState(parts, config.optim, runtime, run)

    def losses(batch: WorldBatch, generator: torch.Generator) -> dict[str, Tensor]:
        pixels = normalize(torch.as_tensor(batch.frames).flatten(0, 1).to(state.device), spec)
        pixels = torch.unflatten(pixels.contiguous(memory_format=torch.channels_last), 0, batch.frames.shape[:2])
        blocks = torch.as_tensor(batch.blocks).to(state.device)
        known = torch.as_tensor(targets[batch.rows]).to(state.device) if targets is not None else None
        return world_loss(parts, pixels, blocks, known, config, objective, generator, runtime)

    def look() -> dict[str, float]:
        calibrate(model, spec, windows, objective)
        return validate(model, spec, validation) | _probe_metrics(model, spec, task, episodes, train, held_out)

    metrics = train_loop(
        state,
        out,
        draw=lambda rng, step: windows.draw(rng, config.optim.batch),
        losses=losses,
        validate=look,
        counted={"frames": config.optim.batch * frames},
        on_progress=on_progress,
        stop_after=stop_after,
    )
    if config.optim.half_weights and state.finished:
        round_to_half(model)
    world = World(model, spec)
    if state.finished and not is_whole(out):
        history = {"config": dataclasses.asdict(config), "objective": dataclasses.asdict(objective)}
        save_world(world, out, history | {"precision": state.precision, "metrics": metrics}, data=episodes.digest)
    return world


def _trains_encoder(model: Any) -> bool:
    return any(weight.requires_grad for part in model.encoder_parts().values() for weight in part.parameters())


def _probe_targets(task: Task, episodes: Episodes, train: np.ndarray) -> np.ndarray:
    values = task.probe(episodes.need_states("Grounding reads physical states (--grounding 0 does without)"))
    known = values[episodes.episode_rows(train)]
    return ((values - known.mean(axis=0)) / known.std(axis=0).clip(1e-6)).astype(np.float32)


def _probe_metrics(
    model: Any, spec: WorldSpec, task: Task, episodes: Episodes, train: np.ndarray, held_out: np.ndarray
) -> dict[str, float]:
    """A small linear probe of the physical state, so that one sees during training whether the
    world is worth waiting for."""
    if episodes.states is None:
        return {}
    rmse = probe_rows(model, spec, task, episodes, train, held_out, max_rows=1500)[0]
    return {f"probe_{name}": float(error) for name, error in zip(task.probe_names, rmse, strict=True)}
