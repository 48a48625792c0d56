"""The small networks that the learned baselines share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Three hidden layers with layer normalization, as in OGBench."""

    def __init__(self, inputs: int, outputs: int, width: int = 512):
        super().__init__()
        layers: list[nn.Module] = []
        for size in (inputs, width, width):
            layers += [nn.Linear(size, width), nn.LayerNorm(width), nn.GELU()]
        self.net = nn.Sequential(*layers, nn.Linear(width, outputs))

    def forward(self, *parts: Tensor) -> Tensor:
        return self.net(torch.cat(parts, dim=-1))


def expectile(error: Tensor, share: float) -> Tensor:
    """Squared error that weighs underestimates by `share` and overestimates by the rest."""
    return torch.where(error > 0, share, 1 - share) * error.square()


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, rate: float = 0.005) -> None:
    """A target network creeps after its source."""
    for theirs, ours in zip(target.parameters(), source.parameters(), strict=True):
        theirs.lerp_(ours, rate)
