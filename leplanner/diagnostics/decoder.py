"""The decoder probe: latents back to pixels, so that people can look at what a planner imagines. It is trained after
the fact; nothing that acts depends on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

from ..artifacts import (
    check_digest,
    digest_json,
    digest_tensors,
    from_dict,
    is_whole,
    load_modules,
    read_artifact,
    read_json,
    write_artifact,
)
from ..data.episodes import Episodes, read_frames, split
from ..training.loop import Metrics, OnProgress, TrainState, no_progress, train_loop
from ..training.optim import OptimConfig
from ..training.precision import keep_freed_memory, round_to_half
from ..training.runtime import Runtime, seeded
from ..worlds.base import World

FRAME_CHUNK = 256
HELD_OUT_FRAMES = 4096  # at most


@dataclass(frozen=True)
class DecoderConfig:
    latent_size: int
    """how many numbers a latent has"""
    frame_size: int
    """pixels"""
    patch: int = 8
    """pixels of a patch's side"""
    waves: int = 48
    """projections of a latent whose sines and cosines are taken"""
    frequencies: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    """factors of the projections"""
    width: int = 256
    """numbers that all patches share"""
    patch_features: int = 64
    """numbers that a patch is drawn from"""


@dataclass(frozen=True)
class DecoderTrainConfig:
    frames: int = 60_000
    """frames of training episodes, at most"""
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            steps=6000,
            batch=64,
            learning_rate=1.5e-3,
            weight_decay=1e-4,
            warmup=0.05,
            clip=1.0,
            validate_every=500,
        )
    )


class PatchDecoder(nn.Module):
    """Every patch of a frame has a linear readout of its own; one network, shared by all patches, draws a patch from
    it. What is learned is the difference to the mean frame.

    Pixels change abruptly where an object's edge is, while latents encode positions smoothly; sines and cosines of a
    latent give the readouts the high frequencies that edges need.
    """

    mean: Tensor

    def __init__(self, config: DecoderConfig):
        super().__init__()
        c = self.config = config
        if c.frame_size % c.patch:
            raise ValueError(f"Patches of {c.patch} px do not divide a frame of {c.frame_size} px.")
        self.side = c.frame_size // c.patch
        self.project = nn.Linear(c.latent_size, c.waves)
        features = c.latent_size + 2 * c.waves * len(c.frequencies)
        self.shared = nn.Sequential(nn.Linear(features, c.width), nn.GELU())
        inputs, readout = features + c.width, c.patch_features
        self.queries = nn.Parameter(torch.randn(inputs, self.side**2 * readout) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(self.side**2 * readout))
        self.draw = nn.Sequential(
            nn.GELU(), nn.Linear(readout, 3 * readout), nn.GELU(), nn.Linear(3 * readout, c.patch**2 * 3)
        )
        self.register_buffer("mean", torch.zeros(c.frame_size, c.frame_size, 3))

    def forward(self, latents: Tensor) -> Tensor:
        """(B, *Z) -> (B, S, S, 3), where 0..1 is black to white."""
        c, batch = self.config, len(latents)
        latents = latents.flatten(1)
        angles = torch.cat([frequency * self.project(latents) for frequency in c.frequencies], dim=-1)
        features = torch.cat([latents, angles.sin(), angles.cos()], dim=-1)
        readouts = torch.cat([features, self.shared(features)], dim=-1) @ self.queries + self.bias
        patches = self.draw(readouts.view(batch, self.side**2, c.patch_features))
        grid = patches.view(batch, self.side, self.side, c.patch, c.patch, 3).transpose(2, 3)
        return grid.reshape(batch, c.frame_size, c.frame_size, 3) + self.mean

    @torch.no_grad()
    def frames(self, latents: Tensor) -> np.ndarray:
        """(B, *Z), of any device and precision -> uint8 (B, S, S, 3)."""
        drawn = self(latents.to(self.mean.device).float())
        return (drawn.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()


@dataclass(frozen=True)
class Decoder:
    model: PatchDecoder
    encoder_digest: str  # whose latents it reads; worlds that share an encoder share its decoder
    fidelity: Metrics  # on held-out frames

    @property
    def digest(self) -> str:
        config = dataclasses.asdict(self.model.config)
        return digest_json([config, self.encoder_digest, digest_tensors(self.model.state_dict())])


@dataclass(frozen=True)
class Encoded:
    """Rows of a dataset and their latents."""

    rows: np.ndarray  # (R,) rising
    latents: Tensor  # (R, *Z)
    episodes: Episodes

    @staticmethod
    def some(
        world: World, episodes: Episodes, side: np.ndarray, most: int, on_encoded: Callable[[int, int], None]
    ) -> Encoded:
        """Rows spread over all those of the chosen episodes."""
        rows = episodes.episode_rows(side)
        rows = np.unique(rows[np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)])
        latents = []
        for start in range(0, len(rows), FRAME_CHUNK):
            latents.append(world.encode(read_frames(episodes, rows[start : start + FRAME_CHUNK])).float())
            on_encoded(min(start + FRAME_CHUNK, len(rows)), len(rows))
        return Encoded(rows, torch.cat(latents), episodes)

    def frames(self, chosen: np.ndarray) -> np.ndarray:
        return read_frames(self.episodes, self.rows[chosen])


