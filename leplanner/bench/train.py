"""A planner's training step, plain and fast, measured in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.config import changed
from ..core.dynamics import imagination
from ..core.problem import PlanProblem
from ..density.mixture import Density, MixtureDensity
from ..pipeline.presets import get_preset
from ..planner.fast import FastPlanner, fast_dynamics
from ..planner.objectives import LossInputs, Sample
from ..planner.planner import planner_for
from ..planner.train import PlannerTrainConfig, planner_losses
from ..tasks import Task
from ..training.loop import TrainState
from ..training.precision import keep_freed_memory, matmul_gflops, pick_precision
from ..training.runtime import Runtime, seeded
from ..worlds import World
from . import Note, no_note
from .plan import random_planner


def bench_train(
    task: Task,
    scale: str = "compact",
    family: str = "lewm",
    batch: int | None = None,
    repeats: int = 15,
    note: Note = no_note,
    beside: Sequence[str] = (),
) -> dict[str, Any]:
    """On the CPU with torch's current threads. The plain step is eager fp32; the fast one is what
    `train_planner` compiles, without the perturbed starts of some presets. `batch`: problems in a batch,
    the preset's if none is given. `beside`: further families to train through, in turns with `family`."""
    keep_freed_memory()
    training = get_preset(task, scale, family=family).training
    precision = pick_precision(training.optim.precision, torch.device("cpu"))
    config = changed(training, batch=batch or training.optim.batch, warmup=None)  # as many repeats as requested
    kinds = [(name, kind) for name in (family, *beside) for kind in ("plain", "fast")]
    steps = {(name, kind): _stepper(task, scale, name, config, precision, kind == "fast") for name, kind in kinds}
    note("compiling the fast steps")
    began = time.monotonic()
    for step in steps.values():
        step()
        step()
    compile_seconds = time.monotonic() - began
    times: dict[tuple[str, str], list[float]] = {kind: [] for kind in steps}
    for _ in range(repeats):
        for kind, step in steps.items():
            start = time.perf_counter()
            step()
            times[kind].append(time.perf_counter() - start)
    seconds = {kind: float(np.median(values)) for kind, values in times.items()}
    size = config.optim.batch
    report = {"task": task.name, "scale": scale, "family": family, "batch": size, "threads": torch.get_num_threads()}
    report |= {"precision": precision, "matmul_gflop_per_s": matmul_gflops(torch.float32, size=2048)}
    report |= {"first_steps_s": compile_seconds, "ratio": seconds[family, "plain"] / seconds[family, "fast"]}
    report |= {"ratios": {name: seconds[name, "fast"] / seconds[family, "fast"] for name in beside}}
    rows = [
        {"family": name, "step": kind, "seconds": s, "samples_per_s": size / s} for (name, kind), s in seconds.items()
    ]
    return report | {"rows": rows}


def _stepper(
    task: Task, scale: str, family: str, config: PlannerTrainConfig, precision: str, fast: bool
) -> Callable[[], object]:
    preset, world = get_preset(task, scale, family=family), random_planner(task, scale, family).world
    spec = world.spec
    with seeded(0):
        mixture = MixtureDensity(preset.density.model, spec.latent, spec.context, spec.actions.block_dim)
        model = planner_for(world, preset.planner)
        sample = _random_sample(config.optim.batch, world, preset.planner.horizon)
    density = Density(mixture, 1.0)
    optim = changed(config.optim, precision=precision if fast else "fp32")
    state = TrainState(model, optim, Runtime("cpu"), "bench")
    forward, dynamics = (FastPlanner(model), fast_dynamics(world)) if fast else (model, world)

    def losses(generator: torch.Generator) -> dict[str, Tensor]:
        plans = forward(sample.problem, imagination(dynamics, sample.problem))
        return planner_losses(LossInputs(plans, sample, world, density, preset.block), config)

    return lambda: state.step(losses)


def _random_sample(batch: int, world: World, horizon: int) -> Sample:
    latent, context, block_dim = world.spec.latent.shape, world.spec.context, world.spec.actions.block_dim
    shapes = ((context, *latent), (context - 1, block_dim), latent)
    problem = PlanProblem(*(torch.randn(batch, *shape) for shape in shapes))
    reference, known = torch.randn(batch, horizon, *latent), torch.ones(batch, dtype=torch.bool)
    return Sample(problem, torch.randint(1, horizon + 1, (batch,)), reference, known)
