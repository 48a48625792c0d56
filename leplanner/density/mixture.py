"""A conditional Gaussian mixture over action blocks, and the threshold that says which blocks the data supports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from ..artifacts import (
    check_digest,
    digest_json,
    digest_tensors,
    from_dict,
    load_modules,
    read_artifact,
    write_artifact,
)
from ..core.latent import LatentSpec


@dataclass(frozen=True)
class DensityConfig:
    """The mixture. Without a preset the paper's."""

    components: int = 16
    """Gaussians in the mixture"""
    width: int = 256
    """of the hidden layer"""
    min_std: float = 0.0
    """least deviation in standardized units, so that a component on repeated equal actions does not become a spike. 0,
    as in the paper: there is none, and the network emits logarithms of deviations"""


class MixtureDensity(nn.Module):
    """beta(b | C): called with a context it returns a `torch.distributions` object over blocks."""

    def __init__(self, config: DensityConfig, latent: LatentSpec, context: int, block_dim: int):
        super().__init__()
        self.config, self.latent, self.context, self.block_dim = config, latent, context, block_dim
        m, a = config.components, block_dim
        self.reader, size = latent.reader(config.width)
        self.net = nn.Sequential(
            nn.Linear(context * size, config.width), nn.GELU(), nn.Linear(config.width, m * (1 + 2 * a))
        )
        with torch.no_grad():  # components start apart, so that they can specialize
            last: Any = self.net[2]
            last.bias[m : m + m * a].normal_()

    def forward(self, context: Tensor) -> MixtureSameFamily:
        """(..., N, *Z) -> a distribution over blocks (..., A)."""
        m, a = self.config.components, self.block_dim
        logits, means, spreads = self.net(self.reader(context).flatten(-2)).float().split([m, m * a, m * a], dim=-1)
        floor = self.config.min_std
        std = floor + nn.functional.softplus(spreads) if floor else spreads.exp()
        shape = (m, a)
        components = Independent(Normal(means.unflatten(-1, shape), std.unflatten(-1, shape), validate_args=False), 1)
        return MixtureSameFamily(Categorical(logits=logits, validate_args=False), components, validate_args=False)

    def score(self, context: Tensor, blocks: Tensor) -> Tensor:
        """r = -log beta(b | C) / A: (..., N, *Z), (..., A) -> (...)."""
        return -self(context).log_prob(blocks.float()) / self.block_dim


class Density:
    """A frozen mixture with its calibrated threshold c95. Gradients flow through it to blocks and contexts."""

    def __init__(self, model: MixtureDensity, threshold: float, world_digest: str = ""):
        self.model = model.eval().requires_grad_(False)
        self.threshold = threshold
        self.world_digest = world_digest  # of the world whose latents it was fitted on

    @property
    def digest(self) -> str:
        return digest_json(
            [dataclasses.asdict(self.model.config), self.threshold, digest_tensors(self.model.state_dict())]
        )

    def to(self, device: torch.device | str) -> Density:
        self.model.to(device)
        return self

    def score(self, context: Tensor, blocks: Tensor) -> Tensor:
        return self.model.score(context, blocks)

    def to_json(self) -> dict[str, Any]:
        model = self.model
        shape = {"latent": model.latent.shape, "context": model.context, "block_dim": model.block_dim}
        facts = {"shape": shape, "threshold": self.threshold, "world_digest": self.world_digest}
        return {"model": dataclasses.asdict(model.config), **facts}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Density:
        """Without its weights."""
        shape = value["shape"]
        config = from_dict(DensityConfig, value["model"])
        model = MixtureDensity(config, LatentSpec(tuple(shape["latent"])), shape["context"], shape["block_dim"])
        return Density(model, value["threshold"], value["world_digest"])


def save_density(density: Density, folder: Path, history: Mapping[str, Any] | None = None, **inputs: str) -> None:
    contents = {**density.to_json(), "digest": density.digest}
    write_artifact(folder, "density", contents, {"density": density.model}, history, **inputs)


def load_density(folder: str | Path) -> Density:
    folder = Path(folder)
    config = read_artifact(folder, "density")
    density = Density.from_json(config)
    load_modules(folder, {"density": density.model})
    check_digest(folder, config["digest"], density.digest)
    return density
