"""World-model families behind one protocol: what a family brings, what travels with its weights,
and the frozen world itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import (
    check_digest,
    digest_json,
    digest_tensors,
    from_dict,
    is_whole,
    load_modules,
    migration,
    read_artifact,
    read_json,
    to_dict,
    write_artifact,
)
from ..core.actions import ActionSpec
from ..core.dynamics import CAPABILITIES, capability
from ..core.latent import LatentSpec
from ..core.registry import Registry
from ..data.episodes import Episodes
from ..data.resize import at_size
from .pretraining import Pretraining

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class NetworkConfig(Protocol):
    """The sizes of a family's network: a frozen dataclass of the family's own, with at least these."""

    @property
    def block_dim(self) -> int: ...  # A, numbers in an action block
    @property
    def context(self) -> int: ...  # N, frames that a rollout starts from
    @property
    def frame_size(self) -> int: ...  # pixels
    @property
    def latent_shape(self) -> tuple[int, ...]: ...


class WorldModel(Protocol):
    """A family's network, an `nn.Module`. It may offer the capabilities of `core.dynamics` besides."""

    config: Any

    def encode(self, frames: Tensor) -> Tensor:
        """Normalized frames (B, 3, S, S) -> latents (B, *Z)."""
        ...

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """(B, N, *Z), (B, N-1, A), (B, H, A) -> (B, H, *Z)."""
        ...

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        """(B, H, *Z), (B, *Z) -> (B, H)."""
        ...

    def encoder_parts(self) -> Mapping[str, nn.Module]:
        """The modules that decide a frame's latent; all others belong to the predictor."""
        ...

    def losses(
        self,
        latents: Tensor,  # (B, T, *Z) of a window's frames, with gradients to the encoder
        blocks: Tensor,  # (B, T-1, A)
        objective: Any,  # the family's loss weights
        generator: torch.Generator,
        gather: Callable[[Tensor], Tensor],  # the whole batch, where each of several processes has a part
    ) -> dict[str, Tensor]:
        """The terms of the training loss, and their weighted sum as "loss"."""
        ...


@dataclass(frozen=True)
class WorldFamily:
    """What `register_world` takes: one of these, and the family is known to every stage, engine and verb."""

    name: str
    title: str
    config: type  # the network's sizes, a frozen dataclass
    build: Callable[[Any], Any]  # sizes -> a WorldModel
    network: Callable[[str, int, int], Any]  # (scale, block_dim, frame_size) -> sizes
    objective: Callable[[str], Any]  # scale -> loss weights, a frozen dataclass
    window: Callable[[Any], int] = lambda network: network.context + 1  # frames in a training window
    own_planner: str = "cem"  # the method that its authors plan with
    adjust: Callable[[Any], Any] = lambda preset: preset  # what it changes in a preset, after the task
    # makes a frozen encoder, if the family has one: called once, before the world's own training; resumable
    pretrain: Callable[[Any, Pretraining], None] | None = None
    # raises where something that training such a network needs is missing: long runs ask before they begin
    check_ready: Callable[[Any], None] = lambda network: None
    about: Callable[[Any], str] = lambda network: ""  # a sentence on such a network, for the model card
    # released checkpoints, if the family has any: (source, task name, block length -> actions) ->
    # World, and (world, folder, names)
    import_release: Callable[[str, str, Callable[[int], ActionSpec]], World] | None = None
    export_release: Callable[[World, Path, str], None] | None = None
    # whether a downloaded config.json describes one of them, so that a checkpoint given as another family's is told
    describes: Callable[[Mapping[str, Any]], bool] = lambda config: False


FAMILIES: Registry[WorldFamily] = Registry("world family", "leplanner.worlds", address="leplanner.worlds:FAMILIES")


def register_world(family: WorldFamily) -> WorldFamily:
    """Make a family known by its name, to every verb and function of this process."""
    return FAMILIES.register(family)


def find_family(text: str) -> WorldFamily:
    """What a user typed: a registered name, or `package.module:FAMILY`, which is imported and registered."""
    return FAMILIES.find(text)


def family_of_release(config: Mapping[str, Any]) -> str | None:
    """The family whose released checkpoints have such a config, if one is known."""
    return next((family.name for family in FAMILIES.values() if family.describes(config)), None)


