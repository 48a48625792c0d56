"""DINO-WM: a frozen patch encoder, and a transformer that predicts the patches of the next frame.

The action block leaving a frame is embedded and concatenated to each of the frame's patches. Attention is causal by
frame: a patch sees all patches of its own frame and of those before. Parameter names of predictor and action encoder
are stable-worldmodel's, so that weights load by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.dynamics import mean_squared_distance
from .dinov2 import DINOv2, DINOv2Config
from .local import LocalConfig, LocalEncoder
from .rollout import PatchRollout


@dataclass(frozen=True)
class DinoWMConfig:
    """The network's sizes. Without a preset those of the paper: DINOv2-S at 224 px, 256 patches of 384 numbers."""

    encoder: DINOv2Config | LocalConfig = field(default_factory=DINOv2Config)
    block_dim: int = 10  # A: environment actions in a block times their size
    context: int = 3  # N
    action_channels: int = 10  # of the block's embedding, concatenated to every patch
    depth: int = 6
    heads: int = 16
    head_dim: int = 64
    mlp: int = 2048
    dropout: float = 0.1

    @property
    def latent_shape(self) -> tuple[int, ...]:
        return (self.encoder.side**2, self.encoder.width)

    @property
    def frame_size(self) -> int:
        return self.encoder.frame_size

    @property
    def width(self) -> int:
        """Of the predictor's tokens: a patch and the action block beside it."""
        return self.encoder.width + self.action_channels


@dataclass(frozen=True)
class DinoWMObjective:
    """Teacher forcing: the squared error of the next frame's patches. It has no weights to choose."""


class DinoWM(nn.Module):
    def __init__(self, config: DinoWMConfig):
        super().__init__()
        self.config = config
        encoder = config.encoder
        self.encoder = DINOv2(encoder) if isinstance(encoder, DINOv2Config) else LocalEncoder(encoder)
        self.encoder.requires_grad_(False)  # frozen from the start: only predictor and action encoder are trained
        self.action_encoder = ActionEncoder(config)
        self.predictor = CausalPredictor(config)

    def encode(self, frames: Tensor) -> Tensor:
        """Normalized frames (B, 3, S, S) -> latents (B, P, C)."""
        with torch.autocast(frames.device.type, enabled=False):  # training targets equal what the world encodes later
            return self.encoder(frames)

    def predict(self, latents: Tensor, blocks: Tensor) -> Tensor:
        """Latents (B, T, P, C) and the blocks leaving them (B, T, A) -> the T next latents, each from its past only."""
        frames, (patches, channels) = latents.shape[1], self.config.latent_shape
        tokens = self.tokens(latents, self.action_encoder(blocks))
        predicted = torch.unflatten(self.predictor(tokens), 1, (frames, patches))
        return predicted[..., :channels]  # the next block's embedding takes the place of the other channels

    def tokens(self, latents: Tensor, actions: Tensor) -> Tensor:
        """(B, T, P, C), (B, T, E) -> (B, T * P, C + E): every patch with its frame's action beside it."""
        beside = actions.unsqueeze(2).expand(-1, -1, self.config.latent_shape[0], -1)
        return torch.cat([latents, beside.to(latents.dtype)], dim=-1).flatten(1, 2)

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """Imagine a plan: (B, N, P, C), (B, N-1, A), (B, H, A) -> (B, H, P, C). The current frame, the last of the
        context, pairs with the plan's first block."""
        return self.prepare(context, past_blocks)(plan)

    def prepare(self, context: Tensor, past_blocks: Tensor) -> Callable[[Tensor], Tensor]:
        """A function of the plan; what all plans of a problem share is computed here."""
        return PatchRollout(self).prepare(context, past_blocks)

    def fast(self, compiled: bool = False, options: dict[str, Any] | None = None) -> Any:
        """The same, never compiled: compiling takes minutes, and a step is no faster than with `prepare`."""
        return PatchRollout(self)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return mean_squared_distance(latents, goal)

    def encoder_parts(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder}

    def losses(
        self,
        latents: Tensor,
        blocks: Tensor,
        objective: DinoWMObjective,
        generator: torch.Generator,
        gather: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        prediction = (self.predict(latents[:, :-1], blocks).float() - latents[:, 1:].float()).square().mean()
        return {"loss": prediction, "prediction": prediction.detach()}


class ActionEncoder(nn.Module):
    def __init__(self, config: DinoWMConfig):
        super().__init__()
        self.patch_embed = nn.Conv1d(config.block_dim, config.action_channels, kernel_size=1)

    def forward(self, blocks: Tensor) -> Tensor:
        """(B, T, A) -> (B, T, channels). A convolution of kernel 1 is a linear map; calling it one is faster."""
        return F.linear(blocks, self.patch_embed.weight[:, :, 0], self.patch_embed.bias)


class CausalPredictor(nn.Module):
    transformer: Any
    mask: Tensor

    def __init__(self, config: DinoWMConfig):
        super().__init__()
        patches, frames = config.latent_shape[0], config.context
        self.pos_embedding = nn.Parameter(torch.randn(1, frames * patches, config.width))
        self.transformer = nn.Module()
        self.transformer.norm = nn.LayerNorm(config.width)
        self.transformer.layers = nn.ModuleList(
            [nn.ModuleList([Attention(config), FeedForward(config)]) for _ in range(config.depth)]
        )
        self.register_buffer("mask", frame_causal_mask(frames, patches), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T * P, W) -> (B, T * P, W)"""
        count = tokens.shape[1]
        mask = self.mask[:count, :count]
        x = tokens + self.pos_embedding[:, :count]
        for attention, feed_forward in self.transformer.layers:
            x = x + attention(x, mask)
            x = x + feed_forward(x)
        return self.transformer.norm(x)


def frame_causal_mask(frames: int, patches: int) -> Tensor:
    """(T * P, T * P), true where a token may look: at its own frame and at earlier ones."""
    frame = torch.arange(frames).repeat_interleave(patches)
    return frame[:, None] >= frame[None, :]


class Attention(nn.Module):
    def __init__(self, config: DinoWMConfig):
        super().__init__()
        inner = config.heads * config.head_dim
        self.heads, self.dropout = config.heads, config.dropout
        self.norm = nn.LayerNorm(config.width)
        self.to_qkv = nn.Linear(config.width, 3 * inner, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, config.width), nn.Dropout(config.dropout))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.mix(*self.queries_keys_values(x), mask)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, S, W) -> (B, heads, S, E) each"""
        split = torch.unflatten(self.to_qkv(self.norm(x)), -1, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: DinoWMConfig):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(config.width),
            nn.Linear(config.width, config.mlp),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.mlp, config.width),
            nn.Dropout(config.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)
