"""The shape of a latent, and how networks read one: a vector as it is, tokens through attention pooling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LatentSpec:
    """`(D,)` for vectors, `(P, C)` for P tokens of C numbers."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.shape) not in (1, 2) or min(self.shape) < 1:
            raise ValueError(f"A latent has the shape (D,) or (P, C), all at least 1; got {self.shape}.")

    @property
    def size(self) -> int:
        """How many numbers a latent has."""
        return math.prod(self.shape)

    @property
    def axes(self) -> tuple[int, ...]:
        """The latent's own axes, counted from the end."""
        return tuple(range(-len(self.shape), 0))

    def reader(self, width: int) -> tuple[nn.Module, int]:
        """A module from latents (..., *shape) to vectors (..., F), and F. A vector is read as
        it is, without parameters."""
        if len(self.shape) == 1:
            return nn.Identity(), self.size
        return TokenReader(self, width), width


class TokenReader(nn.Module):
    """Every head attends over all tokens of a latent with its own query: (..., P, C) -> (..., width)."""

    def __init__(self, latent: LatentSpec, width: int, heads: int = 4):
        super().__init__()
        tokens, channels = latent.shape
        self.heads = heads if width % heads == 0 else 1
        self.embed = nn.Linear(channels, width)
        self.position = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.attend = nn.Linear(width, self.heads)
        self.out = nn.Linear(width, width)

    def forward(self, latents: Tensor) -> Tensor:
        tokens = nn.functional.gelu(self.embed(latents) + self.position)  # (..., P, W)
        weights = self.attend(tokens).softmax(dim=-2).unsqueeze(-1)  # (..., P, heads, 1)
        values = torch.unflatten(tokens, -1, (self.heads, -1))  # (..., P, heads, W / heads)
        return self.out((weights * values).sum(dim=-3).flatten(-2))
