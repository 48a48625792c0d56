"""LeWM: an encoder into a latent space, and a predictor of what an action block does there.

The one convention that must never drift: action block k is the block *leaving* frame k. Parameter names
are those of a released checkpoint, so that weights load by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.dynamics import mean_squared_distance
from .encoders import KeypointConfig, ViTConfig, build_encoder
from .sigreg import sigreg


@dataclass(frozen=True)
class LeWMConfig:
    """The network's sizes. Without a preset those of the released checkpoints: 18.03 M parameters for PushT."""

    encoder: ViTConfig | KeypointConfig = field(default_factory=ViTConfig)
    block_dim: int = 10  # A: environment actions in a block times their size
    context: int = 3  # N
    latent: int = 192  # D
    depth: int = 6
    heads: int = 16
    head_dim: int = 64
    mlp: int = 2048
    dropout: float = 0.1
    projector: int = 2048
    action_smooth: int = 10
    action_mlp: int = 4

    @property
    def latent_shape(self) -> tuple[int, ...]:
        return (self.latent,)

    @property
    def frame_size(self) -> int:
        return self.encoder.frame_size


@dataclass(frozen=True)
class LeWMObjective:
    """The released checkpoints' loss: next-latent prediction and SIGReg."""

    sigreg_weight: float = 0.09
    """weight of SIGReg, which keeps latents from collapsing"""
    projections: int = 1024
    """random directions that SIGReg tests"""


class ProjectedEncoder(nn.Module):
    """What networks share that learn an encoder and a projector: latents are vectors, compared by squared errors."""

    encoder: nn.Module
    projector: Projector

    def encode(self, frames: Tensor) -> Tensor:
        """Normalized frames (B, 3, S, S) -> latents (B, D)."""
        features = self.encoder(frames)
        with torch.autocast(frames.device.type, enabled=False):  # latents are compared by small differences
            return self.projector(features.to(self.projector.dtype))

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return mean_squared_distance(latents, goal)

    def encoder_parts(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "projector": self.projector}

    def onnx_encoder(self, graph: Any, pixels: str) -> str:
        from .onnx_graph import encoder_nodes

        return encoder_nodes(graph, self.encoder, self.projector, pixels)


def prediction_and_spread(
    predicted: Tensor,
    latents: Tensor,  # (B, T, D), the last of them those that were predicted
    objective: LeWMObjective,
    generator: torch.Generator,
    gather: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    """LeWM's loss: the squared error of predicted latents, and SIGReg over all ranks."""
    latents = latents.float()
    prediction = (predicted.float() - latents[:, -predicted.shape[1] :]).square().mean()
    spread = sigreg(gather(latents).transpose(0, 1), objective.projections, generator)
    loss = prediction + objective.sigreg_weight * spread
    return {"loss": loss, "prediction": prediction, "sigreg": spread}


class LeWM(ProjectedEncoder):
    def __init__(self, config: LeWMConfig):
        super().__init__()
        self.config = config
        self.encoder = build_encoder(config.encoder)
        self.predictor = Predictor(config)
        self.action_encoder = ActionEncoder(config)
        self.projector = Projector(config.encoder.width, config.projector, config.latent)
        self.pred_proj = Projector(config.latent, config.projector, config.latent)

    def predict(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """Latents (B, T, D) and the blocks leaving them (B, T, A) -> the T next latents, each from its past only."""
        return self.predict_embedded(latents, self.action_encoder(blocks))

    def predict_embedded(self, latents: Tensor, actions: Tensor) -> Tensor:
        predicted = self.predictor(latents, actions)
        return self.pred_proj(predicted.flatten(0, 1)).unflatten(0, predicted.shape[:2])

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """Imagine a plan: (B, N, D), (B, N-1, A), (B, H, A) -> (B, H, D). The current frame, the last of the
        context, pairs with the plan's first block."""
        n = self.config.context
        actions = self.action_encoder(torch.cat([past_blocks, plan], dim=1))
        latents = list(context.unbind(dim=1))
        for j in range(plan.shape[1]):
            window = torch.stack(latents[j : j + n], dim=1)
            latents.append(self.predict_embedded(window, actions[:, j : j + n])[:, -1])
        return torch.stack(latents[n:], dim=1)

    def losses(
        self,
        latents: Tensor,
        blocks: Tensor,
        objective: LeWMObjective,
        generator: torch.Generator,
        gather: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        predicted = self.predict(latents[:, :-1], blocks)
        return prediction_and_spread(predicted, latents, objective, generator, gather)

    def fast(self, compiled: bool = False, options: dict[str, Any] | None = None) -> Any:
        """The same rollout with less arithmetic."""
        from .fast_rollout import FastRollout

        return FastRollout(self, compiled, options)

    def onnx_rollout(self, graph: Any) -> Any:
        from .onnx_graph import RolloutGraph

        return RolloutGraph(graph, self)


class Projector(nn.Module):
    """Two layers with batch normalization between; without it the latent space collapses in training."""

    def __init__(self, width: int, hidden: int, out: int):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.GELU(), nn.Linear(hidden, out))

    @property
    def dtype(self) -> torch.dtype:
        first: Any = self.net[0]
        return first.weight.dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ActionEncoder(nn.Module):
    def __init__(self, config: LeWMConfig):
        super().__init__()
        self.patch_embed = nn.Conv1d(config.block_dim, config.action_smooth, kernel_size=1)
        hidden = config.action_mlp * config.latent
        self.embed = nn.Sequential(nn.Linear(config.action_smooth, hidden), nn.SiLU(), nn.Linear(hidden, config.latent))

    def forward(self, blocks: Tensor) -> Tensor:
        """(B, T, A) -> (B, T, D). A convolution of kernel 1 is a linear map; calling it one is faster."""
        return self.embed(F.linear(blocks, self.patch_embed.weight[:, :, 0], self.patch_embed.bias))


class Predictor(nn.Module):
    transformer: Any

    def __init__(self, config: LeWMConfig):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, config.context, config.latent))
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList([ConditionalBlock(config) for _ in range(config.depth)])
        self.transformer.norm = nn.LayerNorm(config.latent)

    def forward(self, latents: Tensor, actions: Tensor) -> Tensor:
        x = latents + self.pos_embedding[:, : latents.shape[1]]
        for layer in self.transformer.layers:
            x = layer(x, actions)
        return self.transformer.norm(x)


class ConditionalBlock(nn.Module):
    """A causal transformer block modulated by the action (AdaLN-zero: it starts as the identity)."""

    def __init__(self, config: LeWMConfig):
        super().__init__()
        width = config.latent
        self.attn = CausalAttention(config)
        self.mlp = FeedForward(config)
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        modulate: Any = self.adaLN_modulation[1]
        nn.init.zeros_(modulate.weight)
        nn.init.zeros_(modulate.bias)

    def forward(self, x: Tensor, actions: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaLN_modulation(actions).chunk(6, dim=-1)
        x = x + gate1 * self.attn(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class BlockSizes(Protocol):
    """What a transformer block is made from."""

    @property
    def latent(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def mlp(self) -> int: ...
    @property
    def dropout(self) -> float: ...


class CausalAttention(nn.Module):
    def __init__(self, config: BlockSizes):
        super().__init__()
        inner = config.heads * config.head_dim
        self.heads, self.dropout = config.heads, config.dropout
        self.norm = nn.LayerNorm(config.latent)
        self.to_qkv = nn.Linear(config.latent, 3 * inner, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, config.latent), nn.Dropout(config.dropout))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: BlockSizes):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(config.latent),
            nn.Linear(config.latent, config.mlp),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.mlp, config.latent),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)
