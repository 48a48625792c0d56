"""What a family gets that makes its encoder before the world is trained: frames, an optimizer's settings, a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from ..training.loggers import read_validations
from ..training.loop import OnProgress, no_progress
from ..training.optim import OptimConfig
from ..training.runtime import Runtime

FOLDER = "encoder"  # of its checkpoints and metrics, in the world's folder
DrawFrames = Callable[[np.random.Generator, int], np.ndarray]  # -> uint8 (B, S, S, 3)


@dataclass(frozen=True)
class Pretraining:
    frames: DrawFrames  # of training episodes
    held_out: DrawFrames  # of the others
    normalize: Callable[[Tensor], Tensor]  # uint8 (B, S, S, 3) -> (B, 3, S, S), as the world sees them
    optim: OptimConfig  # the world's; steps, batch and rate are the family's to choose
    folder: Path  # for checkpoints and metrics
    run: str  # names the run, as TrainState wants it
    runtime: Runtime
    on_progress: OnProgress = no_progress


def training_minutes(folder: Path) -> float | None:
    """Of a training, over all calls, as its metrics say, with those of an encoder made before; none where nothing was
    trained, or its metrics are gone."""
    parts = [read_validations(part) for part in (folder, folder / FOLDER) if part.exists()]
    return sum(float(part[-1]["minutes"]) for part in parts) if all(parts) else None
