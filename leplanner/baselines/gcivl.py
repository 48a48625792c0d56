"""GCIVL: goal-conditioned implicit value learning (V by expectiles), and a policy by advantage-weighted regression."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .learned import GOAL_CONDITIONED, LearnedBaseline
from .networks import MLP, follow


class GCIVL(nn.Module):
    clones, needs_deadline = False, False

    def __init__(self, latent_size: int, block_dim: int, block: int, config: GCIVLConfig):
        super().__init__()
        self.config = config
        self.values = nn.ModuleList([MLP(2 * latent_size, 1, config.width) for _ in range(2)])
        self.targets = copy.deepcopy(self.values).requires_grad_(False)
        self.actor = MLP(2 * latent_size, block_dim, config.width)

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        z, following, goal, reached = batch["latent"], batch["following"], batch["goal"], batch["reached"]
        follow(self.targets, self.values)
        with torch.no_grad():
            # -1 a block until the goal is reached, and nothing after
            ahead = [target(following, goal).squeeze(-1) for target in self.targets]
            here = [target(z, goal).squeeze(-1) for target in self.targets]
            backed = [-(1 - reached) + self.config.discount * (1 - reached) * value for value in ahead]
            advantage = torch.minimum(*backed) - torch.stack(here).mean(dim=0)
        share = torch.where(advantage > 0, self.config.expectile, 1 - self.config.expectile)
        predicted = [value(z, goal).squeeze(-1) for value in self.values]
        value_loss = torch.stack(
            [(share * (q - v).square()).mean() for q, v in zip(backed, predicted, strict=True)]
        ).sum()
        weight = (self.config.temperature * advantage).exp().clamp(max=100.0) * batch["future"]
        actor_loss = (weight * (self.actor(z, goal) - batch["block"]).square().mean(dim=-1)).mean()
        return {"loss": value_loss + actor_loss, "value": value_loss, "actor": actor_loss}

    def blocks(self, latent: Tensor, goal: Tensor, remaining: Tensor) -> Tensor:
        return self.actor(latent, goal)


@dataclass(frozen=True)
class GCIVLConfig:
    width: int = 512
    max_offset: int = 10
    random_goals: float = 0.3
    expectile: float = 0.9
    discount: float = 0.95  # a block
    temperature: float = 3.0


BASELINE = LearnedBaseline("gcivl", "GCIVL", GCIVL, GCIVLConfig, GOAL_CONDITIONED, replan=1)
