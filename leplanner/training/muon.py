"""Muon: an optimizer for the matrices of linear layers, whose steps are alike in all directions.

Momentum of the gradient, orthogonalized by Newton-Schulz iterations: the steps of `torch.optim.Muon`, but in
a number format of one's choice. PyTorch's always computes in bf16, for which a CPU without bf16 arithmetic
needs hundreds of times as long.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic whose iterations bring singular values near one soonest


class Muon(torch.optim.Optimizer):
    def __init__(
        self,
        matrices: Iterable[Tensor],
        lr: float,
        weight_decay: float,
        dtype: torch.dtype,
        momentum: float = 0.95,
    ):
        # the format is stored with the rest: a run that continues elsewhere keeps it
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "dtype": dtype})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["average"] = torch.zeros_like(matrix)
                average = state["average"].lerp_(matrix.grad, 1 - group["momentum"])
                step = orthogonalized(matrix.grad.lerp(average, group["momentum"]), group["dtype"])
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                # as large as AdamW's steps: the entries of an orthogonal matrix are 1 / sqrt(longer side) in the mean
                matrix.sub_(step, alpha=0.2 * max(matrix.shape) ** 0.5 * group["lr"])


def orthogonalized(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """The same directions, with singular values near one."""
    a, b, c = COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = (wide / wide.norm().clamp(min=1e-7)).to(dtype)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide is matrix else x.T).to(matrix.dtype)
