"""Trains, stores and executes the learned baselines: one loop, one artifact, one policy for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import digest_json, digest_tensors, from_dict, provenance, read_json, write_json
from ..control.policy import Array, Request
from ..data.cache import LatentCache
from ..learning import Learner, TrainProgress, learn
from ..planner.actions import ActionBox
from ..precision import pick_device
from ..world.world import World, load_strictly, read_safetensors, write_safetensors
from .gcbc import GCBC, GCBCConfig
from .gcidm import GCIDM, GCIDMConfig
from .gciql import GCIQL, GCIQLConfig
from .gcivl import GCIVL, GCIVLConfig
from .transitions import Transitions, draw_transitions

LEARNED: dict[str, tuple[type, type]] = {
    "gcidm": (GCIDM, GCIDMConfig),
    "gcbc": (GCBC, GCBCConfig),
    "gcivl": (GCIVL, GCIVLConfig),
    "gciql": (GCIQL, GCIQLConfig),
}


@dataclass(frozen=True)
class BaselineTrainConfig:
    steps: int = 6000
    batch: int = 256
    learning_rate: float = 3e-4
    weight_decay: float = 0.0
    warmup_share: float | None = None
    clip: float = 10.0
    seed: int = 0
    precision: str = "fp32"
    validate_every: int = 500
    checkpoint_minutes: float = 3.0


class LearnedPolicy:
    """A learned baseline behind a controller: looks at the current frame and the goal."""

    frames, rows = 1, 0

    def __init__(self, model: Any, box: ActionBox):
        self.model, self.box, self.name = model.eval().requires_grad_(False), box, model.name
        self.digest = digest_tensors(model.state_dict())
        self.stride = 1 if model.every_action else box.block

    @torch.no_grad()
    def decide(self, request: Request) -> Array:
        current, goal = request.problem.context[:, -1], request.problem.goal
        if request.remaining is None and self.model.needs_deadline:
            raise ValueError(f"{self.name} must know the deadline: give the controller a budget of actions.")
        remaining = torch.full((len(goal),), float(request.remaining or 0), device=goal.device)
        return self.box.raw(self.model.blocks(current, goal, remaining).cpu()).numpy()


def train_baseline(
    name: str,
    world: World,
    cache: LatentCache,
    config: BaselineTrainConfig,
    out: Path,
    device: str = "auto",
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
) -> LearnedPolicy:
    """Train to `out`, or continue. Cloning methods keep the weights with the least held-out error; the error of
    imitation says nothing about a value, so the others keep their last."""
    if name not in LEARNED:
        raise ValueError(f"Unknown baseline {name!r}; known: {', '.join(LEARNED)}.")
    make, settings = LEARNED[name][0], LEARNED[name][1]()
    train, held_out = world.plan_windows(cache, behaviour_only=True)
    shape = (world.spec.model.latent, world.spec.model.block_dim, world.spec.block)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = make(*shape, settings)
    inputs = {"encoder": world.encoder_digest, "data": cache.data_digest}
    run = digest_json([name, dataclasses.asdict(settings), dataclasses.asdict(config), inputs])
    learner = Learner(model, config, pick_device(device), run)
    fixed = draw_transitions(held_out, np.random.default_rng(0), 1024, settings.max_offset)

    def look() -> dict[str, float]:
        with torch.no_grad():
            batch = _tensors(fixed, learner.device)
            remaining = batch["offset"] * world.spec.block
            predicted = model.blocks(batch["latent"], batch["goal"], remaining)
            return {"held_out_error": (predicted - batch["block"][:, : predicted.shape[1]]).square().mean().item()}

    metrics = learn(
        learner,
        out,
        draw=lambda rng, step: draw_transitions(train, rng, config.batch, settings.max_offset, settings.random_goals),
        losses=lambda batch, generator: model.losses(_tensors(batch, learner.device)),
        validate=look,
        counted={"samples": config.batch},
        best_by="held_out_error" if model.clones else None,
        on_progress=on_progress,
        stop_after=stop_after,
    )
    if learner.done == config.steps and not (out / "config.json").exists():
        _save(model, name, settings, shape, out, {"config": dataclasses.asdict(config), "metrics": metrics}, inputs)
    return LearnedPolicy(model, ActionBox.of(world.spec))


def load_baseline(folder: str | Path, world: World) -> LearnedPolicy:
    folder = Path(folder)
    if not (folder / "config.json").exists():
        raise ValueError(f"No trained baseline at {folder}. Train them with: leplanner baselines {world.spec.task}")
    config = read_json(folder / "config.json")
    if config.get("kind") != "leplanner baseline" or config.get("name") not in LEARNED:
        raise ValueError(f"{folder}/config.json does not describe a known baseline ({', '.join(LEARNED)}).")
    if config["provenance"]["inputs"].get("encoder") != world.encoder_digest:
        raise ValueError(
            f"The baseline at {folder} was trained on another encoder's latents. Train it again on this world's."
        )
    make, settings = LEARNED[config["name"]]
    model = make(*config["shape"], from_dict(settings, config["settings"]))
    load_strictly(model, read_safetensors(folder / "model.safetensors"), str(folder))
    if digest_tensors(model.state_dict()) != config["digest"]:
        raise ValueError(f"{folder}: the weights do not match the digest in config.json. Train the baseline again.")
    return LearnedPolicy(model.to(world.device), ActionBox.of(world.spec))


def _save(
    model: nn.Module, name: str, settings: Any, shape: tuple[int, ...], out: Path, history: Any, inputs: dict[str, str]
) -> None:
    write_safetensors(out / "model.safetensors", model)
    config = {"kind": "leplanner baseline", "name": name, "settings": dataclasses.asdict(settings), "shape": shape}
    config |= {"digest": digest_tensors(model.state_dict())}
    write_json(out / "config.json", config | {"training": history, "provenance": provenance(**inputs)})


def _tensors(batch: Transitions, device: torch.device) -> dict[str, Tensor]:
    """`future`: 1 where the goal lies ahead in the same episode, which is what an actor learns from."""
    arrays = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    arrays["future"] = batch.offset > 0
    return {name: torch.from_numpy(np.asarray(array, np.float32)).to(device) for name, array in arrays.items()}
