"""`leplanner bench train`: the plain training step beside the fast one, in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from ..core.actions import ActionBox
from ..core.problem import PlanProblem, imagination
from ..density.mixture import Density, DensityConfig, MixtureDensity
from ..pipeline.presets import BLOCK, get_scale
from ..planner.fast import FastPlanner
from ..planner.model import LePlanner
from ..planner.train import planner_losses
from ..planner.validate import Sample
from ..training.loop import TrainState
from ..training.precision import keep_freed_memory, matmul_gflops, pick_precision
from ..worlds.lewm.fast_rollout import FastRollout
from ..worlds.lewm.model import LeWM
from ..worlds.world import World, WorldSpec
from .options import Json, MaybeInt, ScaleInt, TaskName
from .progress import console, errors


def train(
    task: TaskName = "tworoom",
    scale: str = "compact",
    batch: ScaleInt = None,
    repeats: int = 15,
    threads: MaybeInt = None,
    json_output: Json = False,
) -> None:
    """Samples/s of a planner's training step on the CPU: plain eager fp32, and as `leplanner train` runs it, but for
    the deviations that some presets begin with.

    The two take turns, and medians count. Random weights: time does not depend on them. Compiling the fast step takes
    minutes the first time and seconds later; it is not counted.

    Example: leplanner bench train

    Args:
        task: tworoom, pusht, reacher or cube; it sets the action size and the world.
        scale: paper, compact or tiny.
        batch: problems in a batch (default: the scale's).
        repeats: timed steps of each.
        threads: CPU threads (default: torch's).
        json_output: print JSON instead of a table.
    """
    if threads:
        torch.set_num_threads(threads)
    keep_freed_memory()
    device = torch.device("cpu")
    preset = get_scale(scale, task)
    precision = pick_precision(preset.planner_train.precision, device)
    config = replace(preset.planner_train, batch=batch or preset.planner_train.batch)
    actions = preset.model.block_dim // BLOCK
    torch.manual_seed(0)
    spec = WorldSpec(task, preset.model, BLOCK, (0.0,) * actions, (1.0,) * actions)
    world = World(LeWM(preset.model), spec)
    shape = preset.planner_for(preset.model)
    sizes = {"latent": shape.latent, "block_dim": shape.block_dim, "context": shape.context}
    density = Density(MixtureDensity(DensityConfig(**sizes)), 1.0)
    sample = _random_sample(config.batch, shape.latent, shape.block_dim, shape.context)

    def stepper(fast: bool) -> Callable[[], object]:
        model = LePlanner(shape, ActionBox.of(spec))
        settings = replace(config, precision=precision if fast else "fp32")
        state_ = TrainState(model, settings, device, "bench", config.optimizer)
        forward = FastPlanner(model) if fast else model
        dynamics = FastRollout(world.model, compiled=True) if fast else world

        def losses(generator: torch.Generator) -> dict[str, Tensor]:
            plans = forward(sample.problem, imagination(dynamics, sample.problem))
            return planner_losses(plans, sample, density, config, model.box.block)

        return lambda: state_.step(losses)

    steps = {"plain": stepper(fast=False), "fast": stepper(fast=True)}
    if not json_output:
        errors.print("compiling the fast step ...", highlight=False)
    began = time.monotonic()
    for step in steps.values():
        step()
        step()
    compile_seconds = time.monotonic() - began
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    seconds = {name: float(np.median(values)) for name, values in times.items()}
    report = {"task": task, "scale": scale, "batch": config.batch, "threads": torch.get_num_threads()}
    report |= {"precision": precision, "matmul_gflop_per_s": matmul_gflops(torch.float32, size=2048)}
    report |= {"first_steps_s": compile_seconds, "ratio": seconds["plain"] / seconds["fast"]}
    report |= {"rows": [{"step": name, "seconds": s, "samples_per_s": config.batch / s} for name, s in seconds.items()]}
    if json_output:
        print(json.dumps(report))
        return
    table = Table(title=f"{task} {scale}, batch {config.batch}, {report['threads']} threads")
    for title in ("training step", "precision", "ms", "samples/s", "ratio"):
        table.add_column(title, justify="left" if title in ("training step", "precision") else "right")
    for row in report["rows"]:
        used = precision if row["step"] == "fast" else "fp32"
        ratio = f"{seconds['plain'] / row['seconds']:.2f}"
        table.add_row(row["step"], used, f"{1e3 * row['seconds']:.0f}", f"{row['samples_per_s']:.0f}", ratio)
    console.print(table)
    console.print(f"first steps, with compilation: {compile_seconds:.0f} s")


def _random_sample(batch: int, latent: int, block_dim: int, context: int) -> Sample:
    problem = PlanProblem(
        torch.randn(batch, context, latent), torch.randn(batch, context - 1, block_dim), torch.randn(batch, latent)
    )
    way, known = torch.randn(batch, 5, latent), torch.ones(batch, dtype=torch.bool)
    return Sample(problem, torch.randint(1, 6, (batch,)), way, known)
