"""A frozen LeWM laid out as ONNX nodes from its folded weights: only what a plan can change is computed again.

Shapes in comments use the model's letters: B batch, t tokens, D latent.
"""

from __future__ import annotations

from typing import Any

import torch

from ...core.onnx_builder import Graph, causal
from .encoders import KeypointEncoder, ViT
from .fast_rollout import FastRollout, fold_batch_norm
from .model import LeWM


class RolloutGraph:
    """`FastRollout`, node by node."""

    def __init__(self, graph: Graph, model: LeWM):
        self.g, self.fast = graph, FastRollout(model)
        self.depth, self.latent = self.fast.depth, self.fast.width
        self.heads, self.context = self.fast.heads, self.fast.context

    def prepare(self, context: str, past_blocks: str) -> tuple[list[str], list[list[tuple[str, str]]]]:
        """What all plans of a problem share: the context's latents, and keys and values of
        tokens no plan can change."""
        g, real = self.g, self.context - 1
        latents = [g.slice(context, j, j + 1) for j in range(self.context)]
        if real == 0:
            return latents, []
        past = self._modulate(past_blocks)
        mods = [g.slice(past, j, j + 1) for j in range(real)]
        prefixes: list[list[tuple[str, str]]] = []
        for first in range(real):
            count = real - first
            x = g.op("Add", g.concat(latents[first:real], 1), g.constant(self.fast.position[:count]))
            parts = g.split(g.concat(mods[first:], 1), 6 * self.depth)
            cached: list[tuple[str, str]] = []
            for i in range(self.depth):
                mod = parts[6 * i : 6 * i + 6]
                h = self._attention_input(x, mod)
                if i < self.depth - 1:
                    q, k, v = g.split(self._linear(f"qkv{i}", h), 3)
                    x = self._finish(i, x, g.attention(q, k, v, self.heads, causal(count, count)), mod)
                else:
                    k, v = g.split(self._linear(f"kv{i}", h), 2)
                cached.append((k, v))
            prefixes.append(cached)
        return latents, prefixes

    def rollout(self, prepared: tuple[list[str], list[list[tuple[str, str]]]], plan: str, horizon: int) -> str:
        """(B, H, A) -> (B, H, D)"""
        context, prefixes = prepared
        g, latents = self.g, list(context)
        blocks = self._modulate(plan)
        for j in range(horizon):
            fresh = min(j + 1, self.context)
            prefix = prefixes[j] if j < len(prefixes) else []
            mods = g.split(g.slice(blocks, j + 1 - fresh, j + 1), 6 * self.depth)
            latents.append(self._transition(g.concat(latents[-fresh:], 1), fresh, mods, prefix))
        return g.concat(latents[self.context :], 1)

    def distance(self, error: str) -> str:
        """(B, H, D) -> (B, H, 1)"""
        return self.g.op("ReduceMean", self.g.op("Mul", error, error), self.g.constant([2]))

    def _modulate(self, blocks: str) -> str:
        embedded = self._linear("embed_out", self.g.silu(self._linear("embed_in", blocks)))
        return self._linear("modulate", self.g.silu(embedded))

    def _transition(self, window: str, fresh: int, mods: tuple[str, ...], prefix: list[tuple[str, str]]) -> str:
        g, known = self.g, self.context - fresh if prefix else 0
        x = g.op("Add", window, g.constant(self.fast.position[self.context - fresh :]))
        for i in range(self.depth):
            mod = mods[6 * i : 6 * i + 6]
            h = self._attention_input(x, mod)
            mask = causal(fresh, fresh + known)
            if i < self.depth - 1:
                q, k, v = g.split(self._linear(f"qkv{i}", h), 3)
            else:  # only the last token is read
                k, v = g.split(self._linear(f"kv{i}", h), 2)
                if fresh > 1:
                    h, x, *mod = (g.slice(value, fresh - 1, fresh) for value in (h, x, *mod))
                q, mask = self._linear(f"q{i}", h), None
            if prefix:
                k, v = g.concat([prefix[i][0], k], 1), g.concat([prefix[i][1], v], 1)
            x = self._finish(i, x, g.attention(q, k, v, self.heads, mask), mod)
        return self._linear("project_out", self._linear("project_in", g.norm(x, self.latent, 1e-5), gelu=True))

    def _attention_input(self, x: str, mod: Any) -> str:
        g = self.g
        return g.norm(g.modulated(g.norm(x, self.latent, 1e-6), mod[1], mod[0]), self.latent, 1e-5)

    def _finish(self, i: int, x: str, mixed: str, mod: Any) -> str:
        g = self.g
        x = g.op("Add", x, g.op("Mul", mod[2], self._linear(f"out{i}", mixed)))
        h = g.norm(g.modulated(g.norm(x, self.latent, 1e-6), mod[4], mod[3]), self.latent, 1e-5)
        return g.op("Add", x, g.op("Mul", mod[5], self._linear(f"down{i}", self._linear(f"up{i}", h, gelu=True))))

    def _linear(self, name: str, x: str, gelu: bool = False) -> str:
        return self.g.linear(f"world.{name}", x, *self.fast.weights(name), gelu)


def encoder_nodes(g: Graph, encoder: torch.nn.Module, projector: Any, pixels: str) -> str:
    """Normalized pixels (B, S, S, 3) -> latents (B, D)."""
    features = _vit(g, encoder, pixels) if isinstance(encoder, ViT) else _keypoints(g, encoder, pixels)  # type: ignore[arg-type]
    first, norm, _, last = projector.net
    hidden = g.linear("projector.in", features, *fold_batch_norm(first.weight, first.bias, norm), gelu=True)
    return g.linear("projector.out", hidden, last.weight, last.bias)


