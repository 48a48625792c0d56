"""The decoder probe: latents back to pixels, so that people can look at what a planner imagines. Trained after the fact; nothing
that acts depends on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

from ..artifacts import digest_json, provenance, read_json, write_json
from ..data.episodes import Episodes, read_frames, split
from ..learning import Learner, Metrics, TrainProgress, learn
from ..precision import keep_freed_memory, pick_device, round_to_half
from ..world.world import World, load_strictly, read_safetensors, write_safetensors

FRAME_CHUNK = 256


@dataclass(frozen=True)
class DecoderConfig:
    latent: int
    frame_size: int
    patch: int = 8
    waves: int = 48  # projections of a latent whose sines and cosines are taken
    frequencies: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    width: int = 256  # of what all patches share
    answer: int = 64  # numbers that a patch is drawn from


@dataclass(frozen=True)
class DecoderTrainConfig:
    frames: int = 60_000  # of training episodes, at most
    steps: int = 6000
    batch: int = 64
    learning_rate: float = 1.5e-3
    weight_decay: float = 1e-4
    warmup_share: float | None = 0.05
    clip: float = 1.0
    half_weights: bool = False  # end with weights that fp16 holds exactly
    seed: int = 0
    precision: str = "auto"
    validate_every: int = 500
    checkpoint_minutes: float = 3.0


class PatchDecoder(nn.Module):
    """Every patch of a frame has learned queries of its own; one network draws a patch from the latent's answers to them. What is
    learned is the difference to the mean frame.

    An edge is a sudden function of where a thing is, and latents hold that smoothly: their sines and cosines make edges easy.
    """

    def __init__(self, config: DecoderConfig):
        super().__init__()
        c = self.config = config
        if c.frame_size % c.patch:
            raise ValueError(f"Patches of {c.patch} px do not divide a frame of {c.frame_size} px.")
        self.side = c.frame_size // c.patch
        self.project = nn.Linear(c.latent, c.waves)
        features = c.latent + 2 * c.waves * len(c.frequencies)
        self.shared = nn.Sequential(nn.Linear(features, c.width), nn.GELU())
        asked = features + c.width
        self.queries = nn.Parameter(torch.randn(asked, self.side**2 * c.answer) / asked**0.5)
        self.bias = nn.Parameter(torch.zeros(self.side**2 * c.answer))
        self.draw = nn.Sequential(
            nn.GELU(), nn.Linear(c.answer, 3 * c.answer), nn.GELU(), nn.Linear(3 * c.answer, c.patch**2 * 3)
        )
        self.register_buffer("mean", torch.zeros(c.frame_size, c.frame_size, 3))

    def forward(self, latents: Tensor) -> Tensor:
        """(B, D) -> (B, S, S, 3), where 0..1 is black to white."""
        c, batch = self.config, len(latents)
        angles = torch.cat([frequency * self.project(latents) for frequency in c.frequencies], dim=-1)
        features = torch.cat([latents, angles.sin(), angles.cos()], dim=-1)
        answers = torch.cat([features, self.shared(features)], dim=-1) @ self.queries + self.bias
        patches = self.draw(answers.view(batch, self.side**2, c.answer))
        grid = patches.view(batch, self.side, self.side, c.patch, c.patch, 3).transpose(2, 3)
        return grid.reshape(batch, c.frame_size, c.frame_size, 3) + self.mean

    @torch.no_grad()
    def frames(self, latents: Tensor) -> np.ndarray:
        """(B, D) -> uint8 (B, S, S, 3)."""
        return (self(latents.float()).clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()


@dataclass(frozen=True)
class Decoder:
    model: PatchDecoder
    encoder_digest: str  # whose latents it reads; worlds that share an encoder share its decoder
    fidelity: Metrics  # on held-out frames


@dataclass(frozen=True)
class Encoded:
    """Rows of a dataset and their latents."""

    rows: np.ndarray  # (R,) rising
    latents: Tensor  # (R, D)
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
    device: str = "auto",
    on_encoded: Callable[[int, int], None] = lambda done, total: None,
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
) -> Decoder:
    """Train to `out`, or continue the run that `out` holds."""
    keep_freed_memory()
    world.to(pick_device(device))
    settings = [dataclasses.asdict(part) for part in (shape, config)]
    run = digest_json([*settings, world.encoder_digest, episodes.digest])
    if (out / "config.json").exists():
        if read_json(out / "config.json").get("run") != run:
            raise ValueError(f"{out} holds a decoder that this run did not make. Choose another --out, or delete it.")
        return load_decoder(out)
    train, held_out = (
        Encoded.some(world, episodes, side, most, on_encoded)
        for side, most in zip(split(episodes), (config.frames, 4096), strict=True)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = PatchDecoder(shape)
    model.mean.copy_(torch.from_numpy(mean_frame(train)))
    learner = Learner(model, config, world.device, run)

    def losses(chosen: np.ndarray, generator: torch.Generator) -> dict[str, Tensor]:
        frames = torch.from_numpy(train.frames(chosen)).to(learner.device)
        return {"loss": (model(train.latents[chosen]).float() - frames / 255).square().mean()}

    learn(
        learner,
        out,
        draw=lambda rng, step: rng.integers(len(train.rows), size=config.batch),
        losses=losses,
        validate=lambda: {f"held_out_{name}": value for name, value in fidelity(model, held_out, most=256).items()},
        counted={"frames": config.batch},
        on_progress=on_progress,
        stop_after=stop_after,
    )
    model.eval().requires_grad_(False)
    if learner.done < config.steps:
        return Decoder(model, world.encoder_digest, {})
    if config.half_weights:
        round_to_half(model)
    decoder = Decoder(model, world.encoder_digest, fidelity(model, held_out))
    save_decoder(decoder, out, {"training": dataclasses.asdict(config), "run": run}, episodes.digest)
    return decoder


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
    found = {"mse": error, "mean_image_mse": baseline, "ratio": baseline / error, "frames": count}
    return found | {"psnr": -10 * float(np.log10(error)), "ssim": float(np.mean(similar))}


def ssim(one: np.ndarray, other: np.ndarray) -> float:
    """Structural similarity of two frames (S, S, 3) in 0..1, as Wang et al. define it: Gaussian windows of 1.5 px."""

    def blur(x: np.ndarray) -> np.ndarray:
        return gaussian_filter(x.astype(np.float64), (1.5, 1.5, 0), truncate=3.5)

    a, b = blur(one), blur(other)
    spread_a, spread_b, together = blur(one * one) - a * a, blur(other * other) - b * b, blur(one * other) - a * b
    low, high = 0.01**2, 0.03**2
    ratio = (2 * a * b + low) * (2 * together + high) / ((a * a + b * b + low) * (spread_a + spread_b + high))
    return float(ratio.mean())


def save_decoder(decoder: Decoder, folder: Path, history: Metrics, data: str) -> None:
    write_safetensors(folder / "decoder.safetensors", decoder.model)
    config = {"kind": "leplanner decoder", "decoder": dataclasses.asdict(decoder.model.config), **history}
    config |= {"encoder_digest": decoder.encoder_digest, "fidelity": decoder.fidelity}
    write_json(folder / "config.json", config | {"provenance": provenance(encoder=decoder.encoder_digest, data=data)})


def load_decoder(folder: Path, world: World | None = None) -> Decoder:
    """Strictly; when a world is given, it must be one whose latents the decoder reads."""
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    if config.get("kind") != "leplanner decoder":
        raise ValueError(f"No decoder at {folder}. Train one with: leplanner decoder TASK")
    if world is not None and config["encoder_digest"] != world.encoder_digest:
        raise ValueError(
            f"The decoder at {folder} reads another encoder's latents ({config['encoder_digest'][:12]}, this world's is "
            f"{world.encoder_digest[:12]}). Train one for this world: leplanner decoder TASK --out DIR"
        )
    shape = config["decoder"] | {"frequencies": tuple(config["decoder"]["frequencies"])}
    model = PatchDecoder(DecoderConfig(**shape))
    load_strictly(model, read_safetensors(folder / "decoder.safetensors"), str(folder))
    return Decoder(model.eval().requires_grad_(False), config["encoder_digest"], config["fidelity"])
