"""A planner as two ONNX files that need neither torch nor leplanner: an encoder, and a whole plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..artifacts import atomic_path
from ..world.onnx_graph import encoder_graph
from .onnx_graph import plan_graph
from .planner import TaskPlanner


def export_onnx(planner: TaskPlanner, out: Path, batch: int | None = None) -> list[Path]:
    """Writes encoder.onnx and plan.onnx for one batch size, or (None) for any."""
    if batch is not None and batch < 1:
        raise ValueError(f"A fixed batch must be at least 1; got {batch}. Leave it out for any batch.")
    rows: int | str = "B" if batch is None else batch
    facts = metadata(planner)
    graphs = {
        "encoder.onnx": encoder_graph(planner.world, rows, facts),
        "plan.onnx": plan_graph(planner.model, planner.world.model, rows, facts),
    }
    return [_write(model, out / name) for name, model in graphs.items()]


def metadata(planner: TaskPlanner) -> dict[str, str]:
    """What a control loop must know, as JSON by name: pixels are normalised inside, actions are not."""
    spec, shape = planner.world.spec, planner.model.config
    facts = {
        "task": spec.task,
        "digest": planner.digest,
        "frame_size": spec.frame_size,
        "context": shape.context,
        "latent": shape.latent,
        "horizon": shape.horizon,
        "block": spec.block,
        "action_mean": spec.action_mean,
        "action_std": spec.action_std,
        "action_low": spec.action_low,
        "action_high": spec.action_high,
    }
    return {name: json.dumps(value) for name, value in facts.items()}


def _write(model: Any, path: Path) -> Path:
    import onnx

    onnx.checker.check_model(model)
    with atomic_path(path) as temporary:
        onnx.save(model, str(temporary))
    return path
