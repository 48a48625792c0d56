"""Speed of encoding and of a world's training step, as a share of what the machine can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ..core.actions import ActionSpec
from ..core.config import changed
from ..core.latent import LatentSpec
from ..data.episodes import Episodes
from ..data.windows import PlanWindows, WorldWindows
from ..pipeline.presets import Preset, get_preset
from ..tasks import Task
from ..training.loop import TrainState
from ..training.precision import autocast, keep_freed_memory, matmul_gflops
from ..training.runtime import Runtime, seeded
from ..worlds import FAMILIES
from ..worlds.train import TrainedParts, world_loss
from . import median_seconds

MOST_BYTES = 2**28  # of synthetic frames
SAMPLES = 128  # planning samples drawn at once


def unit_actions(task: Task, block: int) -> ActionSpec:
    """The task's action box, standardized by mean 0 and standard deviation 1."""
    return ActionSpec((0.0,) * task.action_dim, (1.0,) * task.action_dim, task.low, task.high, block)


def bench_world(
    task: Task, scale: str = "compact", family: str = "lewm", batch: int | None = None, repeats: int = 5
) -> dict[str, Any]:
    """On the CPU with torch's current threads. `batch`: windows in a batch, the preset's if none is given."""
    keep_freed_memory()
    preset = get_preset(task, scale, family=family)
    config = changed(preset.world, batch=batch or preset.world.optim.batch, warmup=None)  # as many repeats as requested
    network, size = preset.network, config.optim.batch
    kind, runtime = FAMILIES.get(family), Runtime("cpu")
    frames_per_window = kind.window(network)
    latent_size = LatentSpec(tuple(network.latent_shape)).size
    with seeded(0):
        parts = TrainedParts(kind.build(network), latent_size, len(task.probe_names) if config.grounding else 0)
        frames = torch.randn(size * frames_per_window, 3, network.frame_size, network.frame_size)
        blocks = torch.randn(size, frames_per_window - 1, network.block_dim)
        targets = torch.randn(size, frames_per_window, len(task.probe_names))
    frames = frames.contiguous(memory_format=torch.channels_last)
    windows = frames.unflatten(0, (size, frames_per_window))
    parts.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    state = TrainState(parts, config.optim, runtime, "bench")
    limit = matmul_gflops(torch.bfloat16 if state.precision == "bf16" else torch.float32, size=2048)

    def losses(generator: torch.Generator) -> dict[str, Tensor]:
        return world_loss(parts, windows, blocks, targets, config, preset.objective, generator, runtime)

    def encode() -> None:
        parts.eval()
        with torch.no_grad(), autocast(state.precision, state.device):
            parts.model.encode(frames)

    rows = []
    for work, run in (("encode", encode), ("training step", lambda: state.step(losses))):
        seconds, gflop = median_seconds(run, repeats), _gflop(run)
        rows.append(
            {
                "work": work,
                "frames_per_s": len(frames) / seconds,
                "gflop_per_s": gflop / seconds,
                "share_of_matmul": gflop / seconds / limit,
            }
        )
    step_seconds = len(frames) / rows[1]["frames_per_s"]
    loader = _loader_seconds(task, preset, frames_per_window, size, repeats)
    planning = _planning_draw_seconds(task, preset, repeats)
    report = {"task": task.name, "scale": scale, "family": family, "batch": size, "threads": torch.get_num_threads()}
    report |= {"precision": state.precision, "matmul_gflop_per_s": limit, "rows": rows}
    report |= {"loader_share_of_step": loader / step_seconds}
    return report | {"planning_samples": SAMPLES, "planning_batch_ms": 1e3 * planning}


def _synthetic_episodes(task: Task, preset: Preset, episodes: int) -> Episodes:
    """In memory, as compact datasets are; what the frames show does not matter for time."""
    rng = np.random.default_rng(0)
    collect = preset.collect
    rows = collect.steps // collect.every + 1
    episodes = max(2, min(episodes, MOST_BYTES // (rows * 3 * collect.size**2)))
    return Episodes(
        frames=rng.integers(0, 256, (episodes * rows, collect.size, collect.size, 3), dtype=np.uint8),
        actions=rng.normal(size=(episodes * rows, collect.every, task.action_dim)).astype(np.float32),
        states=None,
        starts=np.arange(episodes) * rows,
        lengths=np.full(episodes, rows),
        ids=np.arange(episodes),
        steps_per_row=collect.every,
        digest="synthetic",
    )


def _loader_seconds(task: Task, preset: Preset, frames: int, batch: int, repeats: int) -> float:
    episodes = _synthetic_episodes(task, preset, 100)
    windows = WorldWindows(episodes, np.arange(len(episodes.starts)), unit_actions(task, preset.block), frames)
    rng = np.random.default_rng(0)
    return median_seconds(lambda: windows.draw(rng, batch), repeats)


def _planning_draw_seconds(task: Task, preset: Preset, repeats: int) -> float:
    """Samples from up to 3,000 short episodes, with latents of this world's shape."""
    collect = replace(preset.collect, steps=10 * preset.block, every=preset.block, size=1)
    episodes = _synthetic_episodes(task, replace(preset, collect=collect), 3000)
    latents = np.zeros((episodes.rows, *preset.network.latent_shape), np.float16)
    actions, context = unit_actions(task, preset.block), preset.network.context
    windows = PlanWindows(latents, episodes, np.arange(len(episodes.starts)), actions, context)
    rng = np.random.default_rng(0)
    return median_seconds(lambda: windows.draw(rng, SAMPLES, preset.planner.horizon), max(repeats, 20))


def _gflop(run: Callable[[], object]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 1e9
