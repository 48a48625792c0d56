"""VICReg's variance and covariance terms over a batch and over time, as stable-worldmodel computes them."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def vicreg(latents: Tensor) -> dict[str, Tensor]:
    """Of (B, T, D) latents: the spread of each number, and how much numbers repeat one another. Both across the batch
    at each time, and across time in each window. They need the whole batch: gather it under data parallelism."""
    centered = latents - latents.mean(dim=0, keepdim=True)  # the batch's mean, for the terms over time too
    over_batch = centered.transpose(0, 1)
    return {
        "std": _missing_spread(over_batch),
        "cov": _covariance(over_batch),
        "std_time": _missing_spread(centered),
        "cov_time": _covariance(centered),
    }


def _missing_spread(samples: Tensor, eps: float = 1e-4) -> Tensor:
    """(groups, n, D): by how much standard deviations over n stay below one."""
    return F.relu(1 - (samples.var(dim=1) + eps).sqrt()).mean()


def _covariance(samples: Tensor) -> Tensor:
    """(groups, n, D): the mean square of the covariance of two different numbers, without centering over n."""
    n, size = samples.shape[1:]
    covariance = samples.mT @ samples / (n - 1)
    variances = covariance.diagonal(dim1=-2, dim2=-1)
    squares = covariance.square().sum(dim=(-2, -1)) - variances.square().sum(dim=-1)
    return squares.mean() / (size * (size - 1))
