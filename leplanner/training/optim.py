"""How weights are optimized: one configuration for every training run, and the optimizers by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..core.registry import Registry
from .muon import Muon


@dataclass(frozen=True)
class OptimConfig:
    steps: int = 10_000
    """training steps"""
    batch: int = 64
    """samples in a batch"""
    learning_rate: float = 3e-4
    """peak of the one-cycle schedule, or the constant rate where there is no warm-up"""
    weight_decay: float = 0.0
    """decoupled, as in AdamW"""
    warmup: float | None = None
    """share of the steps that warm up a one-cycle schedule; None: a constant learning rate"""
    clip: float | None = 1.0
    """largest norm of the gradient; None: gradients are used as they are"""
    optimizer: str = "adamw"
    """adamw, or muon for the weight matrices of linear layers: fewer steps, each a little longer"""
    seed: int = 0
    """of initialization, batches and dropout"""
    precision: str = "auto"
    """auto (measured), fp32 or bf16"""
    half_weights: bool = False
    """end with weights that fp16 holds exactly"""
    validate_every: int = 250
    """steps between validations"""
    checkpoint_minutes: float = 3.0
    """minutes between checkpoints"""


@dataclass(frozen=True)
class OptimizerKind:
    name: str
    make: Callable[[nn.Module, dict[str, Any], torch.device, str], list[torch.optim.Optimizer]]


OPTIMIZERS: Registry[OptimizerKind] = Registry("optimizer", "leplanner.optimizers")


def _adamw(parameters: list[nn.Parameter], rates: dict[str, Any], device: torch.device) -> torch.optim.Optimizer:
    fused = device.type in ("cpu", "cuda")  # one pass over all weights; elsewhere not offered
    return torch.optim.AdamW(parameters, fused=fused, **rates)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    """Frozen parts are no optimizer's: not even weight decay changes them."""
    return [weight for weight in module.parameters() if weight.requires_grad]


def _all_by_adamw(module: nn.Module, rates: dict[str, Any], device: torch.device, precision: str) -> list:
    return [_adamw(_trained(module), rates, device)]


def _matrices_by_muon(module: nn.Module, rates: dict[str, Any], device: torch.device, precision: str) -> list:
    """Muon for the weight matrices of linear layers, AdamW for the rest. Their steps are as
    large, so one rate serves both."""
    linear = {id(part.weight) for part in module.modules() if isinstance(part, nn.Linear)}
    matrices = [weight for weight in _trained(module) if id(weight) in linear]
    others = [weight for weight in _trained(module) if id(weight) not in linear]
    optimizers = [_adamw(others, rates, device)] if others else []
    if matrices:
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        optimizers.append(Muon(matrices, dtype=dtype, **rates))
    return optimizers


OPTIMIZERS.register(OptimizerKind("adamw", _all_by_adamw))
OPTIMIZERS.register(OptimizerKind("muon", _matrices_by_muon))


def make_optimizers(
    module: nn.Module, config: OptimConfig, device: torch.device, precision: str
) -> list[torch.optim.Optimizer]:
    rates = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    return OPTIMIZERS.get(config.optimizer).make(module, rates, device, precision)


def make_schedule(optimizer: torch.optim.Optimizer, config: OptimConfig) -> torch.optim.lr_scheduler.LRScheduler:
    if config.warmup is None:
        return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    steps = config.steps + 1
    warmup = max(config.warmup, 2 / steps)  # one step at least: PyTorch divides by them
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, total_steps=steps, pct_start=warmup)
