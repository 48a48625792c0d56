"""TD-MPC2 as a family: its sizes and loss weights at every scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...core.config import changed
from ..base import WorldFamily
from ..lewm.encoders import KeypointConfig
from .model import TDMPC2, CNNConfig, TDMPC2Config
from .objective import TDMPC2Objective


def _paper(block_dim: int, frame_size: int) -> TDMPC2Config:
    """With stable-worldmodel's pixel encoder."""
    return TDMPC2Config(encoder=CNNConfig(frame_size=frame_size), block_dim=block_dim)


def _compact(block_dim: int, frame_size: int) -> TDMPC2Config:
    """The keypoint encoder of a compact LeWM, and narrower heads, for CPUs."""
    return TDMPC2Config(encoder=KeypointConfig(frame_size=frame_size), block_dim=block_dim, mlp=256)


def _tiny(block_dim: int, frame_size: int) -> TDMPC2Config:
    return TDMPC2Config(
        encoder=KeypointConfig(frame_size=frame_size, channels=(16, 32), extra_convolutions=0, keypoints=16, width=64),
        projector=64,
        block_dim=block_dim,
        latent=32,
        mlp=64,
    )


def _adjust(preset: Any) -> Any:
    """The authors' learning rate and clipping. At compact scale windows are half as long again as LeWM's: fewer of them
    see as many frames."""
    batch = preset.world.optim.batch * 2 // 3 if preset.scale == "compact" else preset.world.optim.batch
    return replace(preset, world=changed(preset.world, learning_rate=3e-4, clip=20.0, batch=batch))


NETWORKS = {"paper": _paper, "compact": _compact, "tiny": _tiny}

ABOUT = (
    "It learned rewards, values and a policy besides, offline and with goals in hindsight: TD-MPC2's own planner uses "
    "them, LePlanner only the dynamics."
)

FAMILY = WorldFamily(
    name="tdmpc2",
    title="TD-MPC2",
    config=TDMPC2Config,
    build=TDMPC2,
    network=lambda scale, block_dim, frame_size: NETWORKS[scale](block_dim, frame_size),
    objective=lambda scale: TDMPC2Objective(),
    window=lambda network: network.train_blocks + 1,
    own_planner="tdmpc2",
    adjust=_adjust,
    about=lambda network: ABOUT,
)