def _vit(g: Graph, vit: ViT, pixels: str) -> str:
    """(B, S, S, 3) -> (B, width): a patch is a row of numbers, and a convolution that never overlaps a linear map."""
    projection: Any = vit.embeddings.patch_embeddings.projection
    position: Any = vit.embeddings.position_embeddings
    patch, width = projection.kernel_size[0], projection.out_channels
    side = round((position.shape[1] - 1) ** 0.5)
    for axis in (1, 2):  # the convolution leaves out what fills no patch
        pixels = g.slice(pixels, 0, side * patch, axis)
    rows = g.op("Reshape", pixels, g.constant([-1, side, patch, side, patch, 3]))
    rows = g.op("Transpose", rows, perm=[0, 1, 3, 2, 4, 5])
    rows = g.op("Reshape", rows, g.constant([-1, side * side, patch * patch * 3]))
    weight = projection.weight.permute(0, 2, 3, 1).flatten(1)
    tokens = g.linear("patches", rows, weight, projection.bias)
    token: Any = vit.embeddings.cls_token
    x = g.concat([g.for_batch(pixels, g.constant(token[0]), [1, width]), tokens], 1)
    x = g.op("Add", x, g.constant(position))
    for i, layer in enumerate(vit.layers):
        x = _vit_layer(g, f"vit.{i}", layer, x, width, last=i == len(vit.layers) - 1)
    norm = vit.layernorm
    x = g.norm(x, width, norm.eps, norm.weight, norm.bias)
    return g.op("Squeeze", x, g.constant([1]))


def _vit_layer(g: Graph, name: str, layer: Any, x: str, width: int, last: bool) -> str:
    """The last layer computes the class token only: nobody reads the others."""
    attention, before, after = layer.attention, layer.layernorm_before, layer.layernorm_after
    h = g.norm(x, width, before.eps, before.weight, before.bias)
    asked = (attention.k_proj, attention.v_proj)
    weight, bias = torch.cat([one.weight for one in asked]), torch.cat([one.bias for one in asked])
    k, v = g.split(g.linear(f"{name}.kv", h, weight, bias), 2)
    if last:
        h, x = g.slice(h, 0, 1), g.slice(x, 0, 1)
    q = g.linear(f"{name}.q", h, attention.q_proj.weight, attention.q_proj.bias)
    mixed = g.attention(q, k, v, attention.heads)
    x = g.op("Add", x, g.linear(f"{name}.o", mixed, attention.o_proj.weight, attention.o_proj.bias))
    h = g.norm(x, width, after.eps, after.weight, after.bias)
    h = g.linear(f"{name}.up", h, layer.mlp.fc1.weight, layer.mlp.fc1.bias, gelu=True)
    return g.op("Add", x, g.linear(f"{name}.down", h, layer.mlp.fc2.weight, layer.mlp.fc2.bias))


def _keypoints(g: Graph, encoder: KeypointEncoder, pixels: str) -> str:
    x = g.op("Transpose", pixels, perm=[0, 3, 1, 2])
    for i, layer in enumerate(encoder.convolutions):
        if isinstance(layer, torch.nn.Conv2d):
            x = _convolution(g, f"convolution.{i}", layer, x)
        elif isinstance(layer, torch.nn.GroupNorm):
            x = _group_norm(g, layer, x)
        else:
            x = g.op("Relu", x)
    maps, cells = encoder.heat.out_channels, len(encoder.moments)
    heat = g.op("Reshape", _convolution(g, "heat", encoder.heat, x), g.constant([-1, maps, cells]))
    heat = g.op("Mul", heat, g.constant(encoder.log_sharpness.exp()))
    moments = g.op("MatMul", g.op("Softmax", heat, axis=-1), g.constant(encoder.moments))
    x, y, xx, yy, xy = g.split(moments, 5)
    ten, tenth = g.constant(torch.tensor([10.0])), g.constant(torch.tensor([0.1]))
    spread = [
        g.op("Mul", g.op("Sub", square, g.op("Mul", *pair)), ten)
        for square, pair in ((xx, (x, x)), (yy, (y, y)), (xy, (x, y)))
    ]
    last = g.constant([2])
    strength = g.op("Sub", g.op("ReduceLogSumExp", heat, last), g.op("ReduceMean", heat, last))
    features = g.concat([x, y, *spread, g.op("Mul", strength, tenth)], 2)
    flat = g.op("Reshape", features, g.constant([-1, 6 * maps]))
    mix: Any = encoder.mix
    linear, norm, _ = mix
    mixed = g.linear("mix", flat, linear.weight, linear.bias)
    return g.op("Relu", g.norm(mixed, len(norm.weight), norm.eps, norm.weight, norm.bias))


def _convolution(g: Graph, name: str, layer: Any, x: str) -> str:
    weight, bias = g.constant(layer.weight, f"{name}.weight"), g.constant(layer.bias, f"{name}.bias")
    pads, strides = [*layer.padding, *layer.padding], [*layer.stride]
    return g.op("Conv", x, weight, bias, pads=pads, strides=strides)


def _group_norm(g: Graph, layer: Any, x: str) -> str:
    return g.op(
        "GroupNormalization",
        x,
        g.constant(layer.weight),
        g.constant(layer.bias),
        num_groups=layer.num_groups,
        epsilon=layer.eps,
    )
