"""GCBC: goal-conditioned behavior cloning, (z_t, z_goal) -> the data's block."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from .learned import GOAL_CONDITIONED, LearnedBaseline
from .networks import MLP


class GCBC(nn.Module):
    clones, needs_deadline = True, False

    def __init__(self, latent_size: int, block_dim: int, block: int, config: GCBCConfig):
        super().__init__()
        self.config = config
        self.actor = MLP(2 * latent_size, block_dim, config.width)

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"loss": (self.actor(batch["latent"], batch["goal"]) - batch["block"]).square().mean()}

    def blocks(self, latent: Tensor, goal: Tensor, remaining: Tensor) -> Tensor:
        """Standardized actions (B, A); the time that remains is not used."""
        return self.actor(latent, goal)


@dataclass(frozen=True)
class GCBCConfig:
    width: int = 512
    max_offset: int = 10  # goals up to this many blocks ahead
    random_goals: float = 0.0


BASELINE = LearnedBaseline("gcbc", "GCBC", GCBC, GCBCConfig, GOAL_CONDITIONED, replan=1)
