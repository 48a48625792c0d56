"""Ways to compute the same plan: the plain model, which is the reference; compiled; or one ONNX graph in ONNX Runtime."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..precision import autocast, pick_precision
from ..world.fast_rollout import FastRollout
from ..world.onnx_graph import encoder_graph
from ..world.world import World
from .fast import FastPlanner
from .model import LePlanner
from .onnx_graph import plan_graph
from .problem import LatentDynamics, Plan, PlanProblem, imagination

ENGINES = ("auto", "eager", "compiled", "onnx")
HALF_TOLERANCE = 1e-2  # how far bf16 may move a plan, in standardised units


@dataclass(frozen=True)
class EngineReport:
    engine: str
    precision: str
    reason: str


class Engine(Protocol):
    precision: str

    def plan(self, problem: PlanProblem) -> Plan: ...


def pick_engine(asked: str, dynamics: LatentDynamics, model: LePlanner) -> tuple[str, str]:
    """The engine to use, and why."""
    if asked not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {asked!r}.")
    device = next(model.parameters()).device.type
    if asked == "eager":
        return asked, "asked for"
    if not isinstance(dynamics, World):
        if asked != "auto":
            raise ValueError(
                f'engine="{asked}" lays out a LeWM world; this planner imagines with a {type(dynamics).__name__}. '
                'Use engine="eager", or "auto".'
            )
        return "eager", f"the planner imagines with a {type(dynamics).__name__}, which only the plain model can call"
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if asked == "onnx" and (missing or device != "cpu"):
        problem = (
            f"{' and '.join(missing)} is not installed" if missing else f"the planner is on {device}, not on the CPU"
        )
        raise ValueError(f'engine="onnx": {problem}. Install leplanner[export], or use engine="eager".')
    if asked != "auto":
        return asked, "asked for"
    if device == "cpu" and not missing:
        return "onnx", "ONNX Runtime is the fastest here on a CPU, and ready within seconds"
    if device == "cpu":
        return "eager", f"{' and '.join(missing)} is not installed; leplanner[export] plans several times faster"
    if device == "cuda":
        return "compiled", "compiled regions replayed as CUDA graphs"
    return "eager", f"nothing faster is known to work on {device}"


def make_engine(name: str, world: LatentDynamics, model: LePlanner) -> Engine:
    if name == "eager":
        return EagerEngine(world, model)
    assert isinstance(world, World)
    return OnnxEngine(world, model) if name == "onnx" else CompiledEngine(world, model)


class EagerEngine:
    precision = "fp32"

    def __init__(self, dynamics: LatentDynamics, model: LePlanner):
        self.dynamics, self.model = dynamics, model

    def plan(self, problem: PlanProblem) -> Plan:
        return self.model(problem, imagination(self.dynamics, problem))[-1]


class CompiledEngine:
    """Compiles for each batch size it meets: minutes on a CPU, once a machine. In bf16 where that is faster, unless it moves
    a plan too far."""

    def __init__(self, world: World, model: LePlanner):
        kind = world.device.type
        options = {"freezing": True} if kind == "cpu" else {"triton.cudagraphs": kind == "cuda"}
        self.device = world.device
        self.planner, self.rollout = FastPlanner(model, options=options), FastRollout(world.model, True, options)
        self.precision = pick_precision("auto", world.device)
        if self.precision == "bf16":
            problem = random_problem(model, world.device)
            exact = EagerEngine(world, model).plan(problem).blocks
            if (self.plan(problem).blocks - exact).abs().max() > HALF_TOLERANCE:
                self.precision = "fp32"

    def plan(self, problem: PlanProblem) -> Plan:
        with autocast(self.precision, self.device):
            plan = self.planner(problem, imagination(self.rollout, problem))[-1]
        return Plan(plan.blocks.float(), plan.latents.float(), plan.distances.float())


class OnnxEngine:
    precision = "fp32"

    def __init__(self, world: World, model: LePlanner):
        self.session = onnx_session(plan_graph(model, world.model, "B", {}).SerializeToString())

    def plan(self, problem: PlanProblem) -> Plan:
        inputs = {"context": problem.context, "past_blocks": problem.past_blocks, "goal": problem.goal}
        arrays = {name: np.ascontiguousarray(value.numpy(), np.float32) for name, value in inputs.items()}
        return Plan(
            *(torch.from_numpy(array) for array in self.session.run(["blocks", "latents", "distances"], arrays))
        )


class OnnxEncoder:
    """uint8 frames (B, S, S, 3) -> latents (B, D)."""

    def __init__(self, world: World):
        self.world, self.session = world, None

    def __call__(self, frames: Tensor) -> Tensor:
        if self.session is None:  # not on loading: many a planner is given latents
            self.session = onnx_session(encoder_graph(self.world, "B", {}).SerializeToString())
        return torch.from_numpy(self.session.run(["latents"], {"frames": frames.contiguous().numpy()})[0])


def onnx_session(model: bytes | str) -> Any:
    """With as many threads as torch has now."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def random_problem(model: LePlanner, device: torch.device | str = "cpu", batch: int = 1) -> PlanProblem:
    c, generator = model.config, torch.Generator().manual_seed(0)
    shapes = ((c.context, c.latent), (c.context - 1, c.block_dim), (c.latent,))
    return PlanProblem(*(torch.randn(batch, *shape, generator=generator).to(device) for shape in shapes))
