"""SIGReg: pushes latents towards an isotropic Gaussian by testing random one-dimensional projections of them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def sigreg(latents: Tensor, projections: int, generator: torch.Generator, knots: int = 17) -> Tensor:
    """Epps-Pulley statistic of (T, B, D) latents, averaged over time and random directions.

    It compares the empirical characteristic function of each projection with the standard normal's on
    [0, 3] by the trapezoid rule. It needs the whole batch: gather it under data parallelism.
    """
    directions = torch.randn(latents.shape[-1], projections, generator=generator, dtype=torch.float32)
    directions = functional.normalize(directions, dim=0).to(latents)
    t = torch.linspace(0, 3, knots, dtype=latents.dtype, device=latents.device)
    normal = torch.exp(-t.square() / 2)
    weights = torch.full_like(t, 2 * 3 / (knots - 1)) * normal
    weights[0] /= 2
    weights[-1] /= 2
    # cos and sin of k*x for equidistant k by the addition theorem: two transcendental calls instead of 2*knots
    angle = (latents @ directions) * t[1]
    cos1, sin1 = angle.cos(), angle.sin()
    cos, sin = torch.ones_like(cos1), torch.zeros_like(sin1)
    statistic = latents.new_zeros(())
    for k in range(knots):
        difference = (cos.mean(dim=-2) - normal[k]).square() + sin.mean(dim=-2).square()
        statistic = statistic + weights[k] * difference.mean()
        if k < knots - 1:
            cos, sin = cos * cos1 - sin * sin1, sin * cos1 + cos * sin1
    return statistic * latents.shape[-2]
