"""The rollout of a frozen Fast-LeWM, rearranged for speed: the same function, less arithmetic.

Tokens that no plan can change (latents of real frames, executed blocks) run once a problem and leave their keys and
values. A value projection is two linear maps in a row, which are one. Affine maps of layer and batch normalization are
folded into the frozen weights beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.dynamics import compiled_region, mean_squared_distance
from ...core.fast_math import gelu
from ...core.latent import LatentSpec
from ..lewm.fast_rollout import (
    FoldedWeights,
    KeysValues,
    after_norm,
    attend,
    chain,
    fold_batch_norm,
    plain_norm,
    unit_scales,
)
from .model import FastLeWM, positions


class FastRollout(FoldedWeights):
    """Satisfies `Dynamics`, with `prepare` for what all plans of a problem share."""

    def __init__(self, model: FastLeWM, compiled: bool = False, options: dict[str, Any] | None = None):
        super().__init__()
        config = model.config
        self.context, self.depth, self.width = config.context, config.depth, config.latent
        self.prefix_depth, self.heads = config.prefix_depth, config.prefix_heads
        self.latent = LatentSpec(config.latent_shape)
        prefixes, predictor = model.action_encoder.impl, model.predictor
        with torch.no_grad():
            self.keep("latent_in", prefixes.latent_proj[0].weight, prefixes.latent_proj[0].bias)
            self.keep("latent_out", prefixes.latent_proj[2].weight, prefixes.latent_proj[2].bias)
            self.keep("embed_in", *chain(prefixes.embed[0], prefixes.token_proj.weight, prefixes.token_proj.bias))
            self.keep("embed_out", prefixes.embed[2].weight, prefixes.embed[2].bias)
            for i, layer in enumerate(prefixes.temporal_mixer.layers):
                self.keep(f"qkv{i}", *after_norm(layer.attn.to_qkv, layer.attn.norm))
                self.keep(f"out{i}", layer.attn.to_out[0].weight, layer.attn.to_out[0].bias)
                self._keep_mlp(f"prefix{i}", layer.mlp)
            norm, last = prefixes.temporal_mixer.norm, prefixes.out_norm
            self.keep("norm", norm.weight, norm.bias)
            self.keep("out_norm", last.weight, last.bias)
            fuse: Any = predictor.action_fusion_mlp
            self.keep("fuse_in", *after_norm(fuse[0], predictor.action_fusion_norm))
            self.keep("fuse_out", fuse[2].weight, fuse[2].bias)
            layers: Any = predictor.transition_stack.layers
            modulations = [unit_scales(layer.adaLN_modulation[1]) for layer in layers]
            self.keep("modulate", *(torch.cat(parts) for parts in zip(*modulations, strict=True)))
            for i, layer in enumerate(layers):
                self.keep(
                    f"value{i}",
                    *chain(layer.value_proj.to_out[0], *after_norm(layer.value_proj.to_v, layer.value_proj.norm)),
                )
                self._keep_mlp(f"point{i}", layer.mlp)
            pred_proj: Any = model.pred_proj.net
            first, batch_norm, _, last = pred_proj
            folded = after_norm(first, predictor.transition_stack.norm)
            self.keep("project_in", *fold_batch_norm(*folded, batch_norm))
            self.keep("project_out", last.weight, last.bias)
        self.to(predictor.action_fusion_norm.weight.device)
        self._run = compiled_region(self._imagine, options) if compiled else self._imagine

    def _keep_mlp(self, name: str, mlp: Any) -> None:
        self.keep(f"{name}_up", *after_norm(mlp.net[1], mlp.net[0]))
        self.keep(f"{name}_down", mlp.net[4].weight, mlp.net[4].bias)

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        return self.prepare(context, past_blocks)(plan)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return mean_squared_distance(latents, goal)

    def prepare(self, context: Tensor, past_blocks: Tensor) -> Callable[[Tensor], Tensor]:
        """(B, N, D), (B, N-1, A) -> a function of the plan."""
        with torch.no_grad():
            latents = self.linear("latent_out", gelu(self.linear("latent_in", context)))
            known = torch.cat([latents, self._embed(past_blocks)], dim=1)
            _, cached = self._mix(known + positions(known.shape[1], self.width).to(known), [])
        start = context[:, -1:]
        return lambda plan: self._run(start, cached, plan)

    def _imagine(self, start: Tensor, cached: list[KeysValues], plan: Tensor) -> Tensor:
        before, horizon = 2 * self.context - 1, plan.shape[1]
        places = positions(before + horizon, self.width)[before:].to(plan)
        x, _ = self._mix(self._embed(plan) + places, cached)
        return self._move(start.expand(-1, horizon, -1), self._summary(x))

    def _embed(self, blocks: Tensor) -> Tensor:
        return self.linear("embed_out", F.silu(self.linear("embed_in", blocks)))

    def _mix(self, x: Tensor, cached: list[KeysValues]) -> tuple[Tensor, list[KeysValues]]:
        """The causal transformer over tokens (B, t, D) after those whose keys and values are known."""
        kept: list[KeysValues] = []
        for i in range(self.prefix_depth):
            h = self.linear(f"qkv{i}", F.layer_norm(plain_norm(x), (self.width,)))
            q, k, v = torch.unflatten(h, -1, (3, self.heads, -1)).unbind(dim=2)
            kept.append((k, v))
            if cached:
                k, v = torch.cat([cached[i][0], k], dim=1), torch.cat([cached[i][1], v], dim=1)
            x = x + self.linear(f"out{i}", attend(q, k, v).flatten(2))
            x = x + self._mlp(f"prefix{i}", plain_norm(x))
        return x, kept

    def _summary(self, x: Tensor) -> Tensor:
        for name in ("norm", "out_norm"):
            x = F.layer_norm(x, (self.width,), *self.weights(name))
        return x

    def _move(self, x: Tensor, prefixes: Tensor) -> Tensor:
        seen = F.layer_norm(torch.cat([x, prefixes, x * prefixes], dim=-1), (3 * self.width,))
        x = x + self.linear("fuse_out", gelu(self.linear("fuse_in", seen)))
        modulation = torch.unflatten(self.linear("modulate", F.silu(prefixes)), -1, (self.depth, 6, self.width))
        for i in range(self.depth):
            shift1, scale1, gate1, shift2, scale2, gate2 = modulation[:, :, i].unbind(dim=2)
            h = F.layer_norm(plain_norm(x) * scale1 + shift1, (self.width,))
            x = x + gate1 * self.linear(f"value{i}", h)
            x = x + gate2 * self._mlp(f"point{i}", plain_norm(x) * scale2 + shift2)
        x = F.layer_norm(x, (self.width,))
        return self.linear("project_out", gelu(self.linear("project_in", x)))

    def _mlp(self, name: str, x: Tensor) -> Tensor:
        h = F.layer_norm(x, (self.width,))
        return self.linear(f"{name}_down", gelu(self.linear(f"{name}_up", h)))
