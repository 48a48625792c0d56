"""A frozen world: LeWM weights with everything needed to use them without a dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..artifacts import atomic_path, digest_json, digest_tensors, from_dict, provenance, read_json, write_json
from ..data.cache import LatentCache
from ..data.episodes import Episodes, split
from ..data.windows import ActionScale, PlanWindows, WorldWindows
from .encoders import KeypointConfig, ViTConfig
from .lewm import LeWM, LeWMConfig

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ENCODERS: dict[str, type] = {"vit": ViTConfig, "keypoint": KeypointConfig}


@dataclass(frozen=True)
class WorldSpec:
    """What travels with the weights: shapes, action statistics and bounds, image transform."""

    task: str
    model: LeWMConfig
    block: int  # f, environment actions in a block
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    action_low: float = -1.0
    action_high: float = 1.0
    pixel_mean: tuple[float, ...] = IMAGENET_MEAN
    pixel_std: tuple[float, ...] = IMAGENET_STD
    visuals: dict[str, Any] = dataclasses.field(default_factory=dict)  # how training frames were drawn
    grounded: bool = False  # whether a state head helped in training

    @property
    def action_dim(self) -> int:
        return len(self.action_mean)

    @property
    def action_scale(self) -> ActionScale:
        return ActionScale(np.array(self.action_mean), np.array(self.action_std))

    @property
    def frame_size(self) -> int:
        return self.model.encoder.frame_size

    def to_json(self) -> dict[str, Any]:
        value = dataclasses.asdict(self)
        kind = next(name for name, cls in ENCODERS.items() if isinstance(self.model.encoder, cls))
        value["model"]["encoder"] = {"kind": kind, **value["model"]["encoder"]}
        return value

    @staticmethod
    def from_json(value: dict[str, Any]) -> WorldSpec:
        value = dict(value)
        model = dict(value["model"])
        encoder = dict(model["encoder"])
        kind = encoder.pop("kind")
        if kind not in ENCODERS:
            raise ValueError(f"Unknown encoder kind {kind!r} in a world's config; known: {', '.join(ENCODERS)}.")
        model["encoder"] = from_dict(ENCODERS[kind], encoder)
        value["model"] = from_dict(LeWMConfig, model)
        return from_dict(WorldSpec, value)


def check_frames(frames: Tensor, spec: WorldSpec) -> None:
    size = spec.frame_size
    if frames.dtype != torch.uint8 or frames.ndim != 4 or tuple(frames.shape[1:]) != (size, size, 3):
        raise ValueError(
            f"Frames must be uint8 of shape (B, {size}, {size}, 3); got {frames.dtype} of shape "
            f"{tuple(frames.shape)}. Resize them first."
        )


def normalise(frames: Tensor, spec: WorldSpec) -> Tensor:
    """uint8 (B, S, S, 3) -> float32 (B, 3, S, S) in the encoder's units."""
    check_frames(frames, spec)
    mean = 255.0 * torch.tensor(spec.pixel_mean, device=frames.device).view(1, 3, 1, 1)
    std = 255.0 * torch.tensor(spec.pixel_std, device=frames.device).view(1, 3, 1, 1)
    return (frames.permute(0, 3, 1, 2) - mean) / std


