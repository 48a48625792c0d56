"""The same plans as `LePlanner.forward`, computed in fewer and larger steps: for training on any device.

Two regions are compiled, drafting a plan and revising it; each is one graph for all refinements. The last block
of a transformer computes the plan's tokens only: nobody reads the others.
"""

# The paper's variables are capital letters.
# pyright: reportConstantRedefinition=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.dynamics import Dynamics, Imagine, capability, compiled_region
from ..core.fast_math import gelu
from ..core.latent import LatentSpec
from ..core.problem import Plan, PlanProblem
from .model import Block, LePlanner, Transformer


class FastPlanner:
    """Called like the model it speeds up, whose parameters it uses and trains."""

    _draft: Callable[..., Any]
    _revise: Callable[..., Any]

    def __init__(self, model: LePlanner, compiled: bool = True, options: dict[str, Any] | None = None):
        self.model = model
        self._draft, self._revise = self._draft_region, self._revise_region
        if compiled:
            self._draft, self._revise = (compiled_region(part, options) for part in (self._draft, self._revise))

    def __call__(self, problem: PlanProblem, imagine: Imagine) -> tuple[Plan, ...]:
        C, Y, b = self._draft(problem.context, problem.goal)
        plans: list[Plan] = []
        step_sizes = self.model.eta.sigmoid().unbind()
        for k in range(self.model.config.refinements + 1):
            z, d = imagine(b)
            plans.append(Plan(b, z, d))
            if k < self.model.config.refinements:
                Y, b = self._revise(Y, z, d, problem.goal, C, step_sizes[k])
        return tuple(plans)

    def _draft_region(self, context: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        model = self.model
        C = model.conditioning(context, goal)
        Q = model.plan_query
        tokens = F.linear(Q, model.refine_in.weight[:, : Q.shape[-1]], model.refine_in.bias)  # the rest meets zeros
        Y = _transform(model.refine, tokens.expand(len(C), -1, -1), C)
        return C, Y, self._decode(Y)

    def _revise_region(
        self, Y: Tensor, z: Tensor, d: Tensor, goal: Tensor, C: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        model = self.model
        seen = model.read(z)
        features = torch.cat([Y, seen, seen - model.read(goal).unsqueeze(1), d.unsqueeze(-1)], dim=-1)
        R = _transform(model.consequence, model.consequence_in(features), C)
        change = _transform(model.refine, model.refine_in(torch.cat([Y, R], dim=-1)), C)
        Y = Y + step * model.delta_head(change)
        return Y, self._decode(Y)

    def _decode(self, Y: Tensor) -> Tensor:
        norm, first, _, last = self.model.action_head
        return self.model.action_center + self.model.action_scale * last(gelu(first(norm(Y)))).float().tanh()


class CompiledDynamics:
    """Any world's rollout, compiled as it is."""

    def __init__(self, dynamics: Dynamics, options: dict[str, Any] | None = None):
        self.dynamics = dynamics
        self.latent: LatentSpec = dynamics.latent
        self.rollout = compiled_region(dynamics.rollout, options)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return self.dynamics.distance(latents, goal)


def fast_dynamics(dynamics: Dynamics, compiled: bool = True, options: dict[str, Any] | None = None) -> Dynamics:
    """An equal of the world that computes faster: the world's own, where it offers one, else its rollout compiled."""
    fast = capability(dynamics, "fast")
    if fast is not None:
        return fast(compiled, options)
    return CompiledDynamics(dynamics, options) if compiled else dynamics


def _transform(transformer: Transformer, tokens: Tensor, C: Tensor) -> Tensor:
    x = torch.cat([C, tokens], dim=1)
    blocks: Any = transformer.blocks
    for block in blocks[:-1]:
        x = _block(block, x, x.shape[1])
    return _block(blocks[-1], x, tokens.shape[1])


def _block(block: Block, x: Tensor, keep: int) -> Tensor:
    """The block's output for the last `keep` tokens."""
    h = block.norm1(x)
    width = x.shape[-1]
    heads = (block.heads, -1)
    if keep == x.shape[1]:
        q, k, v = torch.unflatten(block.qkv(h), -1, (3, *heads)).unbind(2)
    else:
        q = F.linear(h[:, -keep:], block.qkv.weight[:width], block.qkv.bias[:width])
        kv = F.linear(h, block.qkv.weight[width:], block.qkv.bias[width:])
        q, (k, v) = torch.unflatten(q, -1, heads), torch.unflatten(kv, -1, (2, *heads)).unbind(2)
    x = x[:, -keep:] + block.drop(block.out(_attend(q, k, v)))
    return x + block.drop(block.mlp[2](gelu(block.mlp[0](block.norm2(x)))))


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(B, t, h, E), (B, S, h, E) -> (B, t, h * E). Small products, and a softmax that is normalized at the end: written
    the usual way it would be replaced by a kernel for long sequences, which is several times slower on nine tokens."""
    batch, _, heads, size = q.shape
    q, k, v = (part.transpose(1, 2).reshape(batch * heads, -1, size) for part in (q / math.sqrt(size), k, v))
    scores = torch.bmm(q, k.transpose(1, 2))
    weights = torch.exp(scores - scores.detach().amax(dim=-1, keepdim=True))
    mixed = torch.bmm(weights, v) / weights.sum(dim=-1, keepdim=True)
    return torch.unflatten(mixed, 0, (batch, heads)).transpose(1, 2).flatten(2)
