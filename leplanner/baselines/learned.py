"""Trains, stores and executes the learned baselines: one loop, one artifact, one policy for all of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    read_artifact,
    write_artifact,
)
from ..control.methods import METHODS, NO, PURPLE, YES, Method, MethodInputs, PolicyFor, Properties
from ..control.policy import Array, Request
from ..core.actions import ActionSpec
from ..core.latent import LatentSpec
from ..core.registry import Registry
from ..data.cache import LatentCache
from ..data.windows import plan_windows
from ..training.loop import OnProgress, TrainState, no_progress, train_loop
from ..training.optim import OptimConfig
from ..training.runtime import Runtime, seeded
from ..worlds.base import World
from .transitions import Transitions, draw_transitions

GOAL_CONDITIONED = Properties("GCBC / GCIQL / GCIVL", YES, NO, NO, YES, YES, YES)
READ_LATENTS = ("latent", "following", "goal")


@dataclass(frozen=True)
class LearnedBaseline:
    """A network, an `nn.Module` made from (latent size, block size A, actions in a block, config),
    with `losses(batch)`, `blocks(latent, goal, remaining)`, `clones` (its held-out error says how good
    it is) and `needs_deadline` (it is told how many actions remain, and so learns from goals at every row, not only
    at the ends of blocks)."""

    name: str
    title: str
    network: Any
    config: type  # with max_offset and random_goals, of the goals it learns from
    properties: Properties
    replan: int  # 0: decides before every action; 1: once a block


LEARNED: Registry[LearnedBaseline] = Registry("baseline")


def register_baseline(baseline: LearnedBaseline) -> LearnedBaseline:
    """Known to `leplanner baselines`, and as a method to every comparison."""

    def make(inputs: MethodInputs) -> PolicyFor:
        policy = _trained(baseline.name, inputs)
        return lambda trial: policy

    def weights(inputs: MethodInputs) -> str:
        return _trained(baseline.name, inputs).digest

    METHODS.register(
        Method(
            baseline.name,
            baseline.title,
            "learned",
            make,
            PURPLE,
            baseline.properties,
            replan=baseline.replan,
            weights=weights,
        )
    )
    return LEARNED.register(baseline)


def _trained(name: str, inputs: MethodInputs) -> LearnedPolicy:
    if inputs.baselines is None:
        raise ValueError(f"{name} needs trained baselines: leplanner baselines TASK, then --baselines DIR.")
    return load_baseline(inputs.baselines / name, inputs.planner.world)


@dataclass(frozen=True)
class BaselineTrainConfig:
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            steps=6000, batch=256, learning_rate=3e-4, clip=10.0, precision="fp32", validate_every=500
        )
    )


class BaselineNetwork(nn.Module):
    """A baseline's network behind a reader of the world's latents."""

    def __init__(self, baseline: LearnedBaseline, settings: Any, latent: LatentSpec, block_dim: int, block: int):
        super().__init__()
        self.baseline, self.settings = baseline, settings
        self.reader, size = latent.reader(settings.width)
        self.network = baseline.network(size, block_dim, block, settings)

    def losses(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.network.losses(batch | {name: self.reader(batch[name]) for name in READ_LATENTS})

    def blocks(self, latent: Tensor, goal: Tensor, remaining: Tensor) -> Tensor:
        """Standardized actions of the next decision (B, T * d_a)."""
        return self.network.blocks(self.reader(latent), self.reader(goal), remaining)


class LearnedPolicy:
    """A learned baseline behind a controller: looks at the current frame and the goal."""

    frames, transitions = 1, 0

    def __init__(self, model: BaselineNetwork, actions: ActionSpec):
        self.model, self.actions, self.name = model.eval().requires_grad_(False), actions, model.baseline.name
        self.digest = digest_tensors(model.state_dict())
        self.stride = model.baseline.replan * actions.block or 1

    @torch.no_grad()
    def decide(self, request: Request) -> Array:
        current, goal = request.problem.context[:, -1], request.problem.goal
        if request.remaining is None and self.model.network.needs_deadline:
            raise ValueError(f"{self.name} must know the deadline: give the controller a budget of actions.")
        remaining = torch.full((len(goal),), float(request.remaining or 0), device=goal.device)
        return self.actions.raw(self.model.blocks(current, goal, remaining).cpu()).numpy()


def train_baseline(
    name: str,
    world: World,
    cache: LatentCache,
    config: BaselineTrainConfig,
    out: Path,
    runtime: Runtime | None = None,
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
) -> LearnedPolicy:
    """Train to `out`, or continue. Cloning methods keep the weights with the least held-out error; the error of
    imitation says nothing about a value, so the others keep their last."""
    baseline, optim, spec = LEARNED.get(name), config.optim, world.spec
    settings = baseline.config()
    train, held_out = plan_windows(world, cache, behavior_only=True)
    with seeded(optim.seed):
        model = BaselineNetwork(baseline, settings, spec.latent, spec.actions.block_dim, spec.actions.block)
    inputs = {"encoder": world.encoder_digest, "data": cache.data_digest}
    identity = [name, dataclasses.asdict(settings), dataclasses.asdict(config), inputs]
    every_row = model.network.needs_deadline
    if every_row and train.table.stride > 1:  # where a row is a block, trainings from before can be continued
        identity.append("every row")
    state = TrainState(model, optim, runtime or Runtime(), digest_json(identity))
    fixed = draw_transitions(held_out, np.random.default_rng(0), 1024, settings.max_offset, every_row=every_row)

    def draw(rng: np.random.Generator, step: int) -> Transitions:
        return draw_transitions(train, rng, optim.batch, settings.max_offset, settings.random_goals, every_row)

    def look() -> dict[str, float]:
        with torch.no_grad():
            batch = _tensors(fixed, state.device)
            predicted = model.blocks(batch["latent"], batch["goal"], batch["horizon"])
            return {"held_out_error": (predicted - batch["block"][:, : predicted.shape[1]]).square().mean().item()}

    metrics = train_loop(
        state,
        out,
        draw=draw,
        losses=lambda batch, generator: model.losses(_tensors(batch, state.device)),
        validate=look,
        counted={"samples": optim.batch},
        best_by="held_out_error" if model.network.clones else None,
        on_progress=on_progress,
        stop_after=stop_after,
    )
    if state.finished and not is_whole(out):
        contents = {"name": name, "settings": dataclasses.asdict(settings), "latent": spec.latent.shape}
        contents |= {"block_dim": spec.actions.block_dim, "block": spec.actions.block}
        contents |= {"digest": digest_tensors(model.state_dict())}
        history = {"config": dataclasses.asdict(config), "metrics": metrics}
        write_artifact(out, "baseline", contents, {"model": model}, history, **inputs)
    return LearnedPolicy(model, spec.actions)


def load_baseline(folder: str | Path, world: World) -> LearnedPolicy:
    folder = Path(folder)
    config = read_artifact(folder, "baseline")
    baseline = LEARNED.get(config["name"])
    if config["provenance"]["inputs"].get("encoder") != world.encoder_digest:
        raise ValueError(
            f"The baseline at {folder} was trained on another encoder's latents. Train it again on this world's."
        )
    settings = from_dict(baseline.config, config["settings"])
    latent = LatentSpec(tuple(config["latent"]))
    model = BaselineNetwork(baseline, settings, latent, config["block_dim"], config["block"])
    load_modules(folder, {"model": model})
    check_digest(folder, config["digest"], digest_tensors(model.state_dict()))
    return LearnedPolicy(model.to(world.device), world.spec.actions)


def _tensors(batch: Transitions, device: torch.device) -> dict[str, Tensor]:
    """`future`: 1 where the goal lies ahead in the same episode, which is what an actor learns from."""
    arrays = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
    arrays["future"] = batch.horizon > 0
    return {name: torch.from_numpy(np.asarray(array, np.float32)).to(device) for name, array in arrays.items()}
