"""The encoder `local`: patch features made here, for machines without DINOv2 or the compute for it.

The convolutional trunk of a small autoencoder, trained on the task's own frames before the world is, then frozen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...training.loop import TrainState, train_loop
from ...training.precision import round_to_half
from ...training.runtime import seeded
from ..pretraining import Pretraining


@dataclass(frozen=True)
class LocalConfig:
    """The trunk of an autoencoder trained on the task's frames."""

    kind: ClassVar[str] = "local"
    frame_size: int = 64
    side: int = 4  # patches along a side: their number decides what a rollout costs
    width: int = 40  # C, numbers of a patch
    channels: tuple[int, ...] = (32, 64, 64)
    """of the convolutions, which together reduce the frame to one position a patch"""
    pretrain_steps: int = 1200
    """training steps of the autoencoder"""
    pretrain_batch: int = 128
    """frames in one of them"""
    pretrain_rate: float = 2e-3
    """its learning rate"""

    def __post_init__(self) -> None:
        if self.frame_size % self.side:
            raise ValueError(
                f"Frames of {self.frame_size} px cannot be cut into {self.side} x {self.side} patches of whole pixels. "
                f"Use frames whose size is a multiple of {self.side}, or another number of patches a side."
            )

    @property
    def strides(self) -> list[int]:
        """Of the convolutions, largest first; their product is a patch's size."""
        factors = _prime_factors(self.frame_size // self.side)
        while len(factors) > len(self.channels):
            factors = sorted([factors[0] * factors[1], *factors[2:]])
        return sorted([*factors, *[1] * (len(self.channels) - len(factors))], reverse=True)


def _prime_factors(number: int) -> list[int]:
    for factor in range(2, number + 1):
        if number % factor == 0:
            return [factor, *_prime_factors(number // factor)]
    return []


class LocalEncoder(nn.Module):
    def __init__(self, config: LocalConfig):
        super().__init__()
        self.config = config
        layers: list[nn.Module] = []
        for (narrow, wide), stride in zip(itertools.pairwise([3, *config.channels]), config.strides, strict=True):
            kernel = stride + 1 + stride % 2  # odd, so that the output is exactly `stride` times smaller
            groups = math.gcd(8, wide)
            layers += [nn.Conv2d(narrow, wide, kernel, stride, kernel // 2), nn.GroupNorm(groups, wide), nn.GELU()]
        self.convolutions = nn.Sequential(*layers)
        self.features = nn.Conv2d(config.channels[-1], config.width, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, P, C), each patch of mean 0 and variance 1: features then have one scale, as DINOv2's."""
        features = self.features(self.convolutions(frames)).flatten(2).transpose(1, 2)
        return F.layer_norm(features, (self.config.width,))


class Autoencoder(nn.Module):
    """The encoder, and a decoder that draws, from the features of a patch and its neighbors, how it differs from the
    mean frame: features then describe what changes, and no training goes into the background."""

    mean: Tensor

    def __init__(self, encoder: LocalEncoder, mean: Tensor):
        super().__init__()
        self.register_buffer("mean", mean)
        config, hidden = encoder.config, 2 * encoder.config.channels[-1]
        patch = config.frame_size // config.side
        self.encoder = encoder
        self.decoder = nn.Sequential(
            nn.Conv2d(config.width, hidden, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(hidden, hidden, 1),
            nn.GELU(),
            nn.Conv2d(hidden, 3 * patch**2, 1),
            nn.PixelShuffle(patch),
        )

    def forward(self, frames: Tensor) -> Tensor:
        side = self.encoder.config.side
        features = torch.unflatten(self.encoder(frames).transpose(1, 2), -1, (side, side))
        return self.mean + self.decoder(features)


def train_autoencoder(encoder: LocalEncoder, work: Pretraining) -> None:
    """Trains the encoder to describe the frames, and leaves it frozen; resumable."""
    config = encoder.config
    optim = replace(
        work.optim, steps=config.pretrain_steps, batch=config.pretrain_batch, learning_rate=config.pretrain_rate
    )
    some = work.frames(np.random.default_rng(optim.seed), 512)
    with seeded(optim.seed):
        autoencoder = Autoencoder(encoder, work.normalize(torch.as_tensor(some)).mean(0))
    encoder.requires_grad_(True)
    autoencoder.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    state = TrainState(autoencoder, optim, work.runtime, work.run)

    def losses(frames: np.ndarray, generator: torch.Generator) -> Mapping[str, Tensor]:
        pixels = work.normalize(torch.as_tensor(frames).to(state.device))
        error = (autoencoder(pixels).float() - pixels).square().mean()
        return {"loss": error, "reconstruction": error.detach()}

    @torch.no_grad()
    def validate() -> dict[str, float]:
        frames = work.held_out(np.random.default_rng(0), 256)  # the same ones every time
        pixels = work.normalize(torch.as_tensor(frames).to(state.device))
        error = (autoencoder(pixels) - pixels).square().mean()
        return {"held_out_reconstruction": (error / (pixels - autoencoder.mean).square().mean()).item()}

    train_loop(
        state,
        work.folder,
        draw=lambda rng, step: work.frames(rng, optim.batch),
        losses=losses,
        validate=validate,
        counted={"frames": optim.batch},
        on_progress=work.on_progress,
    )
    encoder.requires_grad_(False)
    if optim.half_weights:  # now: what is trained on its features must meet the same ones later
        round_to_half(encoder)
