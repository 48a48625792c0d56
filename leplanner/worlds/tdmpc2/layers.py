"""What TD-MPC2's networks are made of: normalized layers, values as two-hot classes, and a squashed Gaussian."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LOG_STD_LOW, LOG_STD_HIGH = -10.0, 2.0  # of the policy
LEAST_SPREAD = 1.0  # of values, as the authors have it: new critics' values are all alike, which must not be magnified


class SimNorm(nn.Module):
    """Softmax within groups of numbers: a latent is a row of points on simplices, and cannot grow."""

    def __init__(self, group: int):
        super().__init__()
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, -1, (-1, self.group)).softmax(dim=-1).flatten(-2)


def mlp(inputs: int, hidden: int, outputs: int, normalize: nn.Module | None = None, dropout: float = 0.0) -> nn.Module:
    """Two hidden layers, each Linear, LayerNorm, Mish. The last layer is linear, or has a LayerNorm and `normalize`."""
    layers: list[nn.Module] = []
    for number, size in enumerate((inputs, hidden)):
        layers.append(nn.Linear(size, hidden))
        if dropout and number == 0:
            layers.append(nn.Dropout(dropout))
        layers += [nn.LayerNorm(hidden), nn.Mish()]
    layers.append(nn.Linear(hidden, outputs))
    if normalize is not None:
        layers += [nn.LayerNorm(outputs), normalize]
    return nn.Sequential(*layers)


def convolutions(
    channels: int, kernels: Sequence[int], strides: Sequence[int], frame_size: int
) -> tuple[nn.Module, int]:
    """Convolutions without padding, a Mish after each, and how many numbers they make of a frame."""
    side, layers = frame_size, list[nn.Module]()
    for number, (kernel, stride) in enumerate(zip(kernels, strides, strict=True)):
        side = (side - kernel) // stride + 1 if side >= kernel else 0
        layers += [nn.Conv2d(channels if number else 3, channels, kernel, stride), nn.Mish()]
    if side < 1:
        raise ValueError(
            f"Frames of {frame_size} px are too small for convolutions with kernels {tuple(kernels)} and strides "
            f"{tuple(strides)}: nothing is left after them. Use larger frames or fewer convolutions."
        )
    return nn.Sequential(*layers, nn.Flatten()), channels * side * side


def initialize(module: nn.Module) -> None:
    """The authors' weights of linear layers."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=0.02)
            nn.init.zeros_(part.bias)


def last_linear(module: nn.Module) -> nn.Linear:
    return [part for part in module.modules() if isinstance(part, nn.Linear)][-1]


@dataclass(frozen=True)
class TwoHot:
    """Numbers as classes: a number shares its weight between the two nearest of `bins` points, spread evenly over its
    symmetric logarithm. A network learns it by cross-entropy, whatever its magnitude."""

    bins: int = 101
    low: float = -10.0
    high: float = 10.0

    def encode(self, x: Tensor) -> Tensor:
        """(...) -> (..., bins)"""
        place = (symlog(x).clamp(self.low, self.high) - self.low) / (self.high - self.low) * (self.bins - 1)
        points = torch.arange(self.bins, dtype=x.dtype, device=x.device)
        return (1 - (place.unsqueeze(-1) - points).abs()).clamp(min=0)

    def decode(self, logits: Tensor) -> Tensor:
        """(..., bins) -> (...)"""
        points = torch.linspace(self.low, self.high, self.bins, dtype=logits.dtype, device=logits.device)
        return symexp((logits.softmax(dim=-1) * points).sum(dim=-1))

    def cross_entropy(self, logits: Tensor, x: Tensor) -> Tensor:
        """(..., bins), (...) -> (...)"""
        return -(self.encode(x) * F.log_softmax(logits, dim=-1)).sum(dim=-1)


def symlog(x: Tensor) -> Tensor:
    return x.sign() * x.abs().log1p()


def symexp(x: Tensor) -> Tensor:
    return x.sign() * x.abs().expm1()


class RunningScale(nn.Module):
    """How far values spread, from their 5th to their 95th percentile, as a running average: it makes the policy's loss
    independent of their magnitude. A buffer, so that checkpoints keep it."""

    value: Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("value", torch.full((1,), 10.0))

    @torch.no_grad()
    def update(self, values: Tensor, rate: float) -> None:
        low, high = torch.quantile(values.float(), torch.tensor([0.05, 0.95], device=values.device))
        self.value.lerp_((high - low).clamp(min=LEAST_SPREAD).to(self.value.dtype), rate)

    def forward(self, values: Tensor) -> Tensor:
        return values / self.value


def squashed_gaussian(raw: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A network's output (..., 2 A) and standard noise (..., A) -> actions in [-1, 1] (..., A), and the logarithm of
    their density (...)."""
    mean, raw_log_std = raw.chunk(2, dim=-1)
    log_std = LOG_STD_LOW + (LOG_STD_HIGH - LOG_STD_LOW) / 2 * (raw_log_std.tanh() + 1)
    actions = (mean + log_std.exp() * noise).tanh()
    density = -noise.square() / 2 - log_std - math.log(2 * math.pi) / 2
    return actions, (density - ((1 - actions.square()).relu() + 1e-6).log()).sum(dim=-1)


@torch.no_grad()
def follow(targets: nn.Module, sources: nn.Module, rate: float) -> None:
    """Polyak averaging: targets move a share of the way to their sources."""
    for target, source in zip(targets.parameters(), sources.parameters(), strict=True):
        target.lerp_(source, rate)
