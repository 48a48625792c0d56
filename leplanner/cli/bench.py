"""`leplanner bench world`: speed as a share of what the machine can do, measured in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from ..presets.scales import get_scale
from ..world.lewm import LeWM
from ..world.precision import autocast, keep_freed_memory, matmul_gflops, pick_precision
from ..world.train import TrainingState, world_loss
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
    report = {"task": task, "scale": scale, "batch": config.batch, "threads": torch.get_num_threads()}
    report |= {"precision": precision, "matmul_gflop_per_s": limit, "rows": rows}
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


def _median_seconds(run: Callable[[], None], repeats: int) -> float:
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


VERBS = {"world": world}
