"""`leplanner bench`: speed as a share of what the machine can do, measured in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from ..data.episodes import Episodes
from ..data.windows import ActionScale, PlanWindows, WorldWindows
from ..pipeline.presets import BLOCK, Scale, get_scale
from ..training.precision import autocast, keep_freed_memory, matmul_gflops, pick_precision
from ..worlds.lewm.model import LeWM
from ..worlds.train import TrainingState, world_loss
from . import bench_plan, bench_train
from .options import Json, MaybeInt, ScaleInt, TaskName
from .progress import console


def world(
    task: TaskName = "tworoom",
    scale: str = "compact",
    batch: ScaleInt = None,
    repeats: int = 5,
    threads: MaybeInt = None,
    json_output: Json = False,
) -> None:
    """Frames/s of encoding and of a world training step on the CPU, beside one large matrix multiplication.

    Example: leplanner bench world pusht

    Args:
        task: tworoom, pusht, reacher or cube; it sets the action size and the encoder.
        scale: paper, compact or tiny.
        batch: windows in a batch (default: the scale's).
        repeats: timed repetitions; the median counts.
        threads: CPU threads (default: torch's).
        json_output: print JSON instead of a table.
    """
    if threads:
        torch.set_num_threads(threads)
    keep_freed_memory()
    preset = get_scale(scale, task)
    config = replace(preset.train, batch=batch or preset.train.batch)
    device = torch.device("cpu")
    precision = pick_precision("auto", device)
    limit = matmul_gflops(torch.bfloat16 if precision == "bf16" else torch.float32, size=2048)
    state = TrainingState(LeWM(preset.model), probe_dim=6 if config.grounding else 0)
    state.to(memory_format=torch.channels_last)
    size, frames_a_window = preset.model.encoder.frame_size, preset.model.context + 1
    frames = torch.randn(config.batch * frames_a_window, 3, size, size).contiguous(memory_format=torch.channels_last)
    blocks = torch.randn(config.batch, preset.model.context, preset.model.block_dim)
    targets = torch.randn(config.batch, frames_a_window, 6)
    optimizer = torch.optim.AdamW(state.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(0)

    def encode() -> None:
        state.eval()
        with torch.no_grad(), autocast(precision, device):
            state.model.encode(frames)

    def step() -> None:
        state.train()
        with autocast(precision, device):
            windows = frames.unflatten(0, (config.batch, frames_a_window))
            loss = world_loss(state, windows, blocks, targets, config, generator)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    rows = []
    for name, run in (("encode", encode), ("training step", step)):
        seconds, gflop = _median_seconds(run, repeats), _gflop(run)
        rows.append(
            {
                "work": name,
                "frames_per_s": len(frames) / seconds,
                "gflop_per_s": gflop / seconds,
                "share_of_matmul": gflop / seconds / limit,
            }
        )
    loader = _loader_seconds(preset, config.batch, repeats)
    planning = _planning_draw_seconds(repeats)
    report = {"task": task, "scale": scale, "batch": config.batch, "threads": torch.get_num_threads()}
    report |= {"precision": precision, "matmul_gflop_per_s": limit, "rows": rows}
    step_seconds = len(frames) / rows[1]["frames_per_s"]
    report |= {"loader_share_of_step": loader / step_seconds, "planning_batch_ms": 1e3 * planning}
    if json_output:
        print(json.dumps(report))
        return
    table = Table(
        title=f"{task} {scale}, batch {config.batch}, {report['threads']} threads, {precision}; matmul {limit:.0f} GFLOP/s"
    )
    for title in ("work", "frames/s", "GFLOP/s", "share of matmul"):
        table.add_column(title, justify="left" if title == "work" else "right")
    for row in rows:
        table.add_row(
            row["work"], f"{row['frames_per_s']:.0f}", f"{row['gflop_per_s']:.1f}", f"{row['share_of_matmul']:.0%}"
        )
    console.print(table)
    console.print(
        f"drawing a batch of windows: {report['loader_share_of_step']:.2%} of a step (and in a thread of its own)"
    )
    console.print(f"drawing 128 planning samples: {report['planning_batch_ms']:.2f} ms")


def _synthetic_episodes(preset: Scale, episodes: int) -> Episodes:
    """In memory, as compact datasets are; what the frames show does not matter for time."""
    rng = np.random.default_rng(0)
    rows, dim, size = (
        preset.collect.steps // preset.collect.every + 1,
        preset.model.block_dim // BLOCK,
        preset.collect.size,
    )
    starts = np.arange(episodes) * rows
    return Episodes(
        frames=rng.integers(0, 256, (episodes * rows, size, size, 3), dtype=np.uint8),
        actions=rng.normal(size=(episodes * rows, preset.collect.every, dim)).astype(np.float32),
        states=None,
        starts=starts,
        lengths=np.full(episodes, rows),
        ids=np.arange(episodes),
        steps_per_row=preset.collect.every,
        digest="synthetic",
    )


def _loader_seconds(preset: Scale, batch: int, repeats: int) -> float:
    episodes = _synthetic_episodes(preset, 100)
    scale = ActionScale(np.zeros(episodes.action_dim), np.ones(episodes.action_dim))
    windows = WorldWindows(episodes, np.arange(100), scale, BLOCK, preset.model.context)
    rng = np.random.default_rng(0)
    return _median_seconds(lambda: windows.draw(rng, batch), repeats)


def _planning_draw_seconds(repeats: int) -> float:
    """128 samples from 3,000 episodes with latents of the paper's size."""
    tiny = get_scale("tiny", "pusht")
    episodes = _synthetic_episodes(replace(tiny, collect=replace(tiny.collect, size=1)), 3000)
    latents = np.zeros((episodes.rows, 192), np.float16)
    windows = PlanWindows(latents, episodes, np.arange(3000), ActionScale(np.zeros(2), np.ones(2)), BLOCK, 3)
    rng = np.random.default_rng(0)
    return _median_seconds(lambda: windows.draw(rng, 128, 5), max(repeats, 20))


def _median_seconds(run: Callable[[], object], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _gflop(run: Callable[[], None]) -> float:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 1e9


VERBS = {"plan": bench_plan.plan, "world": world, "train": bench_train.train}
