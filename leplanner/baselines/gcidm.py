"""GC-IDM: a goal-conditioned inverse dynamics model, (z_t, z_goal, steps remaining) -> the next action.

It decides before every action and is given the deadline, and it learns triples (z_t, z_{t+h}, h) for every horizon h up
to 50 actions. Where a dataset keeps only every f-th frame (`collect --every`), every f-th h is all that it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..control.methods import NO, YES, Properties
from .learned import LearnedBaseline


class GCIDM(nn.Module):
    clones, needs_deadline = True, True

    def __init__(self, latent_size: int, block_dim: int, block: int, config: GCIDMConfig):
        super().__init__()
        self.config, self.block, self.action_dim = config, block, block_dim // block
        sizes = (2 * latent_size, config.width, config.width)
        self.layers = nn.ModuleList([nn.Linear(size, config.width) for size in sizes])
        self.norms = nn.ModuleList([nn.LayerNorm(config.width) for _ in sizes])
        # the horizon scales and shifts every layer
        self.horizon = nn.Sequential(nn.Linear(1, config.width), nn.GELU(), nn.Linear(config.width, 6 * config.width))
        self.out = nn.Linear(config.width, self.action_dim)

    def forward(self, latent: Tensor, goal: Tensor, remaining: Tensor) -> Tensor:
        """(B, D), (B, D), (B,) environment steps -> the next standardized action (B, d_a)."""
        share = remaining.unsqueeze(-1) / (self.config.max_offset * self.block)
        modulation = self.horizon(share).chunk(6, dim=-1)
        x = torch.cat([latent, goal], dim=-1)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            scale, shift = modulation[2 * i : 2 * i + 2]
            x = nn.functional.gelu(norm(layer(x)) * (1 + scale) + shift)
        return self.out(x)

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        predicted = self(batch["latent"], batch["goal"], batch["horizon"])
        return {"loss": (predicted - batch["block"][:, : self.action_dim]).square().mean()}

    def blocks(self, latent: Tensor, goal: Tensor, remaining: Tensor) -> Tensor:
        return self(latent, goal, remaining.clamp(1, self.config.max_offset * self.block))


@dataclass(frozen=True)
class GCIDMConfig:
    width: int = 512
    max_offset: int = 10  # 50 environment steps, the whole budget
    random_goals: float = 0.0


BASELINE = LearnedBaseline(
    "gcidm", "GC-IDM", GCIDM, GCIDMConfig, Properties("GC-IDM", YES, NO, NO, NO, YES, YES), replan=0
)
