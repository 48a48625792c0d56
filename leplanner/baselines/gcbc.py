"""GCBC: goal-conditioned behaviour cloning, (z_t, z_goal) -> the data's block."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from .networks import MLP


class GCBC(nn.Module):
    name, clones, needs_deadline = "gcbc", True, False
    every_action = False  # decides once a block

    def __init__(self, latent: int, block_dim: int, block: int, config: GCBCConfig):
        super().__init__()
        self.config = config
        self.actor = MLP(2 * latent, block_dim, config.width)

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"loss": (self.actor(batch["latent"], batch["goal"]) - batch["block"]).square().mean()}

    def blocks(self, latent: Tensor, goal: Tensor, remaining: Tensor) -> Tensor:
        """Standardised actions (B, A); the time that remains is not used."""
        return self.actor(latent, goal)


@dataclass(frozen=True)
class GCBCConfig:
    width: int = 512
    max_offset: int = 10  # goals up to this many blocks ahead
    random_goals: float = 0.0
