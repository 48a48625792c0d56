"""PLDM: LeWM's encoder and predictor, trained with VICReg's terms and a head that reads the block from two latents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..lewm.model import LeWM, LeWMConfig
from .vicreg import vicreg


@dataclass(frozen=True, kw_only=True)
class PLDMConfig(LeWMConfig):
    """LeWM's sizes, and the head's."""

    inverse: int
    """hidden size of the inverse-dynamics head, which only training uses; 0: no head, and no such term in the loss"""


@dataclass(frozen=True)
class PLDMObjective:
    """Next-latent prediction and what keeps latents from collapsing. The weights are those of stable-worldmodel's
    training, except for inverse dynamics: 0 there, 1 in the original."""

    std_weight: float = 18.0
    """weight of the spread over the batch"""
    cov_weight: float = 12.0
    """weight of the covariance over the batch"""
    std_time_weight: float = 0.7
    """weight of the spread over time"""
    cov_time_weight: float = 0.0
    """weight of the covariance over time"""
    similarity_weight: float = 0.2
    """weight of the squared difference of neighboring latents"""
    inverse_weight: float = 1.0
    """weight of inverse dynamics: the error of the block read from two neighboring latents"""


class PLDM(LeWM):
    def __init__(self, config: PLDMConfig):
        super().__init__(config)
        self.inverse = InverseHead(config.latent, config.inverse, config.block_dim) if config.inverse else None

    def losses(
        self,
        latents: Tensor,
        blocks: Tensor,
        objective: Any,  # PLDMObjective
        generator: torch.Generator,
        gather: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        predicted = self.predict(latents[:, :-1], blocks).to(latents)  # small differences, also under autocast
        terms = {
            "prediction": (predicted - latents[:, 1:]).square().mean(),
            "similarity": (latents[:, 1:] - latents[:, :-1]).square().mean(),
        }
        with torch.autocast(latents.device.type, enabled=False):  # covariances would be rounded to a 256th
            terms |= vicreg(gather(latents))
        if self.inverse is not None:
            terms["inverse"] = (self.inverse(latents).to(blocks) - blocks).square().mean()
        weights = {name: getattr(objective, f"{name}_weight") for name in terms if name != "prediction"}
        # a term without weight is shown only: nothing is computed for its gradient
        weighted = [weight * terms[name] for name, weight in weights.items() if weight]
        return {"loss": torch.stack([terms["prediction"], *weighted]).sum(), **terms}


class InverseHead(nn.Module):
    """Reads the block between two neighboring latents, so that latents hold what actions change."""

    def __init__(self, latent: int, hidden: int, block_dim: int):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2 * latent, hidden), nn.LayerNorm(hidden), nn.GELU(), nn.Linear(hidden, block_dim)
        )

    def forward(self, latents: Tensor) -> Tensor:
        """(B, T, D) -> (B, T-1, A)"""
        return self.net(torch.cat([latents[:, 1:], latents[:, :-1]], dim=-1))
