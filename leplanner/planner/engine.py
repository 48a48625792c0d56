"""Ways to compute the same plan: the plain model, which is the reference; compiled; or one ONNX graph in ONNX Runtime."""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ..precision import autocast, pick_precision
from ..world.fast_rollout import FastRollout
from ..world.onnx_graph import encoder_graph, rollout_graph
from ..world.world import World
from .fast import FastPlanner
from .model import LePlanner
from .onnx_graph import plan_graph
from .problem import LatentDynamics, Plan, PlanProblem, imagination

ENGINES = ("auto", "eager", "compiled", "onnx")
ONNX_PACKAGES = {"onnx": (1, 18), "onnxruntime": (1, 23)}  # the first that know opset 23
HALF_TOLERANCE = 1e-2  # how far bf16 may move a plan, in standardised units


@dataclass(frozen=True)
class EngineReport:
    engine: str
    precision: str
    reason: str


class Engine(Protocol):
    precision: str

    def plan(self, problem: PlanProblem) -> Plan: ...
    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor: ...


def pick_engine(asked: str, dynamics: LatentDynamics, model: LePlanner) -> tuple[str, str]:
    """The engine to use, and why."""
    if asked not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {asked!r}.")
    if asked == "eager":
        return asked, "asked for"
    if not isinstance(dynamics, World):
        if asked != "auto":
            raise ValueError(
                f'engine="{asked}" lays out a LeWM world; this planner imagines with a {type(dynamics).__name__}. '
                'Use engine="eager", or "auto".'
            )
        return "eager", f"the planner imagines with a {type(dynamics).__name__}, which only the plain model can call"
    device = next(model.parameters()).device.type
    lacking = missing_for_onnx() if device == "cpu" else None
    if asked == "onnx" and device != "cpu":
        raise ValueError(f'engine="onnx" runs on the CPU; the planner is on {device}. Use engine="auto".')
    if asked == "onnx" and lacking:
        raise ValueError(f'engine="onnx": {lacking}. Install leplanner[export], or use engine="eager".')
    if asked != "auto":
        return asked, "asked for"
    if lacking:
        return "eager", f"{lacking}; leplanner[export] plans several times faster"
    if device == "cpu":
        return "onnx", "ONNX Runtime is the fastest here on a CPU, and ready within seconds"
    if device == "cuda":
        return "compiled", "compiled regions replayed as CUDA graphs"
    return "eager", f"nothing faster is known to work on {device}"


def missing_for_onnx() -> str | None:
    for package, least in ONNX_PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # installed under another name, such as onnxruntime-gpu
            continue
        if tuple(int(part) for part in found.split(".")[:2]) < least:
            return f"{package} {found} is too old, {'.'.join(map(str, least))} is needed"
    return None


def layout(*modules: nn.Module) -> Hashable:
    """What an engine was laid out from: where the weights are, and how often they were changed in place."""
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    return tensors[0].device, sum(tensor._version for tensor in tensors)


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

    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        return imagination(self.dynamics, problem)(blocks)


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
            problem = random_problem(model, world.device, batch=16)
            exact = EagerEngine(world, model).plan(problem).blocks
            if (self.plan(problem).blocks - exact).abs().max() > HALF_TOLERANCE:
                self.precision = "fp32"

    def plan(self, problem: PlanProblem) -> Plan:
        torch.compiler.cudagraph_mark_step_begin()  # regions feed each other within a plan
        with autocast(self.precision, self.device):
            plan = self.planner(problem, imagination(self.rollout, problem))[-1]
        # a graph's memory is used again by the next plan
        return Plan(*(part.float().clone() for part in (plan.blocks, plan.latents, plan.distances)))

    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        with autocast(self.precision, self.device):
            return imagination(self.rollout, problem)(blocks).float().clone()


class OnnxEngine:
    precision = "fp32"

    def __init__(self, world: World, model: LePlanner):
        self.session = onnx_session(plan_graph(model, world.model, "B", {}).SerializeToString())
        self.rollout = onnx_session(rollout_graph(world.model, model.config.horizon, "B", {}).SerializeToString())

    def plan(self, problem: PlanProblem) -> Plan:
        inputs = {"context": problem.context, "past_blocks": problem.past_blocks, "goal": problem.goal}
        return Plan(*_run(self.session, ["blocks", "latents", "distances"], inputs))

    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        inputs = {"context": problem.context, "past_blocks": problem.past_blocks, "plan": blocks}
        return _run(self.rollout, ["latents"], inputs)[0]


class OnnxEncoder:
    """uint8 frames (B, S, S, 3) -> latents (B, D). Made when the first frame comes: many a planner is given latents."""

    def __init__(self, world: World):
        self.world = world
        self.made: tuple[Hashable, Any] | None = None

    def __call__(self, frames: Tensor) -> Tensor:
        key = layout(self.world.model)
        if self.made is None or self.made[0] != key:
            self.made = key, onnx_session(encoder_graph(self.world, "B", {}).SerializeToString())
        return torch.from_numpy(self.made[1].run(["latents"], {"frames": frames.cpu().contiguous().numpy()})[0])

    def __deepcopy__(self, memo: dict[int, Any]) -> OnnxEncoder:
        return OnnxEncoder(copy.deepcopy(self.world, memo))  # sessions cannot be copied


def _run(session: Any, outputs: list[str], inputs: dict[str, Tensor]) -> list[Tensor]:
    arrays = {name: np.ascontiguousarray(value.cpu().numpy(), np.float32) for name, value in inputs.items()}
    return [torch.from_numpy(array) for array in session.run(outputs, arrays)]


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
