"""The environment's action box in the standardised units that plans are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..world.world import WorldSpec


@dataclass(frozen=True)
class ActionBox:
    """b = center + scale * tanh(u) is the raw box [low, high] exactly: no clipping, no penalty for leaving it."""

    mean: tuple[float, ...]  # of raw actions in the training episodes, per dimension
    std: tuple[float, ...]
    block: int  # f, environment actions in a block
    low: float = -1.0
    high: float = 1.0

    @staticmethod
    def of(spec: WorldSpec) -> ActionBox:
        return ActionBox(spec.action_mean, spec.action_std, spec.block, spec.action_low, spec.action_high)

    @property
    def block_dim(self) -> int:
        return self.block * len(self.mean)

    @property
    def center(self) -> Tensor:
        """(A,)"""
        middle = (self.high + self.low) / 2
        return torch.tensor([(middle - mean) / std for mean, std in zip(self.mean, self.std, strict=True)] * self.block)

    @property
    def scale(self) -> Tensor:
        """(A,)"""
        half_range = (self.high - self.low) / 2
        return torch.tensor([half_range / std for std in self.std] * self.block)

    def raw(self, blocks: Tensor) -> Tensor:
        """Standardised actions of one or more steps (..., f * d_a) -> raw environment actions (..., f, d_a) in the box; for
        a planner's blocks, which lie in it, the clamp only takes off rounding."""
        actions = blocks.unflatten(-1, (-1, len(self.mean)))
        std, mean = (torch.tensor(values, dtype=blocks.dtype, device=blocks.device) for values in (self.std, self.mean))
        return (actions * std + mean).clamp(self.low, self.high)
