"""DINO-WM as a family: its sizes at every scale, and how its encoder comes to be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...core.config import changed
from ..base import WorldFamily
from ..pretraining import Pretraining
from .dinov2 import DINOv2, DINOv2Config, find_dinov2, load_dinov2
from .local import LocalConfig, train_autoencoder
from .model import DinoWM, DinoWMConfig, DinoWMObjective


def _paper(block_dim: int, frame_size: int) -> DinoWMConfig:
    """As published, without proprioception: DINOv2-S/14, 256 patches of 384 numbers at 224 px."""
    return DinoWMConfig(encoder=DINOv2Config(frame_size=frame_size), block_dim=block_dim)


def _compact(block_dim: int, frame_size: int) -> DinoWMConfig:
    """Patches of an autoencoder trained on the task's frames, and a small predictor, for CPUs."""
    return DinoWMConfig(
        encoder=LocalConfig(frame_size=frame_size),
        block_dim=block_dim,
        action_channels=8,
        depth=3,
        heads=3,
        head_dim=16,
        mlp=192,
        dropout=0.0,
    )


def _tiny(block_dim: int, frame_size: int) -> DinoWMConfig:
    return DinoWMConfig(
        encoder=LocalConfig(
            frame_size=frame_size, side=4, width=8, channels=(8, 16, 16), pretrain_steps=50, pretrain_batch=32
        ),
        block_dim=block_dim,
        action_channels=8,
        depth=1,
        heads=2,
        head_dim=8,
        mlp=32,
        dropout=0.0,
    )


NETWORKS = {"paper": _paper, "compact": _compact, "tiny": _tiny}


RATES = {"paper": 5e-4, "compact": 3e-3}  # the predictor alone is trained, and bears more
BATCHES = {"paper": 16}  # of a planner: a sample's four rollouts of 256 patches keep 2.4 GB for their gradients


def _adjust(preset: Any) -> Any:
    """A frozen encoder learns nothing from a state head."""
    rate = RATES.get(preset.scale, preset.world.optim.learning_rate)
    batch = BATCHES.get(preset.scale, preset.training.optim.batch)
    world, training = changed(preset.world, learning_rate=rate, grounding=0.0), changed(preset.training, batch=batch)
    return replace(preset, world=world, training=training)


def make_encoder(model: DinoWM, work: Pretraining) -> None:
    """Released weights, or an autoencoder's; frozen from then on."""
    if isinstance(model.encoder, DINOv2):
        load_dinov2(model.encoder)
    else:
        train_autoencoder(model.encoder, work)


def check_ready(network: DinoWMConfig) -> None:
    if isinstance(network.encoder, DINOv2Config):
        find_dinov2(network.encoder)


def about(network: DinoWMConfig) -> str:
    encoder = network.encoder
    patches = f"{encoder.side} x {encoder.side} patches"
    if isinstance(encoder, DINOv2Config):
        return f"Its frozen encoder is a released DINOv2 (`dinov2`, from {encoder.weights}), {patches}."
    return (
        f"Its frozen encoder was made for this task (`local`, not DINOv2): the convolutional trunk of an autoencoder, "
        f"trained for {encoder.pretrain_steps} steps on the task's frames, {patches}."
    )


FAMILY = WorldFamily(
    name="dino-wm",
    title="DINO-WM",
    config=DinoWMConfig,
    build=DinoWM,
    network=lambda scale, block_dim, frame_size: NETWORKS[scale](block_dim, frame_size),
    objective=lambda scale: DinoWMObjective(),
    own_planner="cem",
    adjust=_adjust,
    pretrain=make_encoder,
    check_ready=check_ready,
    about=about,
)
