"""A conditional Gaussian mixture over action blocks, and the threshold that says which blocks the data supports."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from ..artifacts import digest_json, digest_tensors, from_dict, provenance, read_json, write_json
from ..world.world import load_strictly, read_safetensors, write_safetensors


@dataclass(frozen=True)
class DensityConfig:
    """Sizes are the paper's. Where it emits logarithms of deviations, this adds a smooth positive number to `min_std`."""

    latent: int = 192  # D
    block_dim: int = 10  # A
    context: int = 3  # N
    components: int = 16
    width: int = 256
    min_std: float = 0.05  # in standardised units: a component on repeated equal actions must not become a spike


class MixtureDensity(nn.Module):
    """beta(b | C): called with a context it returns a `torch.distributions` object over blocks."""

    def __init__(self, config: DensityConfig):
        super().__init__()
        self.config = config
        m, a = config.components, config.block_dim
        self.net = nn.Sequential(
            nn.Linear(config.context * config.latent, config.width), nn.GELU(), nn.Linear(config.width, m * (1 + 2 * a))
        )
        with torch.no_grad():  # components start apart, so that they can specialise
            self.net[2].bias[m : m + m * a].normal_()

    def forward(self, context: Tensor) -> MixtureSameFamily:
        """(..., N, D) -> a distribution over blocks (..., A)."""
        m, a = self.config.components, self.config.block_dim
        logits, means, spreads = self.net(context.flatten(-2)).float().split([m, m * a, m * a], dim=-1)
        std = self.config.min_std + nn.functional.softplus(spreads)
        shape = (m, a)
        components = Independent(Normal(means.unflatten(-1, shape), std.unflatten(-1, shape), validate_args=False), 1)
        return MixtureSameFamily(Categorical(logits=logits, validate_args=False), components, validate_args=False)

    def score(self, context: Tensor, blocks: Tensor) -> Tensor:
        """r = -log beta(b | C) / A: (..., N, D), (..., A) -> (...)."""
        return -self(context).log_prob(blocks.float()) / self.config.block_dim


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


def save_density(density: Density, folder: Path, history: dict[str, Any] | None = None, **inputs: str) -> None:
    write_safetensors(folder / "density.safetensors", density.model)
    config = {"kind": "leplanner density", "model": dataclasses.asdict(density.model.config)}
    config |= {"threshold": density.threshold, "world_digest": density.world_digest}
    config |= {"digest": density.digest, "training": history or {}}
    write_json(folder / "config.json", {**config, "provenance": provenance(**inputs)})


def load_density(folder: str | Path) -> Density:
    folder = Path(folder)
    if not (folder / "config.json").exists():
        raise ValueError(f"No density at {folder}: it has no config.json. Fit one with: leplanner density TASK")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or config.get("kind") != "leplanner density":
        raise ValueError(
            f"{folder}/config.json does not describe a leplanner density. Fit one with: leplanner density TASK"
        )
    density = Density(
        MixtureDensity(from_dict(DensityConfig, config["model"])), config["threshold"], config["world_digest"]
    )
    load_strictly(density.model, read_safetensors(folder / "density.safetensors"), str(folder))
    if density.digest != config["digest"]:
        raise ValueError(f"{folder}: the weights do not match the digest in config.json. Fit the density again.")
    return density
