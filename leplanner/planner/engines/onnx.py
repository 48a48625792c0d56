"""One ONNX graph for a whole plan, in ONNX Runtime on the CPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.dynamics import Dynamics
from ...core.problem import Plan, PlanProblem
from ...worlds.base import check_frames
from ..model import LePlanner
from .base import EngineKind, offers_onnx
from .onnx_models import encoder_model, plan_model, rollout_model

PACKAGES = {"onnx": (1, 18), "onnxruntime": (1, 23)}  # the first that know opset 23


class OnnxEngine:
    """Sessions are made when they are first needed: many a planner is given latents, and never a frame."""

    precision = "fp32"

    def __init__(self, dynamics: Dynamics, model: LePlanner):
        self.dynamics, self.model = dynamics, model
        self.sessions: dict[str, Any] = {}

    def plan(self, problem: PlanProblem) -> Plan:
        session = self._session("plan", lambda: plan_model(self.dynamics, self.model, "B", {}))
        inputs = {"context": problem.context, "past_blocks": problem.past_blocks, "goal": problem.goal}
        return Plan(*_run(session, ["blocks", "latents", "distances"], inputs))

    def imagine(self, problem: PlanProblem, blocks: Tensor) -> Tensor:
        session = self._session("rollout", lambda: rollout_model(self.dynamics, self.model, "B", {}))
        inputs = {"context": problem.context, "past_blocks": problem.past_blocks, "plan": blocks}
        return _run(session, ["latents"], inputs)[0]

    def encode(self, frames: Tensor) -> Tensor:
        world: Any = self.dynamics
        check_frames(frames, world.spec)
        session = self._session("encoder", lambda: encoder_model(world, "B", {}))
        return torch.as_tensor(session.run(["latents"], {"frames": frames.cpu().contiguous().numpy()})[0])

    def _session(self, name: str, make: Any) -> Any:
        if name not in self.sessions:
            self.sessions[name] = onnx_session(make().SerializeToString())
        return self.sessions[name]


def _run(session: Any, outputs: list[str], inputs: dict[str, Tensor]) -> list[Tensor]:
    known = {value.name for value in session.get_inputs()}  # a world that ignores past blocks has no such input
    arrays = {name: np.ascontiguousarray(value.cpu().numpy(), np.float32) for name, value in inputs.items()}
    fed = {name: array for name, array in arrays.items() if name in known}
    return [torch.as_tensor(array) for array in session.run(outputs, fed)]


def onnx_session(model: bytes | str) -> Any:
    """With as many threads as torch has now."""
    runtime: Any = importlib.import_module("onnxruntime")  # it has no types
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def missing_packages() -> str | None:
    for package, least in PACKAGES.items():
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed; leplanner[export] plans several times faster"
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # installed under another name, such as onnxruntime-gpu
            continue
        if tuple(int(part) for part in version.split(".")[:2]) < least:
            return f"{package} {version} is too old, {'.'.join(map(str, least))} is needed: install leplanner[export]"
    return None


def _missing(dynamics: Dynamics, model: LePlanner) -> str | None:
    device = next(model.parameters()).device.type
    if device != "cpu":
        return f"ONNX Runtime is used on the CPU here; the planner is on {device}"
    return missing_packages()


def _suits(dynamics: Dynamics, device: str) -> str | None:
    if device != "cpu" or not offers_onnx(dynamics):
        return None
    return "ONNX Runtime is the fastest here on a CPU, and ready within seconds"


ONNX = EngineKind("onnx", OnnxEngine, _missing, _suits)
