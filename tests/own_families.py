"""World families of one's own, as another package would bring them: linear vectors, and 4 x 8 tokens.
Neither offers a capability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leplanner.core.dynamics import mean_squared_distance
from leplanner.worlds import WorldFamily


@dataclass(frozen=True)
class Sizes:
    block_dim: int
    frame_size: int
    tokens: int  # 0: a vector
    size: int = 8
    context: int = 2

    @property
    def latent_shape(self) -> tuple[int, ...]:
        return (self.tokens, self.size) if self.tokens else (self.size,)


@dataclass(frozen=True)
class Spread:
    weight: float = 1.0
    """of keeping latents apart"""


class PatchWorld(nn.Module):
    """Pixels by patches to tokens, or to one vector; a block moves all of a latent by a linear map."""

    def __init__(self, config: Sizes):
        super().__init__()
        self.config = config
        side = 2 if config.tokens else 1
        self.patches = nn.Conv2d(3, config.size, config.frame_size // side, config.frame_size // side)
        self.move = nn.Linear(config.size, config.size)
        self.push = nn.Linear(config.block_dim, config.size)

    def encode(self, frames: Tensor) -> Tensor:
        tokens = self.patches(frames).flatten(2).transpose(1, 2)  # (B, P, C)
        return tokens if self.config.tokens else tokens[:, 0]

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        latent, latents = context[:, -1], []
        for j in range(plan.shape[1]):
            push = self.push(plan[:, j])
            latent = self.move(latent) + (push.unsqueeze(1) if self.config.tokens else push)
            latents.append(latent)
        return torch.stack(latents, dim=1)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return 3.0 * mean_squared_distance(latents, goal)  # its own measure: nothing above may assume another

    def encoder_parts(self) -> Mapping[str, nn.Module]:
        return {"patches": self.patches}

    def losses(self, latents, blocks, objective, generator, gather) -> dict[str, Tensor]:
        predicted = self.rollout(latents[:, :1], blocks[:, :0], blocks)
        prediction = (predicted - latents[:, 1:]).square().mean()
        spread = (1 - gather(latents).flatten(0, 1).std(dim=0)).clamp(min=0).mean()
        return {"loss": prediction + objective.weight * spread, "prediction": prediction, "spread": spread}


def _family(name: str, tokens: int) -> WorldFamily:
    return WorldFamily(
        name=name,
        title=name,
        config=Sizes,
        build=PatchWorld,
        network=lambda scale, block_dim, frame_size: Sizes(block_dim, frame_size, tokens),
        objective=lambda scale: Spread(),
    )


LINEAR, TOKENS = _family("linear", 0), _family("tokens", 4)
