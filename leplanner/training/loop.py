"""The one training loop: resumable bit for bit, every step logged, stopped before a divergence reaches the disk.

A step is a function of (weights, optimizer, step number): whatever is random in it is drawn from generators
seeded by the step, so a run that was killed continues as if it had not been.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import atomic_path, folder_lock, is_whole
from .loggers import Loggers, RunInfo, read_validations
from .optim import OptimConfig, make_optimizers, make_schedule
from .precision import autocast, pick_precision
from .runtime import Runtime, seeded

Item = TypeVar("Item")
Metrics = dict[str, Any]  # numbers, or lists of them, by name
CHECKPOINT = "checkpoint.pt"  # in a run's folder


@dataclass(frozen=True)
class TrainProgress:
    step: int
    steps: int
    metrics: Metrics  # of the last validation, and of this step


OnProgress = Callable[[TrainProgress], None]


def no_progress(progress: TrainProgress) -> None:
    """For callers that do not look."""


class TrainState:
    """What changes in training: weights, optimizers, schedules, the best weights so far; one
    step, and the checkpoint."""

    def __init__(self, module: nn.Module, config: OptimConfig, runtime: Runtime, run: str):
        self.device = runtime.torch_device
        self.module, self.config, self.runtime, self.run = module.to(self.device), config, runtime, run
        self.precision = pick_precision(config.precision, self.device)
        self.done, self.seconds = 0, 0.0
        self.best: dict[str, Tensor] = {}
        self.best_score = float("inf")
        self.best_metrics: Metrics = {}
        self.optimizers = make_optimizers(module, config, self.device, self.precision)
        self.schedules = [make_schedule(optimizer, config) for optimizer in self.optimizers]

    @property
    def finished(self) -> bool:
        return self.done == self.config.steps

    def step(self, losses: Callable[[torch.Generator], Mapping[str, Tensor]]) -> Metrics:
        """One update. `losses` computes the terms, and their sum as "loss"."""
        self.module.train()
        seeds = np.random.SeedSequence([self.config.seed, self.done]).generate_state(2)
        with seeded(int(seeds[1]), self.device), autocast(self.precision, self.device):  # the seed is dropout's
            terms = losses(torch.Generator().manual_seed(int(seeds[0])))
        terms["loss"].backward()
        most = float("inf") if self.config.clip is None else self.config.clip
        norm = nn.utils.clip_grad_norm_(self.module.parameters(), most)
        metrics: Metrics = {name: value.item() for name, value in terms.items()} | {"gradient_norm": norm.item()}
        if not np.isfinite(metrics["gradient_norm"]) or not np.isfinite(metrics["loss"]):
            raise FloatingPointError(
                f"The loss or its gradient is not finite at step {self.done} (loss {metrics['loss']}). The last "
                "checkpoint is intact. Lower --learning-rate, or set --precision fp32."
            )
        metrics["lr"] = self.schedules[0].get_last_lr()[0]
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
        self.done += 1
        return self.runtime.reduce(metrics)

    def remember_if_best(self, score: float, metrics: Metrics) -> None:
        if score < self.best_score:
            self.best_score, self.best_metrics = score, {"step": self.done, **metrics}
            self.best = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}

    def save(self, path: Path) -> None:
        value: dict[str, Any] = {"state": self.module.state_dict()}
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
                f"{path} belongs to a run with another configuration or dataset, or of an earlier version. Choose "
                "another --out, or delete the folder to start anew."
            )
        self.module.load_state_dict(checkpoint["state"], strict=True)
        for part, saved in zip(self.optimizers, checkpoint["optimizers"], strict=True):
            part.load_state_dict(saved)
        for part, saved in zip(self.schedules, checkpoint["schedules"], strict=True):
            part.load_state_dict(saved)
        self.precision = checkpoint["precision"]  # measured when the run began; measured again, it might differ
        self.best, self.best_score = checkpoint["best"], checkpoint["best_score"]
        self.best_metrics = checkpoint["best_metrics"]
        self.done, self.seconds = int(checkpoint["step"]), float(checkpoint["seconds"])


def train_loop(
    state: TrainState,
    out: Path,
    draw: Callable[[np.random.Generator, int], Item],  # (generator, step) -> a batch
    losses: Callable[[Item, torch.Generator], Mapping[str, Tensor]],
    validate: Callable[[], Metrics],
    counted: Mapping[str, float],  # what one step processes, e.g. {"frames": 256}: metrics get frames_per_s
    best_by: str | None = None,  # a metric of `validate` to keep the best weights by
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
) -> Metrics:
    """Run to the end, or to `stop_after` steps, from wherever `out` stands. Returns the metrics of the weights it ends
    with: the best ones with `best_by`, else the last."""
    config, checkpoint = state.config, out / CHECKPOINT
    with folder_lock(out):
        state.resume(checkpoint)
        if is_whole(out) and not state.finished:
            raise ValueError(
                f"{out} already holds a model that this run did not make, or its {checkpoint.name} is gone. Choose "
                "another --out, or delete it."
            )
        last = min(config.steps, stop_after or config.steps)
        metrics: Metrics = (read_validations(out) or [{}])[-1]
        if state.done < last:
            info = RunInfo(out, state.run, state.done, dataclasses.asdict(config))
            loggers = Loggers(info, state.runtime.loggers)
            try:
                metrics = _run(state, last, checkpoint, loggers, draw, losses, validate, counted, best_by, on_progress)
            finally:
                loggers.close()
        if best_by is not None and last == config.steps:
            if not state.best:
                raise FloatingPointError(
                    f"No validation of {out} gave a finite {best_by}; train again with a lower --learning-rate."
                )
            state.module.load_state_dict(state.best, strict=True)
            metrics = state.best_metrics
        state.module.eval()
        return metrics


def _run(
    state: TrainState,
    last: int,
    checkpoint: Path,
    loggers: Loggers,
    draw: Callable[[np.random.Generator, int], Any],
    losses: Callable[[Any, torch.Generator], Mapping[str, Tensor]],
    validate: Callable[[], Metrics],
    counted: Mapping[str, float],
    best_by: str | None,
    on_progress: OnProgress,
) -> Metrics:
    """Steps until `last`; the metrics of the last validation."""
    config = state.config
    loader = prefetch(lambda step: draw(np.random.default_rng([config.seed, step]), step), range(state.done, last))
    mark = saved = time.monotonic()
    waited = busy = timed = 0.0
    metrics: Metrics = {}
    while state.done < last:
        before = time.perf_counter()
        batch = next(loader)
        waited += time.perf_counter() - before
        logged = state.step(lambda generator, batch=batch: losses(batch, generator))
        busy, timed = busy + time.perf_counter() - before, timed + 1
        if state.done % config.validate_every == 0 or state.finished:
            state.module.eval()
            metrics = logged | validate()
            if best_by is not None:
                state.remember_if_best(metrics[best_by], metrics)
            metrics |= {"loader_share": waited / busy}
            metrics |= {f"{name}_per_s": count * timed / busy for name, count in counted.items()}
            metrics |= {"minutes": (state.seconds + time.monotonic() - mark) / 60}
            logged = metrics
            waited = busy = timed = 0.0
        if state.runtime.writes:
            loggers.log(state.done, logged)
        if state.done == last or time.monotonic() - saved > 60 * config.checkpoint_minutes:
            saved = time.monotonic()
            state.seconds, mark = state.seconds + saved - mark, saved
            if state.runtime.writes:
                state.save(checkpoint)
        on_progress(TrainProgress(state.done, config.steps, metrics | logged))
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
            f"The curriculum {text!r} cannot be used: it is a list SHARE:BLOCKS, shares rising from 0, blocks "
            f"{limit}, such as 0:2,0.25:3,0.5:5."
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
