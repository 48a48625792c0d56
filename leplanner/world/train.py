"""Trains a world: next-latent prediction plus SIGReg, and at compact scale an optional state head beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import digest_json
from ..data.episodes import Episodes, action_statistics, split
from ..data.windows import ActionScale, WorldBatch, WorldWindows
from ..learning import Learner, TrainProgress, learn
from ..precision import keep_freed_memory, pick_device, round_to_half
from ..tasks import Task
from .lewm import LeWM, LeWMConfig
from .sigreg import sigreg
from .validate import calibrate, probe_rows, validate
from .world import World, WorldSpec, normalise, save_world


@dataclass(frozen=True)
class WorldTrainConfig:
    """Defaults are the paper scale's; compact presets change the sizes and the speed, not the objective."""

    steps: int = 100_000
    batch: int = 128
    learning_rate: float = 5e-5
    weight_decay: float = 1e-3
    warmup_share: float = 0.05
    clip: float = 1.0
    sigreg_weight: float = 0.09
    projections: int = 1024
    grounding: float = 0.0  # weight of a linear state head that is dropped after training; 0 is the paper's objective
    half_weights: bool = False  # end with weights that fp16 holds exactly
    seed: int = 0
    precision: str = "auto"
    validate_every: int = 250
    checkpoint_minutes: float = 3.0


class TrainingState(nn.Module):
    """Everything that learns: the model, and the state head while it helps."""

    def __init__(self, model: LeWM, probe_dim: int):
        super().__init__()
        self.model = model
        self.state_head = nn.Linear(model.config.latent, probe_dim) if probe_dim else None


def world_loss(
    state: TrainingState,
    frames: Tensor,  # (B, N+1, 3, S, S) normalised
    blocks: Tensor,  # (B, N, A)
    targets: Tensor | None,  # (B, N+1, P) standardised physical state
    config: WorldTrainConfig,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    model = state.model
    latents = model.encode(frames.flatten(0, 1)).unflatten(0, frames.shape[:2])
    predicted = model.predict(latents[:, :-1], blocks)
    latents, predicted = latents.float(), predicted.float()
    losses = {
        "prediction": (predicted - latents[:, 1:]).square().mean(),
        "sigreg": sigreg(latents.transpose(0, 1), config.projections, generator),
    }
    total = losses["prediction"] + config.sigreg_weight * losses["sigreg"]
    if state.state_head is not None:
        assert targets is not None
        losses["state"] = (state.state_head(latents) - targets).square().mean()
        total = total + config.grounding * losses["state"]
    return {"loss": total, **losses}


def train_world(
    task: Task,
    episodes: Episodes,
    model_config: LeWMConfig,
    config: WorldTrainConfig,
    out: Path,
    block: int = 5,
    device: str = "auto",
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
) -> World:
    """Train to `out`, or continue the run that `out` holds. `stop_after` ends this call early, resumable."""
    keep_freed_memory()
    train, held_out = split(episodes)
    scale = ActionScale(*action_statistics(episodes, train))
    spec = WorldSpec(
        task=task.name,
        model=model_config,
        block=block,
        action_mean=tuple(scale.mean.tolist()),
        action_std=tuple(scale.std.tolist()),
        action_low=task.action_low,
        action_high=task.action_high,
        visuals=episodes.meta.get("visuals", {}),
        grounded=config.grounding > 0,
    )
    _check_frames(episodes, spec)
    windows = WorldWindows(episodes, train, scale, block, model_config.context)
    validation = WorldWindows(episodes, held_out, scale, block, model_config.context)
    targets = _probe_targets(task, episodes, train) if config.grounding else None
    grounded_on = [task.probe_names] if config.grounding else []
    run = digest_json([spec.to_json(), dataclasses.asdict(config), episodes.digest, *grounded_on])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        state = TrainingState(LeWM(model_config), targets.shape[1] if targets is not None else 0)
    learner = Learner(state.to(memory_format=torch.channels_last), config, pick_device(device), run)

    def losses(batch: WorldBatch, generator: torch.Generator) -> dict[str, Tensor]:
        frames = normalise(torch.from_numpy(batch.frames).flatten(0, 1).to(learner.device), spec)
        frames = frames.contiguous(memory_format=torch.channels_last).unflatten(0, batch.frames.shape[:2])
        blocks = torch.from_numpy(batch.blocks).to(learner.device)
        wanted = torch.from_numpy(targets[batch.rows]).to(learner.device) if targets is not None else None
        return world_loss(state, frames, blocks, wanted, config, generator)

    def look() -> dict[str, float]:
        calibrate(state.model, spec, windows)
        return validate(state.model, spec, validation) | _probe_metrics(
            state.model, spec, task, episodes, train, held_out
        )

    metrics = learn(
        learner,
        out,
        draw=lambda rng, step: windows.draw(rng, config.batch),
        losses=losses,
        validate=look,
        counted={"frames": config.batch * (model_config.context + 1)},
        on_progress=on_progress,
        stop_after=stop_after,
    )
    if config.half_weights and learner.done == config.steps:
        round_to_half(state.model)
    world = World(state.model, spec)
    if learner.done == config.steps and not (out / "config.json").exists():
        history = {"config": dataclasses.asdict(config), "precision": learner.precision, "metrics": metrics}
        save_world(world, out, history, data=episodes.digest)
    return world


def _probe_targets(task: Task, episodes: Episodes, train: np.ndarray) -> np.ndarray:
    if episodes.states is None:
        raise ValueError(
            "Grounding needs the physical state, but the dataset has no 'state' column. Use --grounding 0."
        )
    values = task.probe(episodes.states)
    known = values[episodes.episode_rows(train)]
    return ((values - known.mean(axis=0)) / known.std(axis=0).clip(1e-6)).astype(np.float32)


def _probe_metrics(model: LeWM, spec: WorldSpec, task: Task, episodes: Episodes, train, held_out) -> dict[str, float]:
    """A small linear probe of the physical state, so that one sees during training whether the world is worth waiting for."""
    if episodes.states is None:
        return {}
    rmse = probe_rows(model, spec, task, episodes, train, held_out, max_rows=1500)[0]
    return {f"probe_{name}": float(error) for name, error in zip(task.probe_names, rmse, strict=True)}


def _check_frames(episodes: Episodes, spec: WorldSpec) -> None:
    if tuple(episodes.frames.shape[1:3]) != (spec.frame_size, spec.frame_size):
        raise ValueError(
            f"The dataset's frames are {episodes.frames.shape[1]}x{episodes.frames.shape[2]} px, the world wants "
            f"{spec.frame_size} px. Collect with --size {spec.frame_size}, or choose another scale."
        )
