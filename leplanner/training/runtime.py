"""Where a training run computes: the device, and its place among several processes. One device for now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .precision import pick_device


@dataclass(frozen=True)
class Runtime:
    device: str = "auto"  # auto, cpu, cuda, mps
    loggers: tuple[str, ...] = ()  # besides metrics.jsonl: tensorboard, wandb, trackio

    @property
    def torch_device(self) -> torch.device:
        return pick_device(self.device)

    @property
    def rank(self) -> int:
        return 0

    @property
    def ranks(self) -> int:
        return 1

    @property
    def writes(self) -> bool:
        """Whether this process writes checkpoints, metrics and artifacts."""
        return self.rank == 0

    def gather(self, batch: Tensor) -> Tensor:
        """The whole batch (dimension 0) of which every process has a part, with gradients to its own."""
        return batch

    def reduce(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The mean over all processes."""
        return dict(metrics)


@contextlib.contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, torch's generators start from this seed; afterwards they are as before."""
    with torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
