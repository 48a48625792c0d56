"""Fast-LeWM: LeWM's encoder, and a predictor that sees the whole plan at once.

A small causal transformer reads the start latent and all blocks; its output at block j encodes blocks 1..j, a prefix of
the plan. The predictor maps the start latent and each prefix to one future latent, each on its own, so that a rollout
of H blocks is one call and nothing is fed back. Parameter names are those of a released checkpoint, so that weights
load by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..lewm.encoders import KeypointConfig, ViTConfig, build_encoder
from ..lewm.model import (
    CausalAttention,
    FeedForward,
    LeWMObjective,
    ProjectedEncoder,
    Projector,
    prediction_and_spread,
)


@dataclass(frozen=True)
class PrefixSizes:
    """Of the transformer over action prefixes."""

    latent: int
    heads: int
    head_dim: int
    mlp: int
    dropout: float = 0.0


@dataclass(frozen=True)
class FastLeWMConfig:
    """The network's sizes. Without a preset those of the released checkpoints: 17.9 M parameters for PushT."""

    encoder: ViTConfig | KeypointConfig = field(default_factory=ViTConfig)
    block_dim: int = 10  # A: environment actions in a block times their size
    context: int = 1  # N; 1 as released, more sees velocity
    prefixes: int = 5
    """blocks after the context in a training window: every prefix of them is predicted"""
    latent: int = 192  # D
    depth: int = 6
    heads: int = 16
    head_dim: int = 64
    mlp: int = 2048
    dropout: float = 0.1
    fusion: int = 768
    projector: int = 2048
    action_smooth: int = 32
    action_mlp: int = 4
    prefix_depth: int = 3
    prefix_heads: int = 6
    prefix_head_dim: int = 32
    prefix_mlp: int = 768

    @property
    def latent_shape(self) -> tuple[int, ...]:
        return (self.latent,)

    @property
    def frame_size(self) -> int:
        return self.encoder.frame_size


