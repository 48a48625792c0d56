"""Worlds with random weights, and random problems for them."""

from __future__ import annotations

import torch

from leplanner.worlds.base import World


def randomize(model: torch.nn.Module, scale: float = 0.08, seed: int = 0) -> None:
    """Random weights everywhere: the zero-initialized modulations would hide half the model."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64) * scale
            tensor.copy_(noise.abs() + 0.5 if "running_var" in name else noise)


def random_problem(world: World, batch: int, seed: int = 0) -> list[torch.Tensor]:
    """Context latents, the blocks between them, and five blocks of a plan."""
    generator = torch.Generator().manual_seed(seed)
    context, block_dim = world.spec.context, world.spec.actions.block_dim
    sizes = ((context, *world.latent.shape), (context - 1, block_dim), (5, block_dim))
    return [torch.randn(batch, *size, generator=generator) for size in sizes]
