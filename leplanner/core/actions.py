"""Actions in the two units that matter: the environment's own, and the standardized blocks that plans are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


@dataclass(frozen=True)
class ActionSpec:
    """Actions are standardized per raw dimension with the training episodes' statistics, then packed into blocks of
    `block` actions. `center + scale * tanh(u)` is the raw box [low, high] exactly: no
    clipping, no penalty for leaving it."""

    mean: tuple[float, ...]  # (d_a,)
    std: tuple[float, ...]
    low: tuple[float, ...]  # the environment's bounds, per dimension
    high: tuple[float, ...]
    block: int  # f, environment actions in a block

    def __post_init__(self) -> None:
        sizes = {len(self.mean), len(self.std), len(self.low), len(self.high)}
        if len(sizes) != 1 or self.block < 1 or not self.mean:
            raise ValueError(
                "Action mean, std, low and high need one number for each dimension, and a block at least "
                f"one action; got {len(self.mean)}, {len(self.std)}, {len(self.low)}, {len(self.high)} "
                f"numbers and block {self.block}."
            )

    @property
    def dim(self) -> int:
        """d_a"""
        return len(self.mean)

    @property
    def block_dim(self) -> int:
        """A = f * d_a"""
        return self.block * self.dim

    @property
    def center(self) -> Tensor:
        """(A,)"""
        middle = [(high + low) / 2 for low, high in zip(self.low, self.high, strict=True)]
        return torch.tensor(
            [(m - mean) / std for m, mean, std in zip(middle, self.mean, self.std, strict=True)] * self.block
        )

    @property
    def scale(self) -> Tensor:
        """(A,)"""
        half = [(high - low) / 2 for low, high in zip(self.low, self.high, strict=True)]
        return torch.tensor([h / std for h, std in zip(half, self.std, strict=True)] * self.block)

    def standardize(self, actions: Array) -> Array:
        """Raw (..., d_a) -> standardized (..., d_a)."""
        return ((actions - np.array(self.mean)) / np.array(self.std)).astype(np.float32)

    def blocks(self, actions: Array) -> Array:
        """Raw (B, T * f, d_a) -> standardized blocks (B, T, A)."""
        return np.reshape(self.standardize(actions), (len(actions), -1, self.block_dim))

    def zero_block(self) -> Array:
        """A block of raw zero actions, standardized, (A,)."""
        return np.tile(self.standardize(np.zeros(self.dim)), self.block)

    def raw(self, blocks: Tensor) -> Tensor:
        """Standardized actions of one or more steps (..., T * d_a) -> raw environment actions (..., T, d_a) in the box;
        for a planner's blocks, which lie in it, the clamp only takes off rounding."""
        actions = torch.unflatten(blocks, -1, (-1, self.dim))
        std, mean, low, high = (
            torch.tensor(values, dtype=blocks.dtype, device=blocks.device)
            for values in (self.std, self.mean, self.low, self.high)
        )
        return (actions * std + mean).clamp(low, high)

    def raw_actions(self, blocks: Tensor) -> Array:
        """Standardized blocks (B, H, A) -> raw actions (B, H * f, d_a) inside the environment's box."""
        return self.raw(blocks.detach().float().cpu()).flatten(1, 2).numpy()