class World:
    """`model` is in eval mode without trainable parameters; gradients still flow *through* it to a plan."""

    def __init__(self, model: LeWM, spec: WorldSpec):
        self.model = model.eval().requires_grad_(False)
        self.spec = spec
        self.encoder: Callable[[Tensor], Tensor] | None = None  # a faster way to the same latents, from uint8 frames

    @property
    def digest(self) -> str:
        return digest_json([self.spec.to_json(), digest_tensors(self.model.state_dict())])

    @property
    def encoder_digest(self) -> str:
        """Of all that decides a frame's latent: worlds refined from one another share it."""
        encoding = {name: part.state_dict() for name, part in (("e", self.model.encoder), ("p", self.model.projector))}
        tensors = {f"{name}.{key}": value for name, state in encoding.items() for key, value in state.items()}
        spec = self.spec.to_json()
        return digest_json(
            [spec["model"]["encoder"], spec["pixel_mean"], spec["pixel_std"], spec["visuals"], digest_tensors(tensors)]
        )

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: torch.device | str) -> World:
        self.model.to(device)
        self.encoder = None  # it was made for where the model was
        return self

    @torch.no_grad()
    def encode(self, frames: np.ndarray | Tensor) -> Tensor:
        """uint8 (B, S, S, 3) -> latents (B, D)."""
        tensor = torch.from_numpy(np.ascontiguousarray(frames)) if isinstance(frames, np.ndarray) else frames
        check_frames(tensor, self.spec)
        if self.encoder is not None:
            return self.encoder(tensor)
        return self.model.encode(normalise(tensor.to(self.device), self.spec))

    def latents(self, frames: np.ndarray) -> np.ndarray:
        """`encode`, as float32 in numpy."""
        return self.encode(frames).float().cpu().numpy()

    def windows(self, episodes: Episodes, chosen: np.ndarray | None = None) -> WorldWindows:
        """Windows of N+1 frames from all or some episodes, standardised as this world expects."""
        chosen = np.arange(len(episodes.starts)) if chosen is None else chosen
        return WorldWindows(episodes, chosen, self.spec.action_scale, self.spec.block, self.spec.model.context)

    def plan_windows(
        self,
        cache: LatentCache,
        pad_share: float = 0.25,
        retry_share: float = 0.0,
        far_share: float = 0.0,
        behaviour_only: bool = False,
    ) -> tuple[PlanWindows, PlanWindows]:
        """Planning samples of this world's latent cache: from training episodes, and from held-out ones. The last two
        shares are of the training ones alone. `behaviour_only`: without what a planner played, for those who learn what the
        data does."""
        if cache.encoder_digest != self.encoder_digest:
            raise ValueError(
                f"The latent cache was made by another encoder ({cache.encoder_digest[:12]}, this world's is "
                f"{self.encoder_digest[:12]}). Encode the dataset with this world: leplanner cache TASK --out DIR"
            )
        shape = (self.spec.action_scale, self.spec.block, self.spec.model.context, pad_share)
        train, held_out = split(cache.episodes)
        if behaviour_only and cache.episodes.played is not None:
            train = train[cache.episodes.played[train, 1] < 0]
        return (
            PlanWindows(cache.latents, cache.episodes, train, *shape, retry_share, far_share),
            PlanWindows(cache.latents, cache.episodes, held_out, *shape),
        )

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """Latents (B, N, D), standardised blocks (B, N-1, A) and (B, H, A) -> imagined latents (B, H, D)."""
        return self.model.rollout(context, past_blocks, plan)


def save_world(world: World, folder: Path, history: dict[str, Any] | None = None, **inputs: str) -> None:
    """Weights first, config last: a folder with a config.json is whole."""
    write_safetensors(folder / "world.safetensors", world.model)
    write_json(
        folder / "config.json",
        {
            "kind": "leplanner world",
            "spec": world.spec.to_json(),
            "digest": world.digest,
            "training": history or {},
            "provenance": provenance(**inputs),
        },
    )


def load_world(folder: str | Path) -> World:
    folder = Path(folder)
    if not (folder / "config.json").exists():
        raise ValueError(
            f"No world at {folder}: it has no config.json. Train one (leplanner world train) or import a released "
            "checkpoint (leplanner world import)."
        )
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or config.get("kind") != "leplanner world":
        raise ValueError(
            f"{folder}/config.json does not describe a leplanner world. If it is a LeWM checkpoint, import it first: "
            f"leplanner world import {folder} --out DIR"
        )
    spec = WorldSpec.from_json(config["spec"])
    world = World(LeWM(spec.model), spec)
    load_strictly(world.model, read_safetensors(folder / "world.safetensors"), str(folder))
    if world.digest != config["digest"]:
        raise ValueError(
            f"{folder}: the weights do not match the digest in config.json. The folder is damaged or was edited."
        )
    return world


def write_safetensors(path: Path, module: torch.nn.Module) -> None:
    """Without loss: in fp16 where that holds every number exactly (`round_to_half`), else as it is."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    if all(tensor.half().to(tensor.dtype).equal(tensor) for tensor in floats.values()):
        tensors |= {name: tensor.half() for name, tensor in floats.items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}). Copy it again, or make it again.") from error


def load_strictly(model: torch.nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Every tensor of the model, no other, of the same shape, finite; or an error that lists what differs."""
    wanted = model.state_dict()
    problems = [f"missing: {name}" for name in wanted if name not in tensors]
    problems += [f"unexpected: {name}" for name in tensors if name not in wanted]
    for name in wanted.keys() & tensors.keys():
        if wanted[name].shape != tensors[name].shape:
            problems.append(f"shape of {name}: {tuple(tensors[name].shape)}, expected {tuple(wanted[name].shape)}")
        elif tensors[name].is_floating_point() and not tensors[name].isfinite().all():
            problems.append(f"not finite: {name}")
    if problems:
        listed = "\n  ".join(problems[:20]) + (f"\n  and {len(problems) - 20} more" if len(problems) > 20 else "")
        raise ValueError(f"The weights in {source} do not fit the model:\n  {listed}")
    model.load_state_dict(tensors, strict=True)
