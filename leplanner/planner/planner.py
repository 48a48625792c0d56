"""A trained planner with its frozen world: plans, and is stored as a bundle that needs no dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn

from ..artifacts import (
    check_digest,
    digest_json,
    digest_tensors,
    from_dict,
    load_modules,
    migration,
    read_artifact,
    write_artifact,
)
from ..core.dynamics import Dynamics, imagination, predictor_calls
from ..core.problem import Plan, PlanProblem, PlanTrace
from ..density.mixture import Density
from ..worlds.base import World, WorldSpec, spec_from_format_1
from .engines import ENGINES, Engine, EngineReport, layout, pick_engine, random_problem
from .model import LePlanner, PlannerConfig


class Planner:
    """`dynamics` imagines, `model` drafts and refines. Both are frozen here; `plan` computes no gradients.

    With a `World` as its dynamics it also encodes frames and has a digest; a bundle is such a planner on disk.
    """

    def __init__(self, dynamics: Dynamics, model: LePlanner, density: Density | None = None, engine: str = "auto"):
        """`engine`: auto, eager, compiled or onnx; made when the first plan is asked for."""
        if dynamics.latent != model.latent:
            raise ValueError(
                f"The world's latents have the shape {dynamics.latent.shape}, the planner's {model.latent.shape}: they "
                "were not made for each other."
            )
        spec = getattr(dynamics, "spec", None)  # a world says for which actions and context it was made
        if spec is not None:
            _check_fit(spec, model)
        self.dynamics, self.density = dynamics, density
        self.model = model.eval().requires_grad_(False)
        self.requested = engine
        self._created: tuple[Hashable, Engine] | None = None
        pick_engine(engine, dynamics, model)  # complains now rather than in the loop

    @property
    def world(self) -> World:
        """The dynamics, as what a controller needs: with an encoder and a specification."""
        return self.dynamics  # type: ignore[return-value]

    @torch.no_grad()
    def engine_report(self) -> EngineReport:
        """Which engine plans, in which number format, and why."""
        name, reason = pick_engine(self.requested, self.dynamics, self.model)
        return EngineReport(name, self._engine().precision, reason)

    def _engine(self) -> Engine:
        """Made for the first plan, and again when weights were changed or moved."""
        inner = getattr(self.dynamics, "model", None)
        key = layout(*([inner] if isinstance(inner, nn.Module) else []), self.model)
        if self._created is None or self._created[0] != key:
            name, _ = pick_engine(self.requested, self.dynamics, self.model)
            self._created = key, ENGINES.get(name).make(self.dynamics, self.model)
        return self._created[1]

    def warm_up(self) -> None:
        """Build the engine now, so that no decision is timed with it."""
        size = self.world.spec.frame_size
        self.encode(np.zeros((1, size, size, 3), np.uint8))
        problem = random_problem(self.model, next(self.model.parameters()).device)
        self.imagine(problem, self.plan(problem).blocks)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_created": None}  # sessions and compiled code cannot be copied

    @property
    def transitions_per_plan(self) -> int:
        """Predictor transitions that a plan imagines: every draft and refinement, block by block."""
        return (self.model.config.refinements + 1) * self.model.config.horizon

    @property
    def calls_per_rollout(self) -> int:
        """Predictor calls one after another to imagine one plan."""
        return predictor_calls(self.dynamics, self.model.config.horizon)

    @property
    def calls_per_plan(self) -> int:
        """Predictor calls one after another of every draft and refinement."""
        return (self.model.config.refinements + 1) * self.calls_per_rollout

    @overload
    def plan(self, problem: PlanProblem, record: Literal["final"] = "final") -> Plan: ...
    @overload
    def plan(self, problem: PlanProblem, record: Literal["trace"]) -> PlanTrace: ...

    @torch.no_grad()
    def plan(self, problem: PlanProblem, record: Literal["final", "trace"] = "final") -> Plan | PlanTrace:
        """The final plan, or with record="trace" the draft and every refinement of it, by the plain model."""
        if record not in ("final", "trace"):
            raise ValueError(f'record must be "final" or "trace"; got {record!r}.')
        self._check(problem)
        if record == "trace":
            return PlanTrace(self.model(problem, imagination(self.dynamics, problem)))
        return self._engine().plan(problem)

    @torch.no_grad()
    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        """Where a plan of any origin leads: standardized blocks (B, H, A) -> latents (B, H, *Z)."""
        self._check(problem)
        expected = (len(problem), self.model.config.horizon, self.model.actions.block_dim)
        if tuple(blocks.shape) != expected:
            raise ValueError(
                f"Blocks to imagine must have shape {expected}; got {tuple(blocks.shape)}. Standardized blocks are "
                "needed, as many as a plan has: lengthen what remains of one with the end of another."
            )
        return self._engine().imagine(problem, blocks)

    @torch.no_grad()
    def encode(self, frames: np.ndarray | Tensor) -> Tensor:
        """uint8 (B, S, S, 3) -> latents (B, *Z), by the planner's engine."""
        tensor = torch.as_tensor(np.ascontiguousarray(frames)) if isinstance(frames, np.ndarray) else frames
        return self._engine().encode(tensor)

    def to(self, device: torch.device | str) -> Planner:
        """World, planner and density."""
        self.world.to(device)
        self.model.to(device)
        if self.density:
            self.density.to(device)
        return self

    @property
    def digest(self) -> str:
        parts = [self.world.digest, dataclasses.asdict(self.model.config), digest_tensors(self.model.state_dict())]
        return digest_json([*parts, self.density.digest if self.density else None])

    def _check(self, problem: PlanProblem) -> None:
        batch, n, latent = len(problem.context), self.model.context, self.model.latent.shape
        block_dim = self.model.actions.block_dim
        expected = {"context": (batch, n, *latent), "past_blocks": (batch, n - 1, block_dim), "goal": (batch, *latent)}
        for name, shape in expected.items():
            actual = getattr(problem, name)
            if tuple(actual.shape) != shape:
                raise ValueError(
                    f"PlanProblem.{name} must have shape {shape}; got {tuple(actual.shape)}. The planner sees "
                    f"{n} latents of shape {latent} and the {n - 1} blocks of {block_dim} between them."
                )
            if not actual.isfinite().all():
                raise ValueError(f"PlanProblem.{name} holds NaN or infinity; check the frames or actions it came from.")


