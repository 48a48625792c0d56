"""A frozen Fast-LeWM laid out as ONNX nodes from its folded weights: `FastRollout`, node by node."""

from __future__ import annotations

from ...core.onnx_builder import Graph, causal
from .fast_rollout import FastRollout
from .model import FastLeWM, positions

KeysValues = list[tuple[str, str]]  # of every layer


class RolloutGraph:
    def __init__(self, graph: Graph, model: FastLeWM):
        self.g, self.fast = graph, FastRollout(model)
        self.width, self.before = self.fast.width, 2 * self.fast.context - 1

    def prepare(self, context: str, past_blocks: str) -> tuple[str, KeysValues]:
        """The start latent, and keys and values of tokens that no plan can change."""
        g, n = self.g, self.fast.context
        known = [self._linear("latent_out", self._linear("latent_in", context, gelu=True))]
        known += [self._embed(past_blocks)] if n > 1 else []
        _, cached = self._mix(self._placed(g.concat(known, 1), 0, self.before), self.before, [])
        return g.slice(context, n - 1, n), cached

    def rollout(self, prepared: tuple[str, KeysValues], plan: str, horizon: int) -> str:
        """(B, H, A) -> (B, H, D)"""
        start, cached = prepared
        x, _ = self._mix(self._placed(self._embed(plan), self.before, self.before + horizon), horizon, cached)
        for name in ("norm", "out_norm"):
            x = self.g.norm(x, self.width, 1e-5, *self.fast.weights(name))
        batch = self.g.op("Shape", plan, start=0, end=1)
        shape = self.g.concat([batch, self.g.constant([horizon, self.width])], 0)
        return self._move(self.g.op("Expand", start, shape), x)

    def distance(self, error: str) -> str:
        """(B, H, D) -> (B, H, 1)"""
        return self.g.op("ReduceMean", self.g.op("Mul", error, error), self.g.constant([2]))

    def _embed(self, blocks: str) -> str:
        return self._linear("embed_out", self.g.silu(self._linear("embed_in", blocks)))

    def _placed(self, tokens: str, first: int, stop: int) -> str:
        return self.g.op("Add", tokens, self.g.constant(positions(stop, self.width)[first:].contiguous()))

    def _mix(self, x: str, count: int, cached: KeysValues) -> tuple[str, KeysValues]:
        g = self.g
        mask = causal(count, count + (self.before if cached else 0))
        kept: KeysValues = []
        for i in range(self.fast.prefix_depth):
            h = g.norm(g.norm(x, self.width, 1e-6), self.width, 1e-5)
            q, k, v = g.split(self._linear(f"qkv{i}", h), 3)
            kept.append((k, v))
            if cached:
                k, v = g.concat([cached[i][0], k], 1), g.concat([cached[i][1], v], 1)
            x = g.op("Add", x, self._linear(f"out{i}", g.attention(q, k, v, self.fast.heads, mask)))
            x = g.op("Add", x, self._mlp(f"prefix{i}", g.norm(x, self.width, 1e-6)))
        return x, kept

    def _move(self, x: str, prefixes: str) -> str:
        g = self.g
        seen = g.norm(g.concat([x, prefixes, g.op("Mul", x, prefixes)], 2), 3 * self.width, 1e-5)
        x = g.op("Add", x, self._linear("fuse_out", self._linear("fuse_in", seen, gelu=True)))
        mods = g.split(self._linear("modulate", g.silu(prefixes)), 6 * self.fast.depth)
        for i in range(self.fast.depth):
            shift1, scale1, gate1, shift2, scale2, gate2 = mods[6 * i : 6 * i + 6]
            h = g.norm(g.modulated(g.norm(x, self.width, 1e-6), scale1, shift1), self.width, 1e-5)
            x = g.op("Add", x, g.op("Mul", gate1, self._linear(f"value{i}", h)))
            h = g.modulated(g.norm(x, self.width, 1e-6), scale2, shift2)
            x = g.op("Add", x, g.op("Mul", gate2, self._mlp(f"point{i}", h)))
        h = g.norm(x, self.width, 1e-5)
        return self._linear("project_out", self._linear("project_in", h, gelu=True))

    def _mlp(self, name: str, x: str) -> str:
        h = self.g.norm(x, self.width, 1e-5)
        return self._linear(f"{name}_down", self._linear(f"{name}_up", h, gelu=True))

    def _linear(self, name: str, x: str, gelu: bool = False) -> str:
        return self.g.linear(f"world.{name}", x, *self.fast.weights(name), gelu)
