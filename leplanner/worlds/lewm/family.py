"""LeWM as a family: its sizes and loss weights at every scale."""

from __future__ import annotations

from functools import partial

from ..base import WorldFamily
from .encoders import KeypointConfig, ViTConfig
from .model import LeWM, LeWMConfig, LeWMObjective
from .release import LEWM, export_release, import_release


def _paper(block_dim: int, frame_size: int) -> LeWMConfig:
    """As released: ViT-tiny at 224 px, 18 M parameters."""
    return LeWMConfig(encoder=ViTConfig(frame_size=frame_size), block_dim=block_dim)


def _compact(block_dim: int, frame_size: int) -> LeWMConfig:
    """A keypoint encoder and a small predictor, for CPUs."""
    return LeWMConfig(
        encoder=KeypointConfig(frame_size=frame_size),
        block_dim=block_dim,
        latent=128,
        depth=3,
        heads=4,
        head_dim=32,
        mlp=512,
        projector=512,
        dropout=0.0,  # small and far from overfitting; dropout only blurs the prediction
    )


def _tiny(block_dim: int, frame_size: int) -> LeWMConfig:
    return LeWMConfig(
        encoder=KeypointConfig(frame_size=frame_size, channels=(16, 32), extra_convolutions=0, keypoints=16, width=64),
        block_dim=block_dim,
        latent=32,
        depth=1,
        heads=2,
        head_dim=16,
        mlp=64,
        projector=64,
        dropout=0.0,
    )


NETWORKS = {"paper": _paper, "compact": _compact, "tiny": _tiny}
PROJECTIONS = {"paper": 1024, "compact": 256, "tiny": 64}

FAMILY = WorldFamily(
    name="lewm",
    title="LeWM",
    config=LeWMConfig,
    build=LeWM,
    network=lambda scale, block_dim, frame_size: NETWORKS[scale](block_dim, frame_size),
    objective=lambda scale: LeWMObjective(projections=PROJECTIONS[scale]),
    import_release=partial(import_release, release=LEWM),
    export_release=partial(export_release, release=LEWM),
    describes=LEWM.describes,
)