class FastLeWM(ProjectedEncoder):
    action_encoder: Any

    def __init__(self, config: FastLeWMConfig):
        super().__init__()
        self.config = config
        self.encoder = build_encoder(config.encoder)
        self.predictor = PointwisePredictor(config)
        self.action_encoder = nn.Module()
        self.action_encoder.impl = PrefixEncoder(config)  # the released name
        self.projector = Projector(config.encoder.width, config.projector, config.latent)
        self.pred_proj = Projector(config.latent, config.projector, config.latent)

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """Imagine a plan: (B, N, D), (B, N-1, A), (B, H, A) -> (B, H, D), in one predictor call."""
        prefixes = self.action_encoder.impl(context, torch.cat([past_blocks, plan], dim=1))[:, -plan.shape[1] :]
        predicted = self.predictor(context[:, -1:].expand(-1, plan.shape[1], -1), prefixes)
        return self.pred_proj(predicted.flatten(0, 1)).unflatten(0, predicted.shape[:2])

    def predictor_calls(self, horizon: int) -> int:
        return 1

    def losses(
        self,
        latents: Tensor,
        blocks: Tensor,
        objective: LeWMObjective,
        generator: torch.Generator,
        gather: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        """Every prefix counts alike."""
        n = self.config.context
        predicted = self.rollout(latents[:, :n], blocks[:, : n - 1], blocks[:, n - 1 :])
        return prediction_and_spread(predicted, latents, objective, generator, gather)

    def fast(self, compiled: bool = False, options: dict[str, Any] | None = None) -> Any:
        """The same rollout with less arithmetic."""
        from .fast_rollout import FastRollout

        return FastRollout(self, compiled, options)

    def onnx_rollout(self, graph: Any) -> Any:
        from .onnx_graph import RolloutGraph

        return RolloutGraph(graph, self)


class PrefixEncoder(nn.Module):
    """What blocks 1..j do to the context, for every j."""

    temporal_mixer: Any

    def __init__(self, config: FastLeWMConfig):
        super().__init__()
        width, hidden = config.latent, config.action_mlp * config.latent
        self.latent_proj = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.token_proj = nn.Linear(config.block_dim, config.action_smooth)
        self.embed = nn.Sequential(nn.Linear(config.action_smooth, hidden), nn.SiLU(), nn.Linear(hidden, width))
        sizes = PrefixSizes(width, config.prefix_heads, config.prefix_head_dim, config.prefix_mlp)
        self.temporal_mixer = nn.Module()
        self.temporal_mixer.layers = nn.ModuleList([PrefixBlock(sizes) for _ in range(config.prefix_depth)])
        self.temporal_mixer.norm = nn.LayerNorm(width)
        self.out_norm = nn.LayerNorm(width)

    def forward(self, context: Tensor, blocks: Tensor) -> Tensor:
        """Latents (B, N, D), and the N-1 blocks between them with the plan's after them (B, T, A) -> (B, T, D). Real
        latents stand in front of all blocks, so that none of them waits for what comes later."""
        x = torch.cat([self.latent_proj(context), self.embed(self.token_proj(blocks))], dim=1)
        x = x + positions(x.shape[1], x.shape[2]).to(x)
        for layer in self.temporal_mixer.layers:
            x = layer(x)
        return self.out_norm(self.temporal_mixer.norm(x[:, context.shape[1] :]))


def positions(length: int, width: int) -> Tensor:
    """Sines and cosines of place, in turns: (T, D)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


class PrefixBlock(nn.Module):
    """A causal transformer block."""

    def __init__(self, config: PrefixSizes):
        super().__init__()
        self.attn = CausalAttention(config)
        self.mlp = FeedForward(config)
        self.norm1 = nn.LayerNorm(config.latent, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(config.latent, elementwise_affine=False, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PointwisePredictor(nn.Module):
    """Maps the start latent and each prefix to a future latent; prefixes do not see each other."""

    transition_stack: Any

    def __init__(self, config: FastLeWMConfig):
        super().__init__()
        width = config.latent
        self.action_fusion_norm = nn.LayerNorm(3 * width)
        last = nn.Linear(config.fusion, width)
        self.action_fusion_mlp = nn.Sequential(nn.Linear(3 * width, config.fusion), nn.GELU(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.transition_stack = nn.Module()
        self.transition_stack.layers = nn.ModuleList([PointwiseBlock(config) for _ in range(config.depth)])
        self.transition_stack.norm = nn.LayerNorm(width)

    def forward(self, latents: Tensor, prefixes: Tensor) -> Tensor:
        """(B, H, D), (B, H, D) -> (B, H, D)"""
        seen = torch.cat([latents, prefixes, latents * prefixes], dim=-1)
        x = latents + self.action_fusion_mlp(self.action_fusion_norm(seen))
        for layer in self.transition_stack.layers:
            x = layer(x, prefixes)
        return self.transition_stack.norm(x)


class PointwiseBlock(nn.Module):
    """Modulated by the prefix (AdaLN-zero: it starts as the identity). Attention of one token to itself is a linear
    map of its value, and that is all that is left of it here."""

    def __init__(self, config: FastLeWMConfig):
        super().__init__()
        width = config.latent
        self.value_proj = ValueProjection(config)
        self.mlp = FeedForward(config)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        modulate = nn.Linear(width, 6 * width)
        nn.init.zeros_(modulate.weight)
        nn.init.zeros_(modulate.bias)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), modulate)

    def forward(self, x: Tensor, prefixes: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(prefixes).chunk(6, dim=-1)
        x = x + gate1 * self.value_proj(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class ValueProjection(nn.Module):
    def __init__(self, config: FastLeWMConfig):
        super().__init__()
        inner = config.heads * config.head_dim
        self.norm = nn.LayerNorm(config.latent)
        self.to_v = nn.Linear(config.latent, inner, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, config.latent), nn.Dropout(config.dropout))

    def forward(self, x: Tensor) -> Tensor:
        return self.to_out(self.to_v(self.norm(x)))
