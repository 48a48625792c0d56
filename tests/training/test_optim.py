"""Optimizers by name, and the schedule of their rates."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from leplanner.training.muon import Muon, orthogonalized
from leplanner.training.optim import OPTIMIZERS, OptimConfig, OptimizerKind, make_optimizers, make_schedule

CPU = torch.device("cpu")


def network() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 4, 1), nn.Flatten(), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))


def parameters(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}


def test_adamw_takes_every_parameter():
    module = network()
    (optimizer,) = make_optimizers(module, OptimConfig(learning_rate=0.01, weight_decay=0.1), CPU, "fp32")
    assert isinstance(optimizer, torch.optim.AdamW)
    assert parameters(optimizer) == {id(tensor) for tensor in module.parameters()}
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (0.01, 0.1)


def test_muon_takes_the_matrices_of_linear_layers_and_adamw_the_rest():
    module = network()
    others, matrices = make_optimizers(module, OptimConfig(optimizer="muon"), CPU, "bf16")
    assert isinstance(others, torch.optim.AdamW)
    assert isinstance(matrices, Muon)
    assert parameters(matrices) == {id(module[2].weight), id(module[4].weight)}
    assert parameters(others) == {id(tensor) for tensor in module.parameters()} - parameters(matrices)
    assert matrices.defaults["dtype"] is torch.bfloat16


def test_a_module_of_matrices_alone_needs_no_adamw():
    (optimizer,) = make_optimizers(nn.Linear(3, 2, bias=False), OptimConfig(optimizer="muon"), CPU, "fp32")
    assert isinstance(optimizer, Muon)


def test_the_steps_of_muon_are_alike_in_all_directions():
    for shape in ((6, 4), (4, 6)):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        singular = torch.linalg.svdvals(orthogonalized(matrix, torch.float32))
        assert (singular > 0.6).all()
        assert (singular < 1.3).all()


def test_an_unknown_optimizer_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"Unknown optimizer 'sgd'\. Known: adamw, muon\."):
        make_optimizers(network(), OptimConfig(optimizer="sgd"), CPU, "fp32")


def test_a_registered_optimizer_is_used(monkeypatch):
    monkeypatch.setattr(OPTIMIZERS, "_items", dict(OPTIMIZERS._items))
    sgd = OptimizerKind("sgd", lambda module, rates, device, precision: [torch.optim.SGD(module.parameters(), **rates)])
    OPTIMIZERS.register(sgd)
    (optimizer,) = make_optimizers(network(), OptimConfig(optimizer="sgd", learning_rate=0.5), CPU, "fp32")
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["lr"] == 0.5


@pytest.mark.parametrize("steps", [1, 2, 20])
@pytest.mark.parametrize("warmup", [None, 0.05, 0.5])
def test_rates_rise_to_the_peak_within_the_warm_up_or_stay_constant(steps, warmup):
    config = OptimConfig(steps=steps, learning_rate=0.1, warmup=warmup)
    (optimizer,) = make_optimizers(network(), config, CPU, "fp32")
    schedule, rates = make_schedule(optimizer, config), []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    if warmup is None:
        assert rates == [0.1] * steps
    else:
        assert max(rates) <= 0.1 + 1e-9
        assert rates[0] < 0.1
    if warmup and steps == 20:
        assert abs(rates.index(max(rates)) - max(1, warmup * steps)) <= 1
