"""GCIQL: goal-conditioned implicit Q-learning (Q and V by expectiles), and a policy by
advantage-weighted regression."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .learned import GOAL_CONDITIONED, LearnedBaseline
from .networks import MLP, expectile, follow


class GCIQL(nn.Module):
    clones, needs_deadline = False, False

    def __init__(self, latent_size: int, block_dim: int, block: int, config: GCIQLConfig):
        super().__init__()
        self.config = config
        self.value = MLP(2 * latent_size, 1, config.width)
        self.critics = nn.ModuleList([MLP(2 * latent_size + block_dim, 1, config.width) for _ in range(2)])
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor = MLP(2 * latent_size, block_dim, config.width)

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        z, following, goal, reached = batch["latent"], batch["following"], batch["goal"], batch["reached"]
        block = batch["block"]
        follow(self.targets, self.critics)
        value = self.value(z, goal).squeeze(-1)
        with torch.no_grad():
            score = torch.minimum(*[target(z, goal, block).squeeze(-1) for target in self.targets])
            backed = -(1 - reached) + self.config.discount * (1 - reached) * self.value(following, goal).squeeze(-1)
        value_loss = expectile(score - value, self.config.expectile).mean()
        critic_loss = sum((critic(z, goal, block).squeeze(-1) - backed).square().mean() for critic in self.critics)
        weight = (self.config.temperature * (score - value.detach())).exp().clamp(max=100.0) * batch["future"]
        actor_loss = (weight * (self.actor(z, goal) - block).square().mean(dim=-1)).mean()
        return {"loss": value_loss + critic_loss + actor_loss, "value": value_loss, "actor": actor_loss}

    def blocks(self, latent: Tensor, goal: Tensor, remaining: Tensor) -> Tensor:
        return self.actor(latent, goal)


@dataclass(frozen=True)
class GCIQLConfig:
    width: int = 512
    max_offset: int = 10
    random_goals: float = 0.3
    expectile: float = 0.9
    discount: float = 0.95
    temperature: float = 3.0


BASELINE = LearnedBaseline("gciql", "GCIQL", GCIQL, GCIQLConfig, GOAL_CONDITIONED, replan=1)
