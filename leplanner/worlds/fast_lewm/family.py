"""Fast-LeWM as a family: its sizes and loss weights at every scale."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ...core.config import changed
from ..base import WorldFamily
from ..lewm.encoders import KeypointConfig, ViTConfig
from ..lewm.family import FAMILY as LEWM
from ..lewm.release import export_release, import_release
from .model import FastLeWM, FastLeWMConfig
from .release import RELEASE


def _paper(block_dim: int, frame_size: int) -> FastLeWMConfig:
    """As released: LeWM's encoder, one start latent."""
    return FastLeWMConfig(encoder=ViTConfig(frame_size=frame_size), block_dim=block_dim)


def _compact(block_dim: int, frame_size: int) -> FastLeWMConfig:
    """A keypoint encoder and small networks, for CPUs."""
    return FastLeWMConfig(
        encoder=KeypointConfig(frame_size=frame_size),
        block_dim=block_dim,
        context=3,  # one frame, as published, shows no velocity
        latent=128,
        depth=3,
        heads=4,
        head_dim=32,
        mlp=512,
        fusion=512,
        projector=512,
        dropout=0.0,
        prefix_depth=3,
        prefix_heads=4,
        prefix_mlp=512,
    )


def _tiny(block_dim: int, frame_size: int) -> FastLeWMConfig:
    return FastLeWMConfig(
        encoder=KeypointConfig(frame_size=frame_size, channels=(16, 32), extra_convolutions=0, keypoints=16, width=64),
        block_dim=block_dim,
        latent=32,
        depth=1,
        heads=2,
        head_dim=16,
        mlp=64,
        fusion=64,
        projector=64,
        dropout=0.0,
        prefix_depth=1,
        prefix_heads=2,
        prefix_head_dim=16,
        prefix_mlp=64,
    )


def _adjust(preset: Any) -> Any:
    """Windows are twice as long as LeWM's, so that half as many see as many frames: in smaller batches, since half as
    many steps make a worse encoder. Every prefix is trained at once, so that finetuning need not begin with short
    ones."""
    finetune = changed(preset.finetune, horizon=f"0:{preset.planner.horizon}")
    if preset.scale != "compact":
        return replace(preset, finetune=finetune)
    return replace(preset, finetune=finetune, world=changed(preset.world, batch=preset.world.optim.batch // 2))


def about(network: FastLeWMConfig) -> str:
    frames = "one frame" if network.context == 1 else f"{network.context} frames"
    return f"It predicts all blocks of a plan in one call, from {frames}."


NETWORKS = {"paper": _paper, "compact": _compact, "tiny": _tiny}

FAMILY = WorldFamily(
    name="fast-lewm",
    title="Fast-LeWM",
    config=FastLeWMConfig,
    build=FastLeWM,
    network=lambda scale, block_dim, frame_size: NETWORKS[scale](block_dim, frame_size),
    objective=LEWM.objective,
    window=lambda network: network.context + network.prefixes,
    adjust=_adjust,
    about=about,
    import_release=partial(import_release, release=RELEASE),
    export_release=partial(export_release, release=RELEASE),
    describes=RELEASE.describes,
)
