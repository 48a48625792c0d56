"""A planner as two ONNX files that need neither torch nor leplanner: an encoder, and a whole plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..artifacts import atomic_path
from .engines.onnx_models import encoder_model, plan_model
from .planner import Planner


def export_onnx(planner: Planner, out: Path, batch: int | None = None, reuse: bool = True) -> list[Path]:
    """Writes encoder.onnx and plan.onnx for one batch size, or (None) for any. With `reuse` they make the controller
    that `lp.load` gives; without, the paper's, in which the new plan always wins."""
    if batch is not None and batch < 1:
        raise ValueError(f"A fixed batch must be at least 1; got {batch}. Leave it out for any batch.")
    rows: int | str = "B" if batch is None else batch
    facts = metadata(planner) | {"reuse": json.dumps(reuse)}
    graphs = {
        "encoder.onnx": encoder_model(planner.world, rows, facts),
        "plan.onnx": plan_model(planner.dynamics, planner.model, rows, facts, reuse),
    }
    return [_write(model, out / name) for name, model in graphs.items()]


def metadata(planner: Planner) -> dict[str, str]:
    """What a control loop must know, as JSON by name: pixels are normalized inside, actions are not."""
    spec, actions = planner.world.spec, planner.world.spec.actions
    facts = {
        "task": spec.task,
        "digest": planner.digest,
        "frame_size": spec.frame_size,
        "context": spec.context,
        "latent": spec.latent.shape,
        "horizon": planner.model.config.horizon,
        "block": actions.block,
        "action_mean": actions.mean,
        "action_std": actions.std,
        "action_low": actions.low,
        "action_high": actions.high,
    }
    return {name: json.dumps(value) for name, value in facts.items()}


def _write(model: Any, path: Path) -> Path:
    import onnx

    onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType]
    with atomic_path(path) as temporary:
        onnx.save(model, str(temporary))  # pyright: ignore[reportUnknownMemberType]
    return path