@dataclass(frozen=True)
class WorldSpec:
    """What travels with the weights: family and sizes, action statistics and bounds, image transform."""

    family: str
    task: str
    network: Any  # the family's sizes
    actions: ActionSpec
    pixel_mean: tuple[float, ...] = IMAGENET_MEAN
    pixel_std: tuple[float, ...] = IMAGENET_STD
    visuals: Mapping[str, Any] = field(default_factory=dict[str, Any])  # how training frames were drawn
    grounded: bool = False  # whether a state head helped in training

    def __post_init__(self) -> None:
        if self.network.block_dim != self.actions.block_dim:
            raise ValueError(
                f"The network takes blocks of {self.network.block_dim} numbers; {self.actions.block} actions of "
                f"{self.actions.dim} numbers make {self.actions.block_dim}."
            )

    @property
    def context(self) -> int:
        return self.network.context

    @property
    def frame_size(self) -> int:
        return self.network.frame_size

    @property
    def latent(self) -> LatentSpec:
        return LatentSpec(tuple(self.network.latent_shape))

    @property
    def resampling(self) -> str:
        """How frames of another size are resized: as those that such an encoder is trained on were made."""
        return getattr(getattr(self.network, "encoder", None), "resampling", "area")

    def sized(self, episodes: Episodes) -> Episodes:
        """A dataset with frames of the size that the encoder takes."""
        return at_size(episodes, self.frame_size, self.resampling)

    def to_json(self) -> dict[str, Any]:
        return to_dict(self) | {"visuals": dict(self.visuals)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> WorldSpec:
        name = str(value.get("family"))
        try:
            family = FAMILIES.get(name)
        except ValueError as error:
            raise ValueError(
                f"{error} A family of another package must be registered first: import that package, or give "
                "--family package.module:FAMILY."
            ) from error
        network = from_dict(family.config, value["network"])
        return from_dict(WorldSpec, {**value, "network": network})


def check_frames(frames: Tensor, spec: WorldSpec) -> None:
    size = spec.frame_size
    if frames.dtype != torch.uint8 or frames.ndim != 4 or tuple(frames.shape[1:]) != (size, size, 3):
        raise ValueError(
            f"Frames must be uint8 of shape (B, {size}, {size}, 3); got {frames.dtype} of shape "
            f"{tuple(frames.shape)}. Resize them first."
        )


def normalize(frames: Tensor, spec: WorldSpec) -> Tensor:
    """uint8 (B, S, S, 3) -> float32 (B, 3, S, S) in the encoder's units."""
    check_frames(frames, spec)
    mean = 255.0 * torch.tensor(spec.pixel_mean, device=frames.device).view(1, 3, 1, 1)
    std = 255.0 * torch.tensor(spec.pixel_std, device=frames.device).view(1, 3, 1, 1)
    return (frames.permute(0, 3, 1, 2) - mean) / std


def build_network(spec: WorldSpec) -> Any:
    """With new weights, from torch's generator. A network that has a use for the environment's box is told it."""
    model = FAMILIES.get(spec.family).build(spec.network)
    set_action_box = capability(model, "set_action_box")
    if set_action_box is not None:
        set_action_box(spec.actions.center, spec.actions.scale)
    return model


class World:
    """A family's network, frozen, with everything needed to use it without a dataset.
    Gradients flow *through* it to a plan.

    Satisfies `Dynamics`, and offers whatever capabilities its network offers.
    """

    traceable = True  # torch can export its rollout and encoder: families are networks

    def __init__(self, model: Any, spec: WorldSpec):
        self.model: Any = model.eval().requires_grad_(False)
        self.spec = spec

    def __repr__(self) -> str:
        spec, count = self.spec, sum(p.numel() for p in self.model.parameters())
        return (
            f"<World {spec.family} for {spec.task}: frames of {spec.frame_size} px -> latents {spec.latent.shape}, "
            f"context {spec.context}, blocks of {spec.actions.block} actions; {count / 1e6:.1f} M parameters>"
        )

    @staticmethod
    def build(spec: WorldSpec) -> World:
        """With new weights, from torch's generator."""
        return World(build_network(spec), spec)

    @property
    def latent(self) -> LatentSpec:
        return self.spec.latent

    @property
    def digest(self) -> str:
        return digest_json([self.spec.to_json(), digest_tensors(self.model.state_dict())])

    @property
    def encoder_digest(self) -> str:
        """Of all that decides a frame's latent: worlds finetuned from one another share it."""
        parts = {name: part.state_dict() for name, part in self.model.encoder_parts().items()}
        tensors = {f"{name}.{key}": value for name, state in parts.items() for key, value in state.items()}
        spec = self.spec.to_json()
        seen = [spec[name] for name in ("family", "pixel_mean", "pixel_std", "visuals")]
        return digest_json([self.spec.frame_size, *seen, digest_tensors(tensors)])

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def to(self, device: torch.device | str) -> World:
        self.model.to(device)
        return self

    @torch.no_grad()
    def encode(self, frames: np.ndarray | Tensor) -> Tensor:
        """uint8 (B, S, S, 3) -> latents (B, *Z)."""
        tensor = torch.as_tensor(np.ascontiguousarray(frames)) if isinstance(frames, np.ndarray) else frames
        return self.model.encode(normalize(tensor.to(self.device), self.spec))

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """Latents (B, N, *Z), standardized blocks (B, N-1, A) and (B, H, A) -> imagined latents (B, H, *Z)."""
        n = self.spec.context
        if context.shape[1] != n or past_blocks.shape[1] != n - 1:
            raise ValueError(
                f"A rollout needs {n} context latents and the {n - 1} blocks between them; "
                f"got {context.shape[1]} and {past_blocks.shape[1]}. Fill up with leplanner.data.context.fill_context."
            )
        self._check_latents(context, "a context")
        return self.model.rollout(context, past_blocks, plan)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        self._check_latents(latents, "latents")
        self._check_latents(goal, "a goal")
        return self.model.distance(latents, goal)

    def _check_latents(self, latents: Tensor, what: str) -> None:
        """Else numbers of patches that do not match would fail deep inside, or be broadcast."""
        expected = self.latent.shape
        if latents.shape[-len(expected) :] != expected:
            raise ValueError(
                f"Latents of this {self.spec.family} world have the shape {expected}; got {what} of shape "
                f"{tuple(latents.shape)}. Encode the frames with this world."
            )

    def __getattr__(self, name: str) -> Any:
        """Capabilities are the network's to offer; see `core.dynamics`."""
        if name not in CAPABILITIES:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        offered = capability(self.model, name)
        if offered is None:
            able = [one for one in CAPABILITIES if capability(self.model, one) is not None]
            raise AttributeError(
                f"Worlds of the family {self.spec.family!r} have no {name}; of what worlds may offer, they have "
                f"{', '.join(able) or 'nothing'}. Train a world of a family that has it."
            )
        return offered


def save_world(world: World, folder: Path, history: Mapping[str, Any] | None = None, **inputs: str) -> None:
    contents = {"spec": world.spec.to_json(), "digest": world.digest}
    write_artifact(folder, "world", contents, {"world": world.model}, history, **inputs)


def check_family(folder: Path, requested: str | None) -> Path:
    """The folder of a world, or of a planner with its world, unless it is of another family than the one requested."""
    if requested is None or not is_whole(folder):  # whoever reads the folder says what is missing
        return folder
    config: Any = read_json(folder / "config.json")
    spec: Any = config.get("spec") or config.get("world") or {}
    family, actual = find_family(requested).name, str(spec.get("family", "lewm"))  # format 1 knew LeWM alone
    if family != actual:
        raise ValueError(
            f"{folder} holds a world of the family {actual!r}; {family!r} was requested. Say --family {actual}, or "
            f"give a folder with a world of {family} (--base, --world or --bundle)."
        )
    return folder


def load_world(folder: str | Path) -> World:
    folder = Path(folder)
    config = read_artifact(folder, "world")
    try:
        spec = WorldSpec.from_json(config["spec"])
    except ValueError as error:
        raise ValueError(f"The world at {folder} cannot be built: {error}") from error
    world = World.build(spec)
    load_modules(folder, {"world": world.model})
    recorded = config.get("digest_1")
    actual = digest_json([config["spec_1"], digest_tensors(world.model.state_dict())]) if recorded else world.digest
    check_digest(folder, recorded or config["digest"], actual)
    return world


@migration("world", 1)
def _world_from_format_1(config: dict[str, Any]) -> dict[str, Any]:
    return config | {"spec": spec_from_format_1(config["spec"]), "spec_1": config["spec"], "digest_1": config["digest"]}


def spec_from_format_1(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Format 1 knew LeWM alone, and one bound for all action dimensions."""
    network = dict(spec["model"])
    encoder = dict(network["encoder"])
    if "refine" in encoder:
        encoder["extra_convolutions"] = encoder.pop("refine")
    size = len(spec["action_mean"])
    actions = {
        "mean": spec["action_mean"],
        "std": spec["action_std"],
        "low": [spec["action_low"]] * size,
        "high": [spec["action_high"]] * size,
        "block": spec["block"],
    }
    kept = {name: spec[name] for name in ("task", "pixel_mean", "pixel_std", "visuals", "grounded") if name in spec}
    return {"family": "lewm", "network": network | {"encoder": encoder}, "actions": actions, **kept}
