"""The shape of a latent, and how networks read one: a vector as it is, tokens through a small network."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    """A few numbers of every token, side by side: (..., P, C) -> (..., width). The same map reads all tokens, and
    which token says what is kept; pooled, a small thing in one of many tokens was hard to find."""

    def __init__(self, latent: LatentSpec, width: int):
        super().__init__()
        tokens, channels = latent.shape
        each = max(8, 4 * width // tokens)
        self.embed = nn.Linear(channels, each)
        self.out = nn.Linear(tokens * each, width)

    def forward(self, latents: Tensor) -> Tensor:
        return self.out(nn.functional.gelu(self.embed(latents)).flatten(-2))
