"""A trained planner with its frozen world: plans, and is stored as a bundle that needs no dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ..artifacts import digest_json, digest_tensors, from_dict, provenance, read_json, write_json
from ..density.mixture import Density, DensityConfig, MixtureDensity
from ..world.lewm import LeWM
from ..world.world import World, WorldSpec, load_strictly, read_safetensors, write_safetensors
from .actions import ActionBox
from .engine import Engine, EngineReport, OnnxEncoder, layout, make_engine, pick_engine
from .model import LePlanner, PlannerConfig
from .problem import LatentDynamics, Plan, PlanProblem, PlanTrace, imagination


class Planner:
    """`dynamics` imagines, `model` drafts and corrects. Both are frozen here; `plan` computes no gradients."""

    def __init__(self, dynamics: LatentDynamics, model: LePlanner, engine: str = "auto"):
        """`engine`: auto, eager, compiled or onnx; made when the first plan is asked for."""
        self.dynamics = dynamics
        self.model = model.eval().requires_grad_(False)
        self.asked = engine
        self._made: tuple[Hashable, Engine] | None = None
        pick_engine(engine, dynamics, model)  # complains now rather than in the loop
        if isinstance(dynamics, World):
            _check_fit(dynamics, model.config)

    @torch.no_grad()
    def engine_report(self) -> EngineReport:
        """Which engine plans, in which number format, and why."""
        name, reason = pick_engine(self.asked, self.dynamics, self.model)
        return EngineReport(name, self._engine().precision, reason)

    def _engine(self) -> Engine:
        """Made for the first plan, and again when weights were changed or moved."""
        parts = (self.dynamics.model, self.model) if isinstance(self.dynamics, World) else (self.model,)
        key = layout(*parts)
        if self._made is None or self._made[0] != key:
            name, _ = pick_engine(self.asked, self.dynamics, self.model)
            self._made = key, make_engine(name, self.dynamics, self.model)
        return self._made[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": None}  # sessions and compiled code cannot be copied

    @property
    def rows(self) -> int:
        """Predictor transitions a plan imagines: every draft and correction, block by block."""
        return (self.model.config.refinements + 1) * self.model.config.horizon

    @overload
    def plan(self, problem: PlanProblem, record: Literal["final"] = "final") -> Plan: ...
    @overload
    def plan(self, problem: PlanProblem, record: Literal["trace"]) -> PlanTrace: ...

    @torch.no_grad()
    def plan(self, problem: PlanProblem, record: Literal["final", "trace"] = "final") -> Plan | PlanTrace:
        """The final plan, or with record="trace" the draft and every correction of it, by the plain model."""
        if record not in ("final", "trace"):
            raise ValueError(f'record must be "final" or "trace"; got {record!r}.')
        self._check(problem)
        if record == "trace":
            return PlanTrace(self.model(problem, imagination(self.dynamics, problem)))
        return self._engine().plan(problem)

    @torch.no_grad()
    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        """Where a plan of any origin leads: standardised blocks (B, H, A) -> latents (B, H, D)."""
        self._check(problem)
        c = self.model.config
        if tuple(blocks.shape) != (len(problem.goal), c.horizon, c.block_dim):
            raise ValueError(
                f"Blocks to imagine must have shape {(len(problem.goal), c.horizon, c.block_dim)}; got {tuple(blocks.shape)}. "
                "Standardised blocks are needed, as many as a plan has: lengthen what is left of one with the end of another."
            )
        return self._engine().imagine(problem, blocks)

    def _check(self, problem: PlanProblem) -> None:
        c = self.model.config
        batch = len(problem.context)
        wanted = {
            "context": (batch, c.context, c.latent),
            "past_blocks": (batch, c.context - 1, c.block_dim),
            "goal": (batch, c.latent),
        }
        for name, shape in wanted.items():
            found = getattr(problem, name)
            if tuple(found.shape) != shape:
                raise ValueError(
                    f"PlanProblem.{name} must have shape {shape}; got {tuple(found.shape)}. The planner sees "
                    f"{c.context} latents of {c.latent} and the {c.context - 1} blocks of {c.block_dim} between them."
                )
            if not found.isfinite().all():
                raise ValueError(f"PlanProblem.{name} holds NaN or infinity; check the frames or actions it came from.")


def _check_fit(world: World, shape: PlannerConfig) -> None:
    model = world.spec.model
    for name in ("latent", "block_dim", "context"):
        if getattr(model, name) != getattr(shape, name):
            raise ValueError(
                f"The world's {name} is {getattr(model, name)}, the planner's {getattr(shape, name)}: they were not made for "
                "each other."
            )


class TaskPlanner(Planner):
    """A planner in a LeWM world, with all that its use needs: what `load` returns."""

    def __init__(self, world: World, model: LePlanner, density: Density | None = None, engine: str = "auto"):
        super().__init__(world, model, engine)
        self.world, self.density = world, density

    def to(self, device: torch.device | str) -> TaskPlanner:
        """All of it. Where ONNX Runtime plans, it encodes frames too."""
        self.world.to(device)
        self.model.to(device)
        if self.density:
            self.density.model.to(device)
        onnx = pick_engine(self.asked, self.world, self.model)[0] == "onnx"
        self.world.encoder = OnnxEncoder(self.world) if onnx else None
        return self

    @property
    def digest(self) -> str:
        parts = [self.world.digest, dataclasses.asdict(self.model.config), digest_tensors(self.model.state_dict())]
        return digest_json([*parts, self.density.digest if self.density else None])


def save_bundle(planner: TaskPlanner, folder: Path, history: dict[str, Any] | None = None, **inputs: str) -> None:
    """Weights first, config last: a folder with a config.json is whole."""
    parts: dict[str, torch.nn.Module] = {"world": planner.world.model, "planner": planner.model}
    config = {"kind": "leplanner bundle", "world": planner.world.spec.to_json()}
    config |= {"planner": dataclasses.asdict(planner.model.config)}
    if planner.density:
        parts["density"] = planner.density.model
        config["density"] = dataclasses.asdict(planner.density.model.config) | {"threshold": planner.density.threshold}
        config["density"] |= {"world_digest": planner.density.world_digest}
    for name, module in parts.items():
        write_safetensors(folder / f"{name}.safetensors", module)
    config |= {"digest": planner.digest, "training": history or {}, "provenance": provenance(**inputs)}
    write_json(folder / "config.json", config)


def load_bundle(folder: str | Path, engine: str = "auto") -> TaskPlanner:
    """On the CPU; `to` moves it."""
    folder = Path(folder)
    if not (folder / "config.json").exists():
        raise ValueError(f"No bundle at {folder}: it has no config.json. Train a planner with: leplanner train TASK")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or config.get("kind") != "leplanner bundle":
        raise ValueError(
            f"{folder}/config.json does not describe a leplanner bundle. Make one with: leplanner train TASK"
        )
    spec = WorldSpec.from_json(config["world"])
    world = World(LeWM(spec.model), spec)
    model = LePlanner(from_dict(PlannerConfig, config["planner"]), ActionBox.of(spec))
    density = None
    if "density" in config:
        shape = dict(config["density"])
        threshold, fitted_on = shape.pop("threshold"), shape.pop("world_digest")
        density = Density(MixtureDensity(from_dict(DensityConfig, shape)), threshold, fitted_on)
        load_strictly(density.model, read_safetensors(folder / "density.safetensors"), f"{folder}/density.safetensors")
    load_strictly(world.model, read_safetensors(folder / "world.safetensors"), f"{folder}/world.safetensors")
    load_strictly(model, read_safetensors(folder / "planner.safetensors"), f"{folder}/planner.safetensors")
    planner = TaskPlanner(world, model, density, engine).to("cpu")
    if planner.digest != config["digest"]:
        raise ValueError(
            f"{folder}: the weights do not match the digest in config.json. The bundle is damaged or was edited."
        )
    return planner
