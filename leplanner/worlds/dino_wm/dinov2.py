"""The encoder `dinov2`: the patch features of a released DINOv2, loaded from safetensors without running its code.

Parameter names are those of `transformers`' Dinov2Model. Position embeddings are interpolated to the frame size once,
on loading.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...artifacts import fetch_folder, load_strictly, read_json, read_safetensors
from ..lewm.encoders import ViTAttention, ViTConfig
from ..lewm.release import OLD_ATTENTION, rename


@dataclass(frozen=True)
class DINOv2Config:
    """A released DINOv2; the sizes are those of DINOv2-S/14."""

    kind: ClassVar[str] = "dinov2"
    resampling: ClassVar[str] = "bilinear"  # of frames of another size
    weights: str = "facebook/dinov2-small"
    """folder or Hugging Face id with config.json and model.safetensors"""
    frame_size: int = 224
    patch: int = 14
    width: int = 384
    depth: int = 12
    heads: int = 6
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        if self.frame_size % self.patch:
            raise ValueError(
                f"Frames of {self.frame_size} px cannot be cut into DINOv2's patches of {self.patch} px. Use frames "
                f"whose size is a multiple of {self.patch}, such as {16 * self.patch}."
            )

    @property
    def side(self) -> int:
        """Patches along a side."""
        return self.frame_size // self.patch


class DINOv2(nn.Module):
    embeddings: Any
    encoder: Any

    def __init__(self, config: DINOv2Config):
        super().__init__()
        self.config = config
        self.embeddings = nn.Module()
        self.embeddings.cls_token = nn.Parameter(torch.randn(1, 1, config.width) * 0.02)
        self.embeddings.position_embeddings = nn.Parameter(torch.randn(1, config.side**2 + 1, config.width) * 0.02)
        self.embeddings.patch_embeddings = nn.Module()
        self.embeddings.patch_embeddings.projection = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList([DINOv2Layer(config) for _ in range(config.depth)])
        self.layernorm = nn.LayerNorm(config.width, eps=1e-6)

    def forward(self, frames: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, P, width)"""
        patches = self.embeddings.patch_embeddings.projection(frames).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.embeddings.cls_token.expand(patches.shape[0], -1, -1), patches], dim=1)
        tokens = tokens + self.embeddings.position_embeddings
        for layer in self.encoder.layer:
            tokens = layer(tokens)
        return self.layernorm(tokens[:, 1:])


class DINOv2Layer(nn.Module):
    mlp: Any
    layer_scale1: Any
    layer_scale2: Any

    def __init__(self, config: DINOv2Config):
        super().__init__()
        hidden = config.width * config.mlp_ratio
        self.norm1, self.norm2 = (nn.LayerNorm(config.width, eps=1e-6) for _ in range(2))
        self.attention = ViTAttention(ViTConfig(width=config.width, heads=config.heads))
        self.layer_scale1, self.layer_scale2, self.mlp = (nn.Module() for _ in range(3))
        for scale in (self.layer_scale1, self.layer_scale2):
            scale.lambda1 = nn.Parameter(torch.ones(config.width))
        self.mlp.fc1 = nn.Linear(config.width, hidden)
        self.mlp.fc2 = nn.Linear(hidden, config.width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.layer_scale1.lambda1 * self.attention(self.norm1(tokens))
        return tokens + self.layer_scale2.lambda1 * self.mlp.fc2(F.gelu(self.mlp.fc1(self.norm2(tokens))))


_UNUSED = ("embeddings.mask_token",)  # stands for hidden patches, in DINOv2's own training only
_POSITIONS = "embeddings.position_embeddings"


def find_dinov2(config: DINOv2Config) -> Path:
    """The weights of the release that a config names, downloaded if need be; its settings must fit."""
    folder = fetch_folder(config.weights, ("config.json", "model.safetensors"))
    settings, file = folder / "config.json", folder / "model.safetensors"
    missing = [path.name for path in (settings, file) if not path.exists()]
    if missing:
        raise ValueError(
            f"{folder} has no {' and no '.join(missing)}. A DINOv2 is read from config.json and model.safetensors, as "
            "on the Hugging Face hub; other formats could run code on loading."
        )
    _check_sizes(read_json(settings), config, str(settings))
    return file


def load_dinov2(encoder: DINOv2) -> None:
    """The released weights that its config names, strictly."""
    config = encoder.config
    file = find_dinov2(config)
    tensors = {name: t for name, t in rename(read_safetensors(file), OLD_ATTENTION).items() if name not in _UNUSED}
    if _POSITIONS in tensors:
        tensors[_POSITIONS] = _positions(tensors[_POSITIONS], config.side, str(file))
    load_strictly(encoder, tensors, str(file))


def _check_sizes(actual: dict[str, Any], config: DINOv2Config, source: str) -> None:
    """What the weights' shapes do not tell is compared too: heads, activation, kind of feed-forward."""
    expected = {
        "model_type": "dinov2",
        "patch_size": config.patch,
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "mlp_ratio": config.mlp_ratio,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "use_swiglu_ffn": False,
        "qkv_bias": True,
        "num_channels": 3,
    }
    # a release leaves out what has transformers' default; only the sizes and the kind must be there
    defaults = {name: expected[name] for name in ("hidden_act", "layer_norm_eps", "use_swiglu_ffn", "qkv_bias")}
    given = defaults | {"mlp_ratio": 4, "num_channels": 3} | actual
    different = [
        f"{name} {given.get(name)!r}, expected {value!r}"
        for name, value in expected.items()
        if given.get(name) != value
    ]
    if different:
        raise ValueError(
            f"{source} describes another encoder: {'; '.join(different)}. Give a folder or id whose sizes are the "
            "network's, or set the network's encoder sizes to its own."
        )


def _positions(released: Tensor, side: int, source: str) -> Tensor:
    """(1, 1 + released patches, C) -> (1, 1 + side * side, C), by the bicubic interpolation that transformers uses."""
    grid = round((released.shape[1] - 1) ** 0.5) if released.ndim == 3 else 0
    if grid < 1 or released.shape[1] != grid**2 + 1:
        raise ValueError(
            f"{source}: {_POSITIONS} has shape {tuple(released.shape)}; expected (1, n, width) for a class token and "
            "a square of patches, such as n = 1370 for 37 x 37."
        )
    if grid == side:
        return released
    square = torch.unflatten(released[:, 1:].float(), 1, (grid, grid)).permute(0, 3, 1, 2)
    resized = F.interpolate(square, size=(side, side), mode="bicubic", align_corners=False)
    patches = resized.permute(0, 2, 3, 1).flatten(1, 2).to(released.dtype)
    return torch.cat([released[:, :1], patches], dim=1)
