"""The one training loop: resumable bit for bit, logged as JSONL, stopped before a divergence reaches the disk.

A step is a function of (weights, optimiser, step number): whatever is random in it is drawn from generators
seeded by the step, so a run that was killed continues as if it had not been.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from .artifacts import atomic_path, read_lines
from .muon import Muon
from .precision import autocast, pick_precision

OPTIMIZERS = ("adamw", "muon")
Item = TypeVar("Item")
Metrics = dict[str, Any]  # a line of metrics.jsonl: numbers, or lists of them


class LearnSettings(Protocol):
    """What the loop reads of a training configuration."""

    @property
    def steps(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def warmup_share(self) -> float | None: ...  # None: a constant learning rate
    @property
    def clip(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def precision(self) -> str: ...
    @property
    def validate_every(self) -> int: ...
    @property
    def checkpoint_minutes(self) -> float: ...


@dataclass(frozen=True)
class TrainProgress:
    step: int
    steps: int
    metrics: Metrics


class Learner:
    """What changes while learning: weights, optimiser, schedule, the best weights so far; one step, and the checkpoint."""

    def __init__(
        self, state: nn.Module, config: LearnSettings, device: torch.device, run: str, optimizer: str = "adamw"
    ):
        self.state, self.config, self.device, self.run = state.to(device), config, device, run
        self.precision = pick_precision(config.precision, device)
        self.done, self.seconds = 0, 0.0
        self.best: dict[str, Tensor] = {}
        self.best_score = float("inf")
        self.best_metrics: Metrics = {}
        self.optimizers = _optimizers(state, config, device, optimizer, self.precision)
        self.schedules = [_schedule(optimizer, config) for optimizer in self.optimizers]

    def step(self, losses: Callable[[torch.Generator], Mapping[str, Tensor]]) -> Metrics:
        """One update. `losses` computes the terms, and their sum as "loss"."""
        self.state.train()
        seeds = np.random.SeedSequence([self.config.seed, self.done]).generate_state(2)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(seeds[1]))  # dropout
            with autocast(self.precision, self.device):
                terms = losses(torch.Generator().manual_seed(int(seeds[0])))
        terms["loss"].backward()
        norm = nn.utils.clip_grad_norm_(self.state.parameters(), self.config.clip)
        metrics: Metrics = {name: value.item() for name, value in terms.items()} | {"gradient_norm": norm.item()}
        if not np.isfinite(metrics["gradient_norm"]) or not np.isfinite(metrics["loss"]):
            raise FloatingPointError(
                f"The loss or its gradient is not finite at step {self.done} (loss {metrics['loss']}). The last checkpoint "
                "is intact. Lower --learning-rate, or set --precision fp32."
            )
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        self.done += 1
        return metrics

    def remember_if_best(self, score: float, metrics: Metrics) -> None:
        if score < self.best_score:
            self.best_score, self.best_metrics = score, {"step": self.done, **metrics}
            self.best = {name: tensor.detach().clone() for name, tensor in self.state.state_dict().items()}

    def save(self, path: Path) -> None:
        value: dict[str, Any] = {"state": self.state.state_dict()}
        value |= {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}
        value |= {"schedules": [schedule.state_dict() for schedule in self.schedules]}
        value |= {"run": self.run, "step": self.done, "seconds": self.seconds, "precision": self.precision}
        value |= {"best": self.best, "best_score": self.best_score, "best_metrics": self.best_metrics}
        with atomic_path(path) as temporary:
            torch.save(value, temporary)

    def resume(self, path: Path) -> None:
        if not path.exists():
            return
        checkpoint = torch.load(path, weights_only=True, map_location=self.device)
        if checkpoint["run"] != self.run or "optimizers" not in checkpoint:
            raise ValueError(
                f"{path} belongs to a run with another configuration or dataset, or of an earlier version. Choose another --out, "
                "or delete the folder to start anew."
            )
        self.state.load_state_dict(checkpoint["state"], strict=True)
        for part, saved in zip(self.optimizers, checkpoint["optimizers"], strict=True):
            part.load_state_dict(saved)
        for part, saved in zip(self.schedules, checkpoint["schedules"], strict=True):
            part.load_state_dict(saved)
        self.precision = checkpoint["precision"]  # measured when the run began; measured again, it might differ
        self.best, self.best_score = checkpoint["best"], checkpoint["best_score"]
        self.best_metrics = checkpoint["best_metrics"]
        self.done, self.seconds = int(checkpoint["step"]), float(checkpoint["seconds"])


def _optimizers(
    state: nn.Module, config: LearnSettings, device: torch.device, optimizer: str, precision: str
) -> list[torch.optim.Optimizer]:
    """AdamW for everything; or Muon for the matrices of linear layers, whose steps are as large, so that one learning rate serves both."""
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer must be one of {', '.join(OPTIMIZERS)}; got {optimizer!r}.")
    matrices = [part.weight for part in state.modules() if isinstance(part, nn.Linear)] if optimizer == "muon" else []
    others = [weight for weight in state.parameters() if not any(weight is matrix for matrix in matrices)]
    rates: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    fused = device.type in ("cpu", "cuda")  # one pass over all weights; elsewhere not offered
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, fused=fused, **rates)]
    if matrices:
        found.append(Muon(matrices, dtype=torch.bfloat16 if precision == "bf16" else torch.float32, **rates))
    return found


def _schedule(optimizer: torch.optim.Optimizer, config: LearnSettings) -> torch.optim.lr_scheduler.LRScheduler:
    if config.warmup_share is None:
        return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    steps = config.steps + 1
    warmup = max(config.warmup_share, 2 / steps)  # one step at least: PyTorch divides by them
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, total_steps=steps, pct_start=warmup)


def learn(
    learner: Learner,
    out: Path,
    draw: Callable[[np.random.Generator, int], Item],  # (generator, step) -> a batch
    losses: Callable[[Item, torch.Generator], Mapping[str, Tensor]],
    validate: Callable[[], Metrics],
    counted: Mapping[str, float],  # what one step processes, e.g. {"frames": 256}: metrics get frames_per_s
    best_by: str | None = None,  # a metric of `validate` to keep the best weights by
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
) -> Metrics:
    """Run to the end, or to `stop_after` steps, from wherever `out` stands. Returns the metrics of the weights it ends
    with: the best ones with `best_by`, else the last."""
    config, checkpoint = learner.config, out / "checkpoint.pt"
    learner.resume(checkpoint)
    if (out / "config.json").exists() and learner.done < config.steps:
        raise ValueError(
            f"{out} already holds a model that this run did not make, or its {checkpoint.name} is gone. Choose another --out, or "
            "delete it."
        )
    last = min(config.steps, stop_after or config.steps)
    metrics = (read_metrics(out) or [{}])[-1]
    loader = prefetch(lambda step: draw(np.random.default_rng([config.seed, step]), step), range(learner.done, last))
    mark = saved = time.monotonic()
    waited = busy = timed = 0.0
    while learner.done < last:
        before = time.perf_counter()
        batch = next(loader)
        waited += time.perf_counter() - before
        step_metrics = learner.step(lambda generator, batch=batch: losses(batch, generator))
        busy, timed = busy + time.perf_counter() - before, timed + 1
        if learner.done % config.validate_every == 0 or learner.done == config.steps:
            learner.state.eval()
            metrics = step_metrics | validate()
            if best_by is not None:
                learner.remember_if_best(metrics[best_by], metrics)
            metrics |= {"loader_share": waited / busy, "lr": learner.schedules[0].get_last_lr()[0]}
            metrics |= {f"{name}_per_s": count * timed / busy for name, count in counted.items()}
            metrics |= {"minutes": (learner.seconds + time.monotonic() - mark) / 60}
            _append_metrics(out, learner.done, metrics)
            waited = busy = timed = 0.0
        if learner.done == last or time.monotonic() - saved > 60 * config.checkpoint_minutes:
            saved = time.monotonic()
            learner.seconds, mark = learner.seconds + saved - mark, saved
            learner.save(checkpoint)
        on_progress(TrainProgress(learner.done, config.steps, metrics or step_metrics))
    if best_by is not None and last == config.steps:
        if not learner.best:
            raise FloatingPointError(
                f"No validation of {out} gave a finite {best_by}; train again with a lower --learning-rate."
            )
        learner.state.load_state_dict(learner.best, strict=True)
        metrics = learner.best_metrics
    learner.state.eval()
    return metrics


def parse_curriculum(text: str, most: int | None = None) -> list[tuple[float, int]]:
    """'0:2,0.5:5' -> [(0.0, 2), (0.5, 5)]: from this share of the steps on, so many blocks."""
    try:
        stages = [(float(share), int(blocks)) for share, blocks in (part.split(":") for part in text.split(","))]
    except ValueError:
        stages = []
    shares = [share for share, _ in stages]
    within = all(1 <= blocks <= (most or blocks) for _, blocks in stages)
    if not stages or shares != sorted(shares) or shares[0] != 0 or not within:
        limit = f"in 1..{most}" if most else "at least 1"
        raise ValueError(
            f"The curriculum {text!r} cannot be used: it is a list SHARE:BLOCKS, shares rising from 0, blocks {limit}, such "
            "as 0:2,0.25:3,0.5:5."
        )
    return stages


def stage_at(stages: list[tuple[float, int]], share: float) -> int:
    """The number of blocks when this share of the steps is done."""
    return [blocks for begins, blocks in stages if begins <= share][-1]


def prefetch(draw: Callable[[int], Item], numbers: Iterable[int], depth: int = 3) -> Iterator[Item]:
    """`draw(n)` for each number in order, drawn in a thread up to `depth` ahead; its errors surface here."""
    numbers = iter(numbers)
    with ThreadPoolExecutor(max_workers=1) as thread:
        pending = deque(thread.submit(draw, number) for number in itertools.islice(numbers, depth))
        while pending:
            item = pending.popleft().result()
            pending.extend(thread.submit(draw, number) for number in itertools.islice(numbers, 1))
            yield item


def read_metrics(out: Path) -> list[Metrics]:
    """The lines of a run's metrics.jsonl, one a validation."""
    return read_lines(out / "metrics.jsonl")


def _append_metrics(out: Path, step: int, metrics: Metrics) -> None:
    """A step that a resumed run reaches again replaces its earlier line."""
    out.mkdir(parents=True, exist_ok=True)
    lines = [*(line for line in read_metrics(out) if line["step"] < step), {"step": step, **metrics}]
    with atomic_path(out / "metrics.jsonl") as temporary:
        temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