def train_decoder(
    world: World,
    episodes: Episodes,
    shape: DecoderConfig,
    config: DecoderTrainConfig,
    out: Path,
    runtime: Runtime | None = None,
    on_encoded: Callable[[int, int], None] = lambda done, total: None,
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
) -> Decoder:
    """Train to `out`, or continue the run that `out` holds."""
    _check_shape(shape, world)
    episodes = world.spec.sized(episodes)
    settings = [dataclasses.asdict(part) for part in (shape, config)]
    run = digest_json([*settings, world.encoder_digest, episodes.digest])
    if is_whole(out):
        if read_json(out / "config.json")["training"].get("run") == run:
            return load_decoder(out)
        raise ValueError(f"{out} holds a decoder that this run did not make. Choose another --out, or delete it.")
    keep_freed_memory()
    runtime, optim = runtime or Runtime(), config.optim
    world.to(runtime.torch_device)
    train, held_out = (
        Encoded.some(world, episodes, side, most, on_encoded)
        for side, most in zip(split(episodes), (config.frames, HELD_OUT_FRAMES), strict=True)
    )
    with seeded(optim.seed):
        model = PatchDecoder(shape)
    model.mean.copy_(torch.from_numpy(mean_frame(train)))
    state = TrainState(model, optim, runtime, run)

    def losses(chosen: np.ndarray, generator: torch.Generator) -> dict[str, Tensor]:
        frames = torch.from_numpy(train.frames(chosen)).to(state.device)
        return {"loss": (model(train.latents[chosen]).float() - frames / 255).square().mean()}

    metrics = train_loop(
        state,
        out,
        draw=lambda rng, step: rng.integers(len(train.rows), size=optim.batch),
        losses=losses,
        validate=lambda: {f"held_out_{name}": value for name, value in fidelity(model, held_out, most=256).items()},
        counted={"frames": optim.batch},
        on_progress=on_progress,
        stop_after=stop_after,
    )
    model.eval().requires_grad_(False)
    if not state.finished:
        return Decoder(model, world.encoder_digest, {})
    if optim.half_weights:
        round_to_half(model)
    decoder = Decoder(model, world.encoder_digest, fidelity(model, held_out))
    history = {"config": dataclasses.asdict(config), "precision": state.precision, "metrics": metrics, "run": run}
    save_decoder(decoder, out, history, data=episodes.digest)
    return decoder


