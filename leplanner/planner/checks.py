"""Contracts that a world model of your own, or a planner, must keep. Each check raises a
ValueError that says what broke."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core.dynamics import Dynamics, capability
from ..core.problem import PlanProblem
from .engines.base import HALF_TOLERANCE
from .planner import Planner

TOLERANCE = 1e-4  # of the largest value: matrix products of other sizes round differently


def check_dynamics(dynamics: Dynamics, context: Tensor, past_blocks: Tensor, plan: Tensor) -> None:
    """Try a world model on a batch of at least two: (B, N, *Z), (B, N-1, A), (B, H, A).

    Shapes; finite values; the same answer twice, alone and in a batch; later blocks leave earlier latents alone;
    gradients reach every block of the plan and never the world's weights.
    """
    lacking = [name for name in ("latent", "rollout", "distance") if not hasattr(dynamics, name)]
    if lacking:
        raise ValueError(
            f"{type(dynamics).__name__} has no {', '.join(lacking)}: a world has `latent` (lp.LatentSpec), "
            "rollout(context, past_blocks, plan) and distance(latents, goal)."
        )
    if len(context) < 2:
        raise ValueError("Checking batch independence needs at least two rows; give a larger batch.")
    weights = _weights(dynamics)
    before = [weight.grad for weight in weights]
    plan = plan.detach().clone().requires_grad_()
    latents = dynamics.rollout(context, past_blocks, plan)
    expected = (len(context), plan.shape[1], *dynamics.latent.shape)
    _require(tuple(latents.shape) == expected, f"rollout returned shape {tuple(latents.shape)}, expected {expected}")
    _require(bool(latents.isfinite().all()), "rollout returned values that are not finite")
    _require(
        torch.equal(dynamics.rollout(context, past_blocks, plan), latents), "rollout gives another answer each time"
    )
    alone = dynamics.rollout(context[:1], past_blocks[:1], plan[:1])
    _require(_close(alone, latents[:1]), "rollout of a row depends on the other rows of its batch")
    distances, expected = dynamics.distance(latents, context[:, -1]), expected[:2]
    _require(
        tuple(distances.shape) == expected, f"distance returned shape {tuple(distances.shape)}, expected {expected}"
    )
    itself = dynamics.distance(context[:, -1:], context[:, -1])
    _require(_close(itself, torch.zeros_like(itself)), "the distance of a latent to itself is not zero")
    prepare = capability(dynamics, "prepare")
    if prepare is not None:
        _require(
            _close(prepare(context, past_blocks)(plan), latents),
            "prepare(context, past_blocks)(plan) differs from rollout",
        )
    later = plan.detach().clone()
    later[:, -1] += 1.0
    changed = dynamics.rollout(context, past_blocks, later)
    _require(_close(changed[:, :-1], latents[:, :-1]), "a later block changes an earlier latent")
    (gradient,) = (
        torch.autograd.grad(latents.square().sum(), plan, allow_unused=True) if latents.requires_grad else (None,)
    )
    _require(
        gradient is not None and bool((gradient.abs().sum(dim=-1) > 0).all()),
        "gradients do not reach every block of the plan; do not wrap the rollout in no_grad",
    )
    trains = any(weight.requires_grad for weight in weights)
    _require(not trains, "the world's weights require gradients; freeze them with requires_grad_(False)")
    _require(all(w.grad is b for w, b in zip(weights, before, strict=True)), "the world's weights received gradients")


def check_planner(planner: Planner, problem: PlanProblem) -> None:
    """Try a planner on a batch of at least two problems: shapes, action bounds, determinism, batch independence, and
    that the last plan of a trace is the plan."""
    config = planner.model.config
    batch = len(problem.context)
    if batch < 2:
        raise ValueError("Checking batch independence needs at least two problems; give a larger batch.")
    trace = planner.plan(problem, record="trace")
    plan = planner.plan(problem)
    _require(len(trace.plans) == config.refinements + 1, f"a trace of {len(trace.plans)} plans, expected K + 1")
    shapes = {"blocks": (planner.model.actions.block_dim,), "latents": planner.model.latent.shape}
    for name, shape in shapes.items():
        actual, expected = tuple(getattr(plan, name).shape), (batch, config.horizon, *shape)
        _require(actual == expected, f"Plan.{name} has shape {actual}, expected {expected}")
    _require(tuple(plan.distances.shape) == (batch, config.horizon), "Plan.distances has another shape than (B, H)")
    _require(torch.equal(planner.plan(problem).blocks, plan.blocks), "plan() gives another answer each time")
    # a trace is the plain model's, a plan its engine's: the same function, rounded differently
    tolerance = TOLERANCE if planner.engine_report().precision == "fp32" else HALF_TOLERANCE
    same = torch.allclose(plan.blocks, trace.final.blocks, atol=tolerance, rtol=0.0)
    _require(same, "the last plan of a trace is not the plan")
    excess = (plan.blocks - planner.model.action_center).abs() - planner.model.action_scale
    _require(bool((excess <= 1e-5).all()), "actions leave the environment's box")
    order = torch.arange(batch - 1, -1, -1)
    other = planner.plan(problem[order])
    _require(_close(other.blocks[order], plan.blocks), "plans depend on the order of the batch")
    alone = planner.plan(problem[:1])
    _require(_close(alone.blocks, plan.blocks[:1]), "a plan depends on the other problems of its batch")


def _weights(dynamics: object) -> list[nn.Parameter]:
    """Of a module, or of the modules that a plain object holds as attributes."""
    modules = [dynamics, *getattr(dynamics, "__dict__", {}).values()]
    return [weight for module in modules if isinstance(module, nn.Module) for weight in module.parameters()]


def _close(a: Tensor, b: Tensor) -> bool:
    a, b = a.detach(), b.detach()
    return bool((a - b).abs().max() <= TOLERANCE * b.abs().max().clamp(min=1.0))


def _require(kept: bool, broken: str) -> None:
    if not kept:
        raise ValueError(f"Contract broken: {broken}.")
