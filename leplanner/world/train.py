"""Trains a world: next-latent prediction plus SIGReg, and at compact scale an optional state head beside it.

A step is a function of (weights, optimiser, step number): batch, projections and dropout are drawn from
generators seeded by the step, so a run that was killed continues bit for bit on the CPU.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import atomic_path, digest_json
from ..data.episodes import Episodes, action_statistics, split
from ..data.windows import ActionScale, WorldBatch, WorldWindows
from ..tasks import Task
from .lewm import LeWM, LeWMConfig
from .precision import autocast, keep_freed_memory, pick_device, pick_precision
from .sigreg import sigreg
from .validate import calibrate, probe_rows, validate
from .world import World, WorldSpec, normalise, save_world

Item = TypeVar("Item")


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
    seed: int = 0
    precision: str = "auto"
    validate_every: int = 250
    checkpoint_minutes: float = 3.0


@dataclass(frozen=True)
class TrainProgress:
    step: int
    steps: int
    metrics: dict[str, float]


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


class WorldTrainer:
    """The learning state of a run: one step, and its checkpoint."""

    def __init__(self, spec: WorldSpec, config: WorldTrainConfig, targets: np.ndarray | None, device: torch.device):
        self.spec, self.config, self.targets, self.device = spec, config, targets, device
        self.precision = pick_precision(config.precision, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.state = TrainingState(LeWM(spec.model), targets.shape[1] if targets is not None else 0)
        self.state.to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(
            self.state.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, config.learning_rate, total_steps=config.steps + 1, pct_start=config.warmup_share
        )

    def step(self, batch: WorldBatch, number: int) -> dict[str, float]:
        self.state.train()
        frames = normalise(torch.from_numpy(batch.frames).flatten(0, 1).to(self.device), self.spec)
        windows = frames.contiguous(memory_format=torch.channels_last).unflatten(0, batch.frames.shape[:2])
        blocks = torch.from_numpy(batch.blocks).to(self.device)
        targets = torch.from_numpy(self.targets[batch.rows]).to(self.device) if self.targets is not None else None
        seeds = np.random.SeedSequence([self.config.seed, number]).generate_state(2)
        generator = torch.Generator().manual_seed(int(seeds[0]))  # projections
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(seeds[1]))  # dropout
            with autocast(self.precision, self.device):
                losses = world_loss(self.state, windows, blocks, targets, self.config, generator)
        losses["loss"].backward()
        norm = nn.utils.clip_grad_norm_(self.state.parameters(), self.config.clip)
        metrics = {name: value.item() for name, value in losses.items()} | {"gradient_norm": norm.item()}
        if not np.isfinite(metrics["gradient_norm"]):
            raise FloatingPointError(
                f"The loss or its gradient is not finite at step {number} (loss {metrics['loss']}). The last checkpoint is "
                "intact. Lower --learning-rate, or set --precision fp32."
            )
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        return metrics

    def save(self, path: Path, run: str, step: int, seconds: float) -> None:
        parts = {"state": self.state, "optimizer": self.optimizer, "schedule": self.schedule}
        value = {name: part.state_dict() for name, part in parts.items()}
        with atomic_path(path) as temporary:
            value |= {"run": run, "step": step, "seconds": seconds, "precision": self.precision}
            torch.save(value, temporary)

    def resume(self, path: Path, run: str) -> tuple[int, float]:
        """The step to go on from, and the seconds spent until there."""
        if not path.exists():
            return 0, 0.0
        checkpoint = torch.load(path, weights_only=True, map_location=self.device)
        if checkpoint["run"] != run:
            raise ValueError(
                f"{path} belongs to a run with another configuration or dataset. Choose another --out, or delete the folder "
                "to start anew."
            )
        self.state.load_state_dict(checkpoint["state"], strict=True)
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.schedule.load_state_dict(checkpoint["schedule"])
        self.precision = checkpoint["precision"]  # measured when the run began; measured again, it might differ
        return int(checkpoint["step"]), float(checkpoint["seconds"])


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
    trainer = WorldTrainer(spec, config, targets, pick_device(device))
    run = digest_json([spec.to_json(), dataclasses.asdict(config), episodes.digest])
    checkpoint = out / "checkpoint.pt"
    start, seconds_before = trainer.resume(checkpoint, run)
    if (out / "config.json").exists() and start < config.steps:
        raise ValueError(f"{out} already holds a world that this run did not make. Choose another --out, or delete it.")
    last = min(config.steps, stop_after or config.steps)

    loader = prefetch(
        lambda step: windows.draw(np.random.default_rng([config.seed, step]), config.batch), range(start, last)
    )
    began = saved = time.monotonic()
    waited = busy = timed = 0.0
    metrics = _last_metrics(out)
    for done in range(start + 1, last + 1):
        before = time.perf_counter()
        batch = next(loader)
        ready = time.perf_counter()
        step_metrics = trainer.step(batch, done - 1)
        waited, busy, timed = waited + ready - before, busy + time.perf_counter() - before, timed + 1
        if done % config.validate_every == 0 or done == config.steps:
            calibrate(trainer.state.model, spec, windows)
            metrics = step_metrics | validate(trainer.state.model, spec, validation)
            metrics |= _probe_metrics(trainer.state.model, spec, task, episodes, train, held_out)
            frames = config.batch * (model_config.context + 1) * timed
            metrics |= {"loader_share": waited / busy, "frames_per_s": frames / busy}
            metrics |= {"lr": trainer.schedule.get_last_lr()[0]}
            metrics |= {"minutes": (seconds_before + time.monotonic() - began) / 60}
            _append_metrics(out, done, metrics)
            waited = busy = timed = 0.0
        if done == last or time.monotonic() - saved > 60 * config.checkpoint_minutes:
            saved = time.monotonic()
            trainer.save(checkpoint, run, done, seconds_before + saved - began)
        on_progress(TrainProgress(done, config.steps, metrics or step_metrics))
    world = World(trainer.state.model, spec)
    if last == config.steps and not (out / "config.json").exists():
        history = {"config": dataclasses.asdict(config), "precision": trainer.precision, "metrics": metrics}
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


def prefetch(draw: Callable[[int], Item], numbers: Iterable[int], depth: int = 3) -> Iterator[Item]:
    """`draw(n)` for each number in order, drawn in a thread up to `depth` ahead; its errors surface here."""
    numbers = iter(numbers)
    with ThreadPoolExecutor(max_workers=1) as thread:
        pending = deque(thread.submit(draw, number) for number in itertools.islice(numbers, depth))
        while pending:
            item = pending.popleft().result()
            pending.extend(thread.submit(draw, number) for number in itertools.islice(numbers, 1))
            yield item


def _last_metrics(out: Path) -> dict[str, float]:
    path = out / "metrics.jsonl"
    return json.loads(path.read_text().splitlines()[-1]) if path.exists() else {}


def _append_metrics(out: Path, step: int, metrics: dict[str, float]) -> None:
    """One line a validation. A step that a resumed run reaches again replaces its earlier line."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    kept = [line for line in lines if json.loads(line)["step"] < step]
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join([*kept, json.dumps({"step": step, **metrics})]) + "\n")
