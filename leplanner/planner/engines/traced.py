"""The general way to ONNX: torch exports draft, rollout and revision, each in seconds, and
they are joined into one plan.

A world needs nothing but a rollout and a distance that torch can trace. Equal weights are stored once. Tracing follows
one example and drops whatever else the code could do, so every part is compared with torch on other inputs.
"""

# The paper's variables are capital letters.
# pyright: reportConstantRedefinition=false
from __future__ import annotations

import builtins
import contextlib
import copy
import hashlib
import io
import warnings
from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...core.dynamics import Dynamics
from ...core.problem import PlanProblem
from ..model import LePlanner
from .base import random_problem
from .reuse_nodes import PlanValues, select_better

OPSET = 18
TOLERANCE = 1e-3  # of the largest value: how far a traced part may be from torch, which rounds differently
_LEN = builtins.len


class _Draft(nn.Module):
    def __init__(self, model: LePlanner):
        super().__init__()
        self.model = model

    def forward(self, context: Tensor, goal: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        C = self.model.conditioning(context, goal)
        Y = self.model.initial_plan(C)
        return C, Y, self.model.decode(Y)


class _Revise(nn.Module):
    def __init__(self, model: LePlanner):
        super().__init__()
        self.model = model

    def forward(self, Y: Tensor, z: Tensor, d: Tensor, goal: Tensor, C: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        R = self.model.interpret(Y, z, d, goal, C)
        Y = Y + step * self.model.plan_update(Y, R, C)
        return Y, self.model.decode(Y)


class _Imagine(nn.Module):
    def __init__(self, dynamics: Dynamics):
        super().__init__()
        self.dynamics = dynamics
        self.weights = getattr(dynamics, "model", None)  # so that its tensors are named in the graph

    def forward(self, context: Tensor, past_blocks: Tensor, plan: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        z = self.dynamics.rollout(context, past_blocks, plan)
        return z, self.dynamics.distance(z, goal)


class _Rollout(_Imagine):
    def forward(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:  # type: ignore[override]
        return self.dynamics.rollout(context, past_blocks, plan)


class _Encode(nn.Module):
    def __init__(self, world: Any):
        super().__init__()
        self.world, self.weights = world, world.model

    def forward(self, frames: Tensor) -> Tensor:
        return self.world.encode(frames)


def traced_plan(
    dynamics: Dynamics, model: LePlanner, batch: int | str, metadata: dict[str, str], reuse: bool = False
) -> Any:
    from onnx import TensorProto, helper

    problem = _example(model, batch)
    context, past, goal = problem.context, problem.past_blocks, problem.goal
    with torch.no_grad():
        C, Y, b = _Draft(model)(context, goal)
        z, d = _Imagine(dynamics)(context, past, b, goal)
    step = torch.zeros(1)
    free = batch if isinstance(batch, str) else None
    draft = _traced(_Draft(model), {"context": context, "goal": goal}, ["C", "Y", "b"], free)
    imagine = _traced(
        _Imagine(dynamics), {"context": context, "past_blocks": past, "plan": b, "goal": goal}, ["z", "d"], free
    )
    given = {"Y": Y, "z": z, "d": d, "goal": goal, "C": C, "step": step}
    revise = (
        _traced(_Revise(model), given, ["Y_next", "b"], free, fixed=("step",)) if model.config.refinements else None
    )
    joined = _Joined()
    values = joined.place(draft, "draft", {"context": "context", "goal": "goal"})

    def imagined(blocks: str) -> dict[str, str]:
        given = {"context": "context", "past_blocks": "past_blocks", "plan": blocks, "goal": "goal"}
        return joined.place(imagine, "world", given)

    for k in range(model.config.refinements + 1):
        values |= imagined(values["b"])
        if k < model.config.refinements:
            assert revise is not None
            size = joined.store(f"step_{k}", model.eta[k].sigmoid().reshape(1))
            given = {name: values[name] for name in ("Y", "z", "d", "C")} | {"goal": "goal", "step": size}
            values |= joined.place(revise, "revise", given)
            values["Y"] = values["Y_next"]

    def info(name: str, tensor: Tensor) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, *tensor.shape[1:]])

    inputs = [info("context", context), info("past_blocks", past), info("goal", goal)]
    plan = PlanValues(values["b"], values["z"], values["d"])
    if reuse:
        inputs += [info("last_plan", b), helper.make_tensor_value_info("executed", TensorProto.INT64, [1])]
        shape = (model.config.horizon, model.actions.block_dim, len(model.latent.shape))

        def latents_and_distances(blocks: str) -> tuple[str, str]:
            after = imagined(blocks)
            return after["z"], after["d"]

        plan = select_better(joined, plan, "last_plan", "executed", shape, latents_and_distances)
    for name, value in zip(plan._fields, plan, strict=True):
        joined.nodes.append(helper.make_node("Identity", [value], [name]))
    outputs = [info(name, tensor) for name, tensor in zip(plan._fields, (b, z, d), strict=True)]
    return joined.model(inputs, outputs, metadata)


def traced_rollout(dynamics: Dynamics, model: LePlanner, batch: int | str, metadata: dict[str, str]) -> Any:
    problem = _example(model, batch)
    plan = torch.zeros(len(problem), model.config.horizon, model.actions.block_dim)
    inputs = {"context": problem.context, "past_blocks": problem.past_blocks, "plan": plan}
    return _traced(
        _Rollout(dynamics), inputs, ["latents"], batch if isinstance(batch, str) else None, metadata=metadata
    )


def traced_encoder(world: Any, batch: int | str, metadata: dict[str, str]) -> Any:
    size = world.spec.frame_size
    frames = torch.zeros(2 if isinstance(batch, str) else batch, size, size, 3, dtype=torch.uint8)
    free = batch if isinstance(batch, str) else None
    return _traced(_Encode(world), {"frames": frames}, ["latents"], free, metadata=metadata)


def _example(model: LePlanner, batch: int | str) -> PlanProblem:
    return random_problem(model, batch=2 if isinstance(batch, str) else batch)


def _traced(
    module: nn.Module,
    inputs: dict[str, Tensor],
    outputs: list[str],
    free: str | None,  # the name of a batch of any size
    fixed: tuple[str, ...] = (),  # inputs without a batch
    metadata: dict[str, str] | None = None,
) -> Any:
    import onnx

    file = io.BytesIO()
    axes = {name: {0: free} for name in (*inputs, *outputs) if name not in fixed} if free else None
    with warnings.catch_warnings(), torch.no_grad(), _traced_lengths():
        warnings.simplefilter("ignore")  # checks of shapes become constants, which is what they are here
        try:
            torch.onnx.export(  # pyright: ignore[reportUnknownMemberType]
                module.eval(),
                tuple(inputs.values()),
                file,  # type: ignore[arg-type]  # a file object, which its annotation forgets
                input_names=list(inputs),
                output_names=outputs,
                dynamic_axes=axes,
                opset_version=OPSET,
                dynamo=False,
            )
        except Exception as error:
            raise ValueError(
                f"torch could not export this planner to ONNX ({type(error).__name__}: "
                f"{_first_line(error)}). Its world's rollout, "
                'distance or encoder uses an operation that cannot be traced. Use engine="eager" or "compiled".'
            ) from error
    _check(module, file.getvalue(), inputs, outputs, free, fixed)
    model = onnx.load_from_string(file.getvalue())
    onnx.helper.set_model_props(model, metadata or {})
    return model


@torch.no_grad()
def _check(
    module: nn.Module,
    graph: bytes,
    inputs: dict[str, Tensor],
    outputs: list[str],
    free: str | None,
    fixed: tuple[str, ...],
) -> None:
    """The graph equals the module on inputs that it was not traced with; for a free batch, of another size."""
    from .onnx import onnx_session

    generator = torch.Generator().manual_seed(1)

    def other(name: str, example: Tensor) -> Tensor:
        shape = (3, *example.shape[1:]) if free and name not in fixed else example.shape
        if example.is_floating_point():
            return torch.randn(shape, generator=generator)
        return torch.randint(0, 256, shape, generator=generator, dtype=example.dtype)

    others = {name: other(name, example) for name, example in inputs.items()}
    result = module(*others.values())
    expected: Sequence[Tensor] = [result] if isinstance(result, Tensor) else result
    try:
        session = onnx_session(graph)
        known = {value.name for value in session.get_inputs()}
        actual = session.run(outputs, {name: value.numpy() for name, value in others.items() if name in known})
    except Exception as error:  # ONNX Runtime's errors have no common type
        raise ValueError(_untraceable(f"the graph does not run: {_first_line(error)}")) from error
    pairs = zip(expected, map(torch.as_tensor, actual), strict=True)
    for name, (ours, theirs) in zip(outputs, pairs, strict=True):
        if ours.shape != theirs.shape or (ours - theirs).abs().max() > TOLERANCE * ours.abs().max().clamp(min=1.0):
            raise ValueError(_untraceable(f"{name} of the graph differs from torch's"))


def _untraceable(reason: str) -> str:
    return (
        f"torch's ONNX export of this planner is wrong ({reason}). Its world's rollout, "
        "distance or encoder depends on its "
        'inputs in a way that cannot be traced, such as an `if` on their values. Use engine="eager" or "compiled".'
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "no message")


@contextlib.contextmanager
def _traced_lengths() -> Generator[None]:
    """Inside, `len(tensor)` is traced as the tensor's first dimension. Python's own returns a number, so the example's
    batch size would become a constant of the graph."""

    def length(value: Any) -> Any:
        tracing = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        return value.shape[0] if isinstance(value, Tensor) and tracing else _LEN(value)

    builtins.len = length
    try:
        yield
    finally:
        builtins.len = _LEN


def _rename_inputs(node: Any, names: dict[str, str]) -> None:
    """Also inside branches and loops, which read the values around them by name."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                _rename_inputs(inner, names)


class _Joined:
    """Copies of exported graphs, one after another, that share their weights."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.stored_as: dict[str, str] = {}  # a weight's place by its name, and by its content: parts share weights
        self.placed = 0

    def store(self, name: str, value: Tensor) -> str:
        from onnx import numpy_helper

        self.initializers[name] = numpy_helper.from_array(value.detach().cpu().numpy(), name)
        return name

    def constant(self, value: list[int]) -> str:
        return self.store(f"whole_{'_'.join(map(str, value))}", torch.tensor(value))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name, self.placed = f"joined{self.placed}", self.placed + 1
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def place(self, part: Any, title: str, inputs: dict[str, str]) -> dict[str, str]:
        """Feeds a graph with values by the names of its inputs; the names of its outputs here."""
        graph, names = part.graph, dict(inputs)
        for weight in graph.initializer:
            own = f"{title}.{weight.name}"
            if own not in self.stored_as:
                self.stored_as[own] = self._store(copy.deepcopy(weight), own)
            names[weight.name] = self.stored_as[own]
        prefix, self.placed = f"{title}{self.placed}.", self.placed + 1
        for node in graph.node:
            copied = copy.deepcopy(node)
            names |= {output: prefix + output for output in node.output if output}
            _rename_inputs(copied, names)
            copied.output[:] = [names.get(name, name) for name in node.output]
            copied.name = prefix + node.name
            self.nodes.append(copied)
        return {output.name: names[output.name] for output in graph.output}

    def _store(self, weight: Any, name: str) -> str:
        """The name under which a weight, or an equal one, is stored."""
        weight.name = ""
        content = hashlib.sha256(weight.SerializeToString()).hexdigest()
        if content not in self.stored_as:
            weight.name = self.stored_as[content] = name
            self.initializers[name] = weight
        return self.stored_as[content]

    def model(self, inputs: list[Any], outputs: list[Any], metadata: dict[str, str]) -> Any:
        from onnx import helper

        graph = helper.make_graph(self.nodes, "leplanner", inputs, outputs, list(self.initializers.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        model.producer_name = "leplanner"
        helper.set_model_props(model, metadata)
        return model