def _check_shape(shape: DecoderConfig, world: World) -> None:
    expected = {"latent_size": world.latent.size, "frame_size": world.spec.frame_size}
    actual = {name: getattr(shape, name) for name in expected}
    if actual != expected:
        raise ValueError(f"The decoder is of {actual}, its world of {expected}. Make its configuration from the world.")


def mean_frame(pool: Encoded) -> np.ndarray:
    """(S, S, 3) in 0..1"""
    total = np.zeros(())
    for start in range(0, len(pool.rows), FRAME_CHUNK):
        total = total + pool.frames(np.arange(start, min(start + FRAME_CHUNK, len(pool.rows)))).sum(
            axis=0, dtype=np.int64
        )
    return (total / len(pool.rows) / 255).astype(np.float32)


@torch.no_grad()
def fidelity(model: PatchDecoder, pool: Encoded, most: int | None = None) -> Metrics:
    """Against drawing the mean training frame, whatever the latent says."""
    mse, mean_mse, similar = [], [], []
    count = min(most or len(pool.rows), len(pool.rows))
    for start in range(0, count, FRAME_CHUNK):
        chosen = np.arange(start, min(start + FRAME_CHUNK, count))
        frames = pool.frames(chosen).astype(np.float32) / 255
        drawn = model(pool.latents[chosen]).float().clamp(0, 1).cpu().numpy()
        mse.append(np.square(drawn - frames).mean(axis=(1, 2, 3)))
        mean_mse.append(np.square(model.mean.cpu().numpy() - frames).mean(axis=(1, 2, 3)))
        similar += [ssim(one, other) for one, other in zip(drawn, frames, strict=True)]
    error, baseline = float(np.concatenate(mse).mean()), float(np.concatenate(mean_mse).mean())
    errors = {"mse": error, "mean_image_mse": baseline, "ratio": baseline / error, "frames": count}
    return errors | {"psnr": -10 * float(np.log10(error)), "ssim": float(np.mean(similar))}


def ssim(one: np.ndarray, other: np.ndarray) -> float:
    """Structural similarity of two frames (S, S, 3) in 0..1, as Wang et al. define it: Gaussian windows of 1.5 px."""

    def blur(x: np.ndarray) -> np.ndarray:
        return gaussian_filter(x.astype(np.float64), (1.5, 1.5, 0), truncate=3.5)

    a, b = blur(one), blur(other)
    spread_a, spread_b, together = blur(one * one) - a * a, blur(other * other) - b * b, blur(one * other) - a * b
    low, high = 0.01**2, 0.03**2
    ratio = (2 * a * b + low) * (2 * together + high) / ((a * a + b * b + low) * (spread_a + spread_b + high))
    return float(ratio.mean())


def save_decoder(decoder: Decoder, folder: Path, history: dict[str, Any], **inputs: str) -> None:
    contents = {"decoder": dataclasses.asdict(decoder.model.config), "encoder_digest": decoder.encoder_digest}
    contents |= {"fidelity": decoder.fidelity, "digest": decoder.digest}
    inputs |= {"encoder": decoder.encoder_digest}
    write_artifact(folder, "decoder", contents, {"decoder": decoder.model}, history, **inputs)


def load_decoder(folder: str | Path, world: World | None = None) -> Decoder:
    """On the CPU. When a world is given, it must be one whose latents the decoder reads."""
    folder = Path(folder)
    config = read_artifact(folder, "decoder")
    if world is not None and config["encoder_digest"] != world.encoder_digest:
        raise ValueError(
            f"The decoder at {folder} reads another encoder's latents ({config['encoder_digest'][:12]}, this world's "
            f"is {world.encoder_digest[:12]}). Train one for this world: leplanner decoder TASK --out DIR"
        )
    model = PatchDecoder(from_dict(DecoderConfig, config["decoder"]))
    load_modules(folder, {"decoder": model})
    decoder = Decoder(model.eval().requires_grad_(False), config["encoder_digest"], config["fidelity"])
    check_digest(folder, config["digest"], decoder.digest)
    return decoder
