"""The rollout of a frozen LeWM, rearranged for speed: the same function, less arithmetic.

Action modulations are computed once a block, not once a window that holds it. Tokens that no plan can change
(real frames with executed blocks) run once a problem. The last layer computes the one token that is read. The
affine maps of layer and batch normalization are folded into the frozen weights beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.dynamics import compiled_region, mean_squared_distance
from ...core.fast_math import gelu
from ...core.latent import LatentSpec
from .model import ConditionalBlock, LeWM

KeysValues = tuple[Tensor, Tensor]  # (B, S, heads, E) each


class FoldedWeights(nn.Module):
    """Frozen linear maps by name."""

    def keep(self, name: str, weight: Tensor, bias: Tensor) -> None:
        self.register_buffer(f"{name}_weight", weight.detach().clone())
        self.register_buffer(f"{name}_bias", bias.detach().clone())

    def weights(self, name: str) -> tuple[Tensor, Tensor]:
        return getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, *self.weights(name))


class FastRollout(FoldedWeights):
    """Satisfies `Dynamics`, with `prepare` for what all plans of a problem share."""

    position: Tensor

    def __init__(self, model: LeWM, compiled: bool = False, options: dict[str, Any] | None = None):
        super().__init__()
        config = model.config
        self.context, self.depth, self.width, self.heads = config.context, config.depth, config.latent, config.heads
        self.latent = LatentSpec(config.latent_shape)
        embed: Any = model.action_encoder.embed
        smooth: Any = model.action_encoder.patch_embed
        layers: Sequence[ConditionalBlock] = list(model.predictor.transformer.layers)
        with torch.no_grad():
            self.keep("embed_in", *chain(embed[0], smooth.weight[:, :, 0], smooth.bias))
            self.keep("embed_out", embed[2].weight, embed[2].bias)
            modulations = [unit_scales(layer.adaLN_modulation[1]) for layer in layers]
            self.keep("modulate", *(torch.cat(parts) for parts in zip(*modulations, strict=True)))
            for i, layer in enumerate(layers):
                qkv, inner = after_norm(layer.attn.to_qkv, layer.attn.norm), config.heads * config.head_dim
                if i < config.depth - 1:
                    self.keep(f"qkv{i}", *qkv)
                else:  # only the last token asks
                    self.keep(f"q{i}", *(part[:inner] for part in qkv))
                    self.keep(f"kv{i}", *(part[inner:] for part in qkv))
                out: Any = layer.attn.to_out[0]
                self.keep(f"out{i}", out.weight, out.bias)
                self.keep(f"up{i}", *after_norm(layer.mlp.net[1], layer.mlp.net[0]))
                down: Any = layer.mlp.net[4]
                self.keep(f"down{i}", down.weight, down.bias)
            pred_proj: Any = model.pred_proj.net
            first, norm, _, last = pred_proj
            self.keep("project_in", *fold_batch_norm(*after_norm(first, model.predictor.transformer.norm), norm))
            self.keep("project_out", last.weight, last.bias)
            self.register_buffer("position", model.predictor.pos_embedding[0].clone())
        self.to(model.predictor.pos_embedding.device)
        self._run = compiled_region(self._imagine, options) if compiled else self._imagine

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        return self.prepare(context, past_blocks)(plan)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return mean_squared_distance(latents, goal)

    def prepare(self, context: Tensor, past_blocks: Tensor) -> Callable[[Tensor], Tensor]:
        """(B, N, D), (B, N-1, A) -> a function of the plan."""
        with torch.no_grad():
            prefixes = self._prefixes(context, self._modulate(past_blocks))

        return lambda plan: self._run(context, prefixes, plan)

    def _imagine(self, context: Tensor, prefixes: list[list[KeysValues]], plan: Tensor) -> Tensor:
        n = self.context
        blocks = self._modulate(plan)
        latents = list(context.unbind(dim=1))
        for j in range(plan.shape[1]):
            prefix = prefixes[j] if j < n - 1 else []
            fresh = min(j + 1, n)
            window = torch.stack(latents[-fresh:], dim=1)
            latents.append(self._transition(window, blocks[:, j + 1 - fresh : j + 1], prefix))
        return torch.stack(latents[n:], dim=1)

    def _modulate(self, blocks: Tensor) -> Tensor:
        """(B, T, A) -> (B, T, depth, 6, D): what an action block does to every layer that sees it."""
        embedded = self.linear("embed_out", F.silu(self.linear("embed_in", blocks)))
        return torch.unflatten(self.linear("modulate", F.silu(embedded)), -1, (self.depth, 6, self.width))

    def _prefixes(self, context: Tensor, past: Tensor) -> list[list[KeysValues]]:
        """For each window that still holds real frames, keys and values of those that leave by an executed block,
        in each layer. Window j holds the frames from j on; all windows run as one batch, filled up at their ends,
        which no token before them sees."""
        real = self.context - 1
        if real == 0:
            return []

        def windows(tokens: Tensor) -> Tensor:
            rows = [torch.cat([tokens[:, j:real], tokens[:, :j]], dim=1) for j in range(real)]
            return torch.cat(rows)

        x, modulation = windows(context) + self.position[:real], windows(past)
        cached: list[KeysValues] = []
        for i in range(self.depth):
            h = self._attention_input(x, modulation[:, :, i])
            if i < self.depth - 1:
                q, k, v = self._split(self.linear(f"qkv{i}", h), 3)
                x = self._finish(i, x, attend(q, k, v), modulation[:, :, i])
            else:
                k, v = self._split(self.linear(f"kv{i}", h), 2)
            cached.append((k, v))
        batch = len(context)
        return [
            [
                (k[j * batch : (j + 1) * batch, : real - j], v[j * batch : (j + 1) * batch, : real - j])
                for k, v in cached
            ]
            for j in range(real)
        ]

    def _transition(self, latents: Tensor, modulation: Tensor, prefix: list[KeysValues]) -> Tensor:
        """The window's last tokens (B, t, D), after a prefix that is already known -> the next latent (B, D)."""
        x = latents + self.position[self.context - latents.shape[1] :]
        for i in range(self.depth):
            mod = modulation[:, :, i]
            h = self._attention_input(x, mod)
            if i < self.depth - 1:
                q, k, v = self._split(self.linear(f"qkv{i}", h), 3)
            else:  # only the last token is read
                q = torch.unflatten(self.linear(f"q{i}", h[:, -1:]), -1, (self.heads, -1))
                k, v = self._split(self.linear(f"kv{i}", h), 2)
                x, mod = x[:, -1:], mod[:, -1:]
            if prefix:
                k, v = torch.cat([prefix[i][0], k], dim=1), torch.cat([prefix[i][1], v], dim=1)
            x = self._finish(i, x, attend(q, k, v), mod)
        x = F.layer_norm(x[:, 0], (self.width,))
        return self.linear("project_out", gelu(self.linear("project_in", x)))

    def _attention_input(self, x: Tensor, mod: Tensor) -> Tensor:
        return F.layer_norm(plain_norm(x) * mod[:, :, 1] + mod[:, :, 0], (self.width,))

    def _finish(self, i: int, x: Tensor, mixed: Tensor, mod: Tensor) -> Tensor:
        x = x + mod[:, :, 2] * self.linear(f"out{i}", mixed.flatten(2))
        h = F.layer_norm(plain_norm(x) * mod[:, :, 4] + mod[:, :, 3], (self.width,))
        return x + mod[:, :, 5] * self.linear(f"down{i}", gelu(self.linear(f"up{i}", h)))

    def _split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return torch.unflatten(x, -1, (parts, self.heads, -1)).unbind(dim=2)


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """Attention of the last t of S tokens: (B, t, h, E), (B, S, h, E) -> (B, t, h, E). For a handful of
    tokens products and sums fuse; a kernel made for long sequences spends its time on starting."""
    t, s = q.shape[1], k.shape[1]
    scores = (q.unsqueeze(2) * k.unsqueeze(1)).sum(-1) / math.sqrt(q.shape[-1])  # (B, t, S, h)
    if causal and t > 1:
        late = torch.ones(t, s, dtype=torch.bool, device=q.device).triu(s - t + 1)
        scores = scores.masked_fill(late[None, :, :, None], -math.inf)
    return (scores.softmax(dim=2).unsqueeze(-1) * v.unsqueeze(1)).sum(2)


def plain_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), eps=1e-6)


def chain(second: Any, weight: Tensor, bias: Tensor) -> KeysValues:
    """Two linear maps as one."""
    return _product(second.weight, weight), _product(second.weight, bias) + second.bias


def after_norm(linear: Any, norm: Any) -> KeysValues:
    """A layer normalization's affine map, folded into the linear map after it."""
    bias = _product(linear.weight, norm.bias)
    return linear.weight * norm.weight, bias if linear.bias is None else bias + linear.bias


def _product(left: Tensor, right: Tensor) -> Tensor:
    """In float64 and rounded once: the same whatever the threads and the device, not all of which know float64."""
    return (left.cpu().double() @ right.cpu().double()).to(left)


def fold_batch_norm(weight: Tensor, bias: Tensor, norm: Any) -> KeysValues:
    """A frozen batch normalization, folded into the linear map before it."""
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    return weight * scale[:, None], scale * (bias - norm.running_mean) + norm.bias


def unit_scales(linear: Any) -> KeysValues:
    """AdaLN uses 1 + scale: the 1 moves into the bias of the two scales among its six parts."""
    bias = linear.bias.clone().unflatten(0, (6, -1))
    bias[1] += 1
    bias[4] += 1
    return linear.weight, bias.flatten()
