"""A planner's graphs: laid out by hand where the world knows how, else exported by torch and joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...core.dynamics import Dynamics, capability
from ...core.onnx_builder import Graph
from ..model import LePlanner
from .plan_graph import plan_graph, rollout_graph
from .traced import traced_encoder, traced_plan, traced_rollout

Batch = int | str  # a fixed size, or a name for any


def plan_model(
    dynamics: Dynamics, model: LePlanner, batch: Batch, metadata: dict[str, str], reuse: bool = False
) -> Any:
    """context (B, N, *Z), past_blocks (B, N-1, A), goal (B, *Z) -> the final plan's blocks (B, H, A), latents
    (B, H, *Z) and distances (B, H). `reuse`: also last_plan (B, H, A), the plan that was followed, and executed (1,),
    how many of its blocks were; what remains of it is returned where it is imagined to end nearer the goal."""
    lay_out = capability(dynamics, "onnx_rollout")
    if lay_out is None:
        return traced_plan(dynamics, model, batch, metadata, reuse)
    return plan_graph(model, lay_out, batch, metadata, reuse)


def rollout_model(dynamics: Dynamics, model: LePlanner, batch: Batch, metadata: dict[str, str]) -> Any:
    """context (B, N, *Z), past_blocks (B, N-1, A), plan (B, H, A) -> latents (B, H, *Z)."""
    lay_out = capability(dynamics, "onnx_rollout")
    if lay_out is None:
        return traced_rollout(dynamics, model, batch, metadata)
    return rollout_graph(model, lay_out, batch, metadata)


def encoder_model(world: Any, batch: Batch, metadata: dict[str, str]) -> Any:
    """uint8 frames (B, S, S, 3) -> latents (B, *Z)."""
    lay_out = capability(world, "onnx_encoder")
    if lay_out is None:
        return traced_encoder(world, batch, metadata)
    g, spec = Graph(), world.spec
    size = spec.frame_size
    frames = g.op("Cast", g.input("frames", [batch, size, size, 3], np.uint8), to=1)
    mean, std = (255.0 * torch.tensor(values) for values in (spec.pixel_mean, spec.pixel_std))
    pixels = g.op("Div", g.op("Sub", frames, g.constant(mean)), g.constant(std))
    return g.model({"latents": (lay_out(g, pixels), [batch, *spec.latent.shape])}, metadata)
