"""Frames to features: the ViT of the released LeWM checkpoints, and a small keypoint encoder for CPUs.

Parameter names of the ViT are those of a released checkpoint, so that weights load by name.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class ViTConfig:
    """LeWM's encoder: ViT-tiny, read out at the class token."""

    kind: ClassVar[str] = "vit"
    resampling: ClassVar[str] = "bilinear"  # of frames of another size
    frame_size: int = 224
    patch: int = 14
    width: int = 192
    depth: int = 12
    heads: int = 3
    mlp_ratio: int = 4


@dataclass(frozen=True)
class KeypointConfig:
    """Convolutions, then for each of `keypoints` heat maps where it is, how far it spreads and how strong it is."""

    kind: ClassVar[str] = "keypoint"
    frame_size: int = 64
    channels: tuple[int, ...] = (32, 64)  # each halves the resolution
    extra_convolutions: int = 1  # at the final resolution
    keypoints: int = 32
    sharpness: float = 6.0
    """of new heat maps: the center of a flat one hardly moves with what it sees, and learning starts slowly"""
    width: int = 192
    """numbers that the encoder returns"""


class ViT(nn.Module):
    embeddings: Any

    def __init__(self, config: ViTConfig):
        super().__init__()
        patches = (config.frame_size // config.patch) ** 2
        self.embeddings = nn.Module()
        self.embeddings.cls_token = nn.Parameter(torch.randn(1, 1, config.width) * 0.02)
        self.embeddings.position_embeddings = nn.Parameter(torch.randn(1, patches + 1, config.width) * 0.02)
        self.embeddings.patch_embeddings = nn.Module()
        self.embeddings.patch_embeddings.projection = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.layers = nn.ModuleList([ViTLayer(config) for _ in range(config.depth)])
        self.layernorm = nn.LayerNorm(config.width, eps=1e-12)

    def forward(self, frames: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, width)"""
        patches = self.embeddings.patch_embeddings.projection(frames).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.embeddings.cls_token.expand(len(frames), -1, -1), patches], dim=1)
        tokens = tokens + self.embeddings.position_embeddings
        for layer in self.layers:
            tokens = layer(tokens)
        return self.layernorm(tokens[:, 0])


class ViTLayer(nn.Module):
    mlp: Any

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.attention = ViTAttention(config)
        self.layernorm_before = nn.LayerNorm(config.width, eps=1e-12)
        self.layernorm_after = nn.LayerNorm(config.width, eps=1e-12)
        self.mlp = nn.Module()
        self.mlp.fc1 = nn.Linear(config.width, config.width * config.mlp_ratio)
        self.mlp.fc2 = nn.Linear(config.width * config.mlp_ratio, config.width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.layernorm_before(tokens))
        return tokens + self.mlp.fc2(F.gelu(self.mlp.fc1(self.layernorm_after(tokens))))


class ViTAttention(nn.Module):
    def __init__(self, config: ViTConfig):
        super().__init__()
        self.heads = config.heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(config.width, config.width) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (
            project(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class KeypointEncoder(nn.Module):
    moments: Tensor

    def __init__(self, config: KeypointConfig):
        super().__init__()
        widths = [3, *config.channels]
        layers: list[nn.Module] = []
        for index, (narrow, wide) in enumerate(itertools.pairwise(widths)):
            kernel = 5 if index == 0 else 3
            layers += [
                nn.Conv2d(narrow, wide, kernel, stride=2, padding=kernel // 2),
                nn.GroupNorm(8, wide),
                nn.ReLU(inplace=True),
            ]
        for _ in range(config.extra_convolutions):
            layers += [
                nn.Conv2d(widths[-1], widths[-1], 3, padding=1),
                nn.GroupNorm(8, widths[-1]),
                nn.ReLU(inplace=True),
            ]
        self.convolutions = nn.Sequential(*layers)
        self.heat = nn.Conv2d(widths[-1], config.keypoints, 1)
        self.log_sharpness = nn.Parameter(torch.full((config.keypoints, 1), config.sharpness).log())
        side = config.frame_size // 2 ** len(config.channels)
        axis = torch.linspace(-1.0, 1.0, side)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        # moments of a heat map: mean x and y, then the raw second moments
        moments = torch.stack([x, y, x * x, y * y, x * y], dim=-1).reshape(-1, 5)
        self.register_buffer("moments", moments, persistent=False)
        self.mix = nn.Sequential(nn.Linear(config.keypoints * 6, config.width), nn.LayerNorm(config.width), nn.ReLU())

    def forward(self, frames: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, width)"""
        heat = self.heat(self.convolutions(frames)).flatten(2) * self.log_sharpness.exp()  # (B, P, side*side)
        with torch.autocast(frames.device.type, enabled=False):  # differences of moments cancel in bf16
            heat = heat.to(self.moments.dtype)
            x, y, xx, yy, xy = (heat.softmax(-1) @ self.moments).unbind(-1)
            spread = [xx - x * x, yy - y * y, xy - x * y]
            strength = torch.logsumexp(heat, dim=-1) - heat.mean(-1)
            features = torch.stack([x, y, *(10.0 * s for s in spread), 0.1 * strength], dim=-1)
            return self.mix(features.flatten(1))  # in bf16 a coordinate would be rounded to a 256th


def build_encoder(config: ViTConfig | KeypointConfig) -> nn.Module:
    return ViT(config) if isinstance(config, ViTConfig) else KeypointEncoder(config)
