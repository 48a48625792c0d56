"""A whole plan as one ONNX graph: draft, K refinements, and every imagined block between them."""

# The paper's variables are capital letters.
# pyright: reportConstantRedefinition=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...core.onnx_builder import Graph
from ..model import LePlanner
from .reuse_nodes import PlanValues, select_better


class OnnxRollout(Protocol):
    """What a world's `onnx_rollout(graph)` returns: its rollout as nodes of that graph. Values are names."""

    def prepare(self, context: str, past_blocks: str) -> Any:
        """(B, N, D), (B, N-1, A) -> what all plans of a problem share."""
        ...

    def rollout(self, prepared: Any, plan: str, horizon: int) -> str:
        """(B, H, A) -> (B, H, D)"""
        ...

    def distance(self, error: str) -> str:
        """Differences to the goal (B, H, D) -> distances (B, H, 1)."""
        ...


LayOut = Callable[[Graph], OnnxRollout]


def rollout_graph(model: LePlanner, world: LayOut, batch: int | str, metadata: dict[str, str]) -> Any:
    g, n, (latent,) = Graph(), model.context, model.latent.shape
    block_dim, horizon = model.actions.block_dim, model.config.horizon
    context = g.input("context", [batch, n, latent])
    past = g.input("past_blocks", [batch, n - 1, block_dim])
    plan = g.input("plan", [batch, horizon, block_dim])
    laid = world(g)
    latents = laid.rollout(laid.prepare(context, past), plan, horizon)
    return g.model({"latents": (latents, [batch, horizon, latent])}, metadata)


def plan_graph(model: LePlanner, world: LayOut, batch: int | str, metadata: dict[str, str], reuse: bool = False) -> Any:
    """context (B, N, D), past_blocks (B, N-1, A), goal (B, D) -> the final plan's blocks (B, H, A), latents (B, H, D)
    and distances (B, H). A batch of "B" is any number of rows. `reuse`: also last_plan (B, H, A) and executed (1,)."""
    c, g, (latent,) = model.config, Graph(), model.latent.shape
    block_dim = model.actions.block_dim
    context = g.input("context", [batch, model.context, latent])
    past = g.input("past_blocks", [batch, model.context - 1, block_dim])
    goal = g.op("Unsqueeze", g.input("goal", [batch, latent]), g.constant([1]))
    world_graph, planner = world(g), _PlannerGraph(g, model)
    prepared = world_graph.prepare(context, past)
    C = planner.condition(context, goal)
    Y, b, z, d = planner.draft(C), "", "", ""
    for k in range(c.refinements + 1):
        b = planner.decode(Y)
        z = world_graph.rollout(prepared, b, c.horizon)
        error = g.op("Sub", z, goal)
        d = world_graph.distance(error)  # (B, H, 1)
        if k < c.refinements:
            Y = planner.revise(k, Y, z, error, d, C)

    def imagine(blocks: str) -> tuple[str, str]:
        latents = world_graph.rollout(prepared, blocks, c.horizon)
        return latents, g.op("Squeeze", world_graph.distance(g.op("Sub", latents, goal)), g.constant([2]))

    plan = PlanValues(b, z, g.op("Squeeze", d, g.constant([2])))
    if reuse:
        last_plan = g.input("last_plan", [batch, c.horizon, block_dim])
        executed = g.input("executed", [1], np.int64)
        plan = select_better(g, plan, last_plan, executed, (c.horizon, block_dim, 1), imagine)
    shapes: list[list[int | str]] = [[batch, c.horizon, block_dim], [batch, c.horizon, latent], [batch, c.horizon]]
    return g.model(dict(zip(plan._fields, zip(plan, shapes, strict=True), strict=True)), metadata)


class _PlannerGraph:
    """`LePlanner`, node by node."""

    def __init__(self, graph: Graph, model: LePlanner):
        self.g, self.model, self.width = graph, model, model.config.width
        self.plan_tokens, self.condition_tokens = model.config.horizon, model.context + 1

    def condition(self, context: str, goal: str) -> str:
        g, model = self.g, self.model
        frames = g.op("Add", self._linear("project", context), g.constant(model.context_position))
        return g.concat([frames, g.op("Add", self._linear("project", goal), g.constant(model.goal_token))], 1)

    def draft(self, C: str) -> str:
        Q, into = self.model.plan_query, self.model.refine_in
        weight, bias = into.weight[:, : self.width].double(), into.bias.double()  # the other half meets zeros
        tokens = (Q.double() @ weight.t() + bias).float()  # rounded once: the same whatever the threads
        rows = self.g.for_batch(C, self.g.constant(tokens), [self.plan_tokens, self.width])
        return self._transform("refine", rows, C)

    def decode(self, Y: str) -> str:
        g, model = self.g, self.model
        norm: Any = model.action_head[0]
        hidden = self._linear("action_head.1", g.norm(Y, self.width, norm.eps, norm.weight, norm.bias), gelu=True)
        bounded = g.op("Tanh", self._linear("action_head.3", hidden))
        center, scale = (g.constant(part) for part in (model.action_center, model.action_scale))
        return g.modulated(bounded, scale, center)

    def revise(self, k: int, Y: str, z: str, error: str, d: str, C: str) -> str:
        g = self.g
        R = self._transform("consequence", self._linear("consequence_in", g.concat([Y, z, error, d], 2)), C)
        change = self._transform("refine", self._linear("refine_in", g.concat([Y, R], 2)), C)
        step = g.constant(self.model.eta[k].sigmoid().reshape(1))
        return g.op("Add", Y, g.op("Mul", step, self._linear("delta_head", change)))

    def _transform(self, name: str, tokens: str, C: str) -> str:
        g, blocks = self.g, getattr(self.model, name).blocks
        x = g.concat([C, tokens], 1)
        for i, block in enumerate(blocks):
            x = self._block(f"{name}.blocks.{i}", block, x, last=i == len(blocks) - 1)
        return x

    def _block(self, name: str, block: Any, x: str, last: bool) -> str:
        """The last block computes the plan's tokens only: nobody reads the others."""
        g, W = self.g, self.width
        h = g.norm(x, W, block.norm1.eps, block.norm1.weight, block.norm1.bias)
        if last:
            weight, bias = block.qkv.weight, block.qkv.bias
            k, v = g.split(g.linear(f"planner.{name}.kv", h, weight[W:], bias[W:]), 2)
            total = self.condition_tokens + self.plan_tokens
            h, x = (g.slice(value, self.condition_tokens, total) for value in (h, x))
            q = g.linear(f"planner.{name}.q", h, weight[:W], bias[:W])
        else:
            q, k, v = g.split(self._linear(f"{name}.qkv", h), 3)
        x = g.op("Add", x, self._linear(f"{name}.out", g.attention(q, k, v, block.heads)))
        h = g.norm(x, W, block.norm2.eps, block.norm2.weight, block.norm2.bias)
        return g.op("Add", x, self._linear(f"{name}.mlp.2", self._linear(f"{name}.mlp.0", h, gelu=True)))

    def _linear(self, name: str, x: str, gelu: bool = False) -> str:
        layer: Any = self.model.get_submodule(name)
        return self.g.linear(f"planner.{name}", x, layer.weight, layer.bias, gelu)
