"""ONNX graphs written node by node: seconds, where tracing a model takes minutes. Values are names."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

OPSET, IR_VERSION = 23, 11  # the first with an attention of its own


class Graph:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.inputs: list[Any] = []

    def input(self, name: str, shape: list[int | str], kind: type = np.float32) -> str:
        from onnx import helper

        element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        self.inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, outputs: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        from onnx import helper

        names = tuple(f"v{len(self.nodes)}_{i}" for i in range(outputs))
        self.nodes.append(helper.make_node(kind, list(inputs), list(names), **attributes))
        return names

    def constant(self, value: Tensor | np.ndarray | list[int], name: str | None = None) -> str:
        """An initializer; one with a name is stored once, however often it is asked for."""
        from onnx import numpy_helper

        tensor = torch.as_tensor(value)  # integers become int64, which is what ONNX wants of shapes
        array = tensor.detach().cpu().numpy()
        name = (
            name
            or f"c_{array.dtype}_{'x'.join(map(str, array.shape))}_{hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
        )
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def linear(self, name: str, x: str, weight: Tensor, bias: Tensor, gelu: bool = False) -> str:
        """(..., K) -> (..., N), through weights (N, K)."""
        if f"{name}.weight" not in self.initializers:
            self.constant(weight.t(), f"{name}.weight")
            self.constant(bias, f"{name}.bias")
        y = self.op("Add", self.op("MatMul", x, f"{name}.weight"), f"{name}.bias")
        return self.op("Gelu", y) if gelu else y

    def norm(self, x: str, size: int, eps: float, weight: Tensor | None = None, bias: Tensor | None = None) -> str:
        scale = self.constant(torch.ones(size) if weight is None else weight)
        parts = [x, scale] if bias is None else [x, scale, self.constant(bias)]
        return self.op("LayerNormalization", *parts, epsilon=eps)

    def silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def modulated(self, x: str, scale: str, shift: str) -> str:
        return self.op("Add", self.op("Mul", x, scale), shift)

    def slice(self, x: str, start: int, stop: int, axis: int = 1) -> str:
        return self.op("Slice", x, self.constant([start]), self.constant([stop]), self.constant([axis]))

    def split(self, x: str, parts: int) -> tuple[str, ...]:
        return self.ops("Split", parts, x, axis=-1, num_outputs=parts)

    def concat(self, values: list[str], axis: int) -> str:
        return self.op("Concat", *values, axis=axis) if len(values) > 1 else values[0]

    def attention(self, q: str, k: str, v: str, heads: int, mask: Tensor | None = None) -> str:
        """(B, t, h * E), (B, S, h * E) -> (B, t, h * E)"""
        inputs = [q, k, v] if mask is None else [q, k, v, self.constant(mask)]
        return self.op("Attention", *inputs, q_num_heads=heads, kv_num_heads=heads)

    def for_batch(self, like: str, x: str, shape: list[int]) -> str:
        """x (*shape) -> (B, *shape), with the batch of `like`."""
        batch = self.op("Shape", like, start=0, end=1)
        return self.op("Expand", x, self.concat([batch, self.constant(shape)], 0))

    def model(self, outputs: dict[str, tuple[str, list[int | str]]], metadata: dict[str, str]) -> Any:
        """`outputs`: a name for each value, and its shape."""
        from onnx import TensorProto, helper

        made: list[Any] = []
        for name, (value, shape) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
            made.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(self.nodes, "leplanner", self.inputs, made, list(self.initializers.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        model.producer_name = "leplanner"
        helper.set_model_props(model, metadata)
        return model


def causal(t: int, s: int) -> Tensor | None:
    """What the last t of s tokens may not see, as numbers to add; None where they may see all."""
    if t == 1:
        return None
    return torch.full((t, s), float("-inf")).triu(s - t + 1)
