"""Looks at a world as it is now: calibrated statistics, one-step error, and a linear probe of the physical state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..core.actions import Array
from ..data.episodes import Episodes, read_frames
from ..data.windows import WorldBatch, WorldWindows
from ..tasks import Task
from .base import WorldSpec, normalize

MOST_FEATURES = 4096  # numbers of a latent that a probe reads: a fixed random choice where there are more
STRENGTH = 1e-8  # of a probe's regularization, relative to the mean variance of a feature
MANY = 4  # as many rows a feature, and it only keeps the system solvable
STRENGTHS = (1e-8, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # to choose from where there are fewer


@torch.no_grad()
def calibrate(model: Any, spec: WorldSpec, windows: WorldWindows, objective: Any, batches: int = 16) -> None:
    """Measures the batch-normalization statistics anew, over many batches of the weights as they are now.

    Running averages trail behind weights that move: where features vary little (one dot in two rooms), the
    trailing alone made the frozen model err 50 times more than it did in training.
    """
    model.eval()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over all batches
        norm.train()
    rng, generator = np.random.default_rng(1), torch.Generator().manual_seed(1)
    for _ in range(batches if norms else 0):
        latents, blocks = _encode_batch(model, spec, windows.draw(rng, 64))
        model.losses(latents, blocks, objective, generator, _whole_batch)  # passes through all that is trained
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()


def _whole_batch(batch: Tensor) -> Tensor:
    return batch


def _encode_batch(model: Any, spec: WorldSpec, batch: WorldBatch) -> tuple[Tensor, Tensor]:
    device = next(model.parameters()).device
    frames = normalize(torch.as_tensor(batch.frames).flatten(0, 1).to(device), spec)
    return model.encode(frames).unflatten(0, batch.frames.shape[:2]), torch.as_tensor(batch.blocks).to(device)


@torch.no_grad()
def validate(model: Any, spec: WorldSpec, windows: WorldWindows, count: int = 256) -> dict[str, float]:
    """One-step error on held-out episodes, as a share of what repeating the last latent would err."""
    model.eval()
    rng = np.random.default_rng(0)  # the same windows every time
    n = spec.context
    model_error = copy_error = 0.0
    for _ in range(count // 64):
        latents, blocks = _encode_batch(model, spec, windows.draw(rng, 64))
        predicted = model.rollout(latents[:, :n], blocks[:, : n - 1], blocks[:, n - 1 : n])
        model_error += (predicted[:, 0] - latents[:, n]).square().mean().item()
        copy_error += (latents[:, n - 1] - latents[:, n]).square().mean().item()
    return {"held_out_error": model_error / copy_error, "held_out_mse": model_error / (count // 64)}


@torch.no_grad()
def probe_rows(
    model: Any, spec: WorldSpec, task: Task, episodes: Episodes, train: Array, held_out: Array, max_rows: int
) -> tuple[Array, Array, tuple[int, int]]:
    """A probe of the weights as they are now: see `probe_latents`."""
    model.eval()
    device = next(model.parameters()).device

    def encode(rows: Array) -> Array:
        parts = [
            model.encode(normalize(torch.as_tensor(read_frames(episodes, part)).to(device), spec)).float().cpu().numpy()
            for part in np.split(rows, range(256, len(rows), 256))
        ]
        return np.concatenate(parts)

    return probe_latents(encode, task, episodes, train, held_out, max_rows)


def probe_latents(
    latents_of: Callable[[Array], Array],  # rows (n,) -> (n, *Z)
    task: Task,
    episodes: Episodes,
    train: Array,
    held_out: Array,
    max_rows: int,
) -> tuple[Array, Array, tuple[int, int]]:
    """Ridge regression from latents to the state, fitted on training episodes and measured on held-out ones: the error
    and the spread of each quantity, and how many rows each side had."""
    states = episodes.need_states("A probe reads physical states")
    rng = np.random.default_rng(0)
    sides: list[tuple[Array, Array]] = []
    for chosen in (train, held_out):
        rows = np.sort(rng.permutation(episodes.episode_rows(chosen))[:max_rows])
        latents = np.reshape(latents_of(rows), (len(rows), -1))
        sides.append((latents[:, _read_features(latents.shape[1])], task.probe(states[rows])))
    (x, y), (x_test, y_test) = sides
    strength = STRENGTH if len(x) >= MANY * x.shape[1] else best_strength(x, y)
    rmse = np.sqrt(np.square(ridge(x, y, strength)(x_test) - y_test).mean(axis=0))
    return rmse, y_test.std(axis=0), (len(x), len(x_test))


def _read_features(size: int) -> Array:
    """All of them, but of very large latents."""
    return np.sort(np.random.default_rng(0).permutation(size)[:MOST_FEATURES])


def best_strength(x: Array, y: Array) -> float:
    """Chosen on a fifth of the rows: with about as many features as rows, an unregularized fit is all noise."""
    order, known = np.random.default_rng(0).permutation(len(x)), 4 * len(x) // 5
    fit, check = order[:known], order[known:]

    def error(strength: float) -> float:
        missed = ridge(x[fit], y[fit], strength)(x[check]) - y[check]
        return float((np.square(missed) / y[fit].var(axis=0).clip(1e-12)).mean())

    return min(STRENGTHS, key=error)


def ridge(x: Array, y: Array, strength: float = STRENGTH) -> Callable[[Array], Array]:
    """Least squares with an intercept. `strength`, relative to the mean variance of a feature, only keeps the system
    solvable: there are many more rows than features, and shrinking would hide what directions
    of small variance hold."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    center, level = x.mean(axis=0), y.mean(axis=0)
    inputs: Any = x - center
    outputs: Any = y - level
    rows, features = inputs.shape
    penalty = strength * np.square(inputs).sum() / features
    if rows < features:  # the same weights, from a system of as many equations as rows
        solved = cast(Array, np.linalg.solve(inputs @ inputs.T + penalty * np.eye(rows), outputs))
        weights = cast(Array, inputs.T @ solved)
    else:
        weights = cast(Array, np.linalg.solve(inputs.T @ inputs + penalty * np.eye(features), inputs.T @ outputs))

    def predict(new: Array) -> Array:
        return (new.astype(np.float64) - center) @ weights + level

    return predict