def _check_fit(spec: WorldSpec, model: LePlanner) -> None:
    sizes = {
        "context": (spec.context, model.context),
        "block_dim": (spec.actions.block_dim, model.actions.block_dim),
    }
    for name, (theirs, ours) in sizes.items():
        if theirs != ours:
            raise ValueError(
                f"The world's {name} is {theirs}, the planner's {ours}: they were not made for each other."
            )


def planner_for(world: World, config: PlannerConfig) -> LePlanner:
    """A new planner network for a world, with weights from torch's generator."""
    spec = world.spec
    return LePlanner(config, spec.latent, spec.context, spec.actions)


def save_bundle(planner: Planner, folder: Path, history: Mapping[str, Any] | None = None, **inputs: str) -> None:
    modules: dict[str, nn.Module] = {"world": planner.world.model, "planner": planner.model}
    contents = {"world": planner.world.spec.to_json(), "planner": dataclasses.asdict(planner.model.config)}
    if planner.density:
        modules["density"] = planner.density.model
        contents["density"] = planner.density.to_json()
    write_artifact(folder, "bundle", contents | {"digest": planner.digest}, modules, history, **inputs)


def load_bundle(folder: str | Path, engine: str = "auto") -> Planner:
    """On the CPU; `to` moves it."""
    folder = Path(folder)
    config = read_artifact(folder, "bundle")
    world = World.build(WorldSpec.from_json(config["world"]))
    planner = Planner(world, planner_for(world, from_dict(PlannerConfig, config["planner"])), None, engine)
    modules: dict[str, nn.Module] = {"world": world.model, "planner": planner.model}
    if "density" in config:
        planner.density = Density.from_json(config["density"])
        modules["density"] = planner.density.model
    load_modules(folder, modules)
    if "format_1" in config:
        check_digest(folder, config["digest"], _digest_of_format_1(config["format_1"], modules))
    else:
        check_digest(folder, config["digest"], planner.digest)
    return planner


@migration("bundle", 1)
def _bundle_from_format_1(config: dict[str, Any]) -> dict[str, Any]:
    """Format 1 stored the world's sizes with the planner's and the density's."""
    planner, density = dict(config["planner"]), dict(config.get("density", {}))
    shape = {name: planner.pop(name) for name in ("latent", "context", "block_dim")}
    changed = {"world": spec_from_format_1(config["world"]), "planner": planner, "format_1": config}
    if density:
        sizes = {name: density[name] for name in ("components", "width", "min_std") if name in density}
        facts = {name: density[name] for name in ("threshold", "world_digest")}
        changed["density"] = {"model": sizes, "shape": shape | {"latent": [shape["latent"]]}, **facts}
    return config | changed


def _digest_of_format_1(config: Mapping[str, Any], modules: Mapping[str, nn.Module]) -> str:
    """As format 1 computed it: damage is found in old bundles, too."""
    weights = {name: digest_tensors(module.state_dict()) for name, module in modules.items()}
    density = None
    if "density" in config:
        sizes = {name: value for name, value in config["density"].items() if name not in ("threshold", "world_digest")}
        density = digest_json([sizes, config["density"]["threshold"], weights["density"]])
    world = digest_json([config["world"], weights["world"]])
    return digest_json([world, config["planner"], weights["planner"], density])
