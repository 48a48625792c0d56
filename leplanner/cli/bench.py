"""`leplanner bench`: speed as a share of what the machine can do, measured in one run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import torch
from rich.markup import escape
from rich.table import Table

from ..bench import no_note
from ..bench.plan import bench_plan
from ..bench.train import bench_train
from ..bench.world import SAMPLES, bench_world
from ..tasks import find_task
from ..worlds import find_family
from .options import Comma, Json, MaybeInt, TaskName, integers
from .progress import console, errors


def plan(
    task: TaskName = "pusht",
    scale: str = "paper",
    family: str = "lewm",
    engines: Comma = "eager,compiled,onnx",
    rivals: Comma = "cem,icem,mppi,gradient,gcidm",
    batches: Comma = "1,50",
    threads: MaybeInt = None,
    seconds: float = 10.0,
    json_output: Json = False,
) -> None:
    """Milliseconds of a decision on the CPU: LePlanner with every engine, searches and
    learned policies on the same world.

    Also how far LePlanner is from the machine's limit, what an ONNX export costs, and how soon a new process has a
    plan. Weights are random: time does not depend on them. Everything is warm and measured one after the other in this
    process; compiling takes minutes the first time. Searches get their published budgets (300 candidates, 30 rounds)
    and batch 1: they plan a batch one problem after another. Rivals encode frames as LePlanner's last engine does.

    Example: leplanner bench plan --scale compact

    Args:
        task: a registered task, or package.module:TASK; it sets the size of actions.
        scale: paper, compact or tiny.
        family: the world model, a registered family or package.module:FAMILY.
        engines: LePlanner's engines, of eager, compiled, onnx.
        rivals: searches (cem, icem, mppi, gradient) and learned policies (gcidm, gcbc, gcivl, gciql).
        batches: how many problems to plan at once.
        threads: CPU threads (default: torch's).
        seconds: how long each is measured after a warm-up; what takes longer is measured once.
        json_output: print JSON instead of tables.
    """
    _use_threads(threads)
    sizes = integers(batches, "--batches")
    report = bench_plan(
        find_task(task),
        scale,
        find_family(family).name,
        _names(engines),
        _names(rivals),
        sizes,
        seconds,
        _note(json_output),
    )
    _show(report, json_output, _print_plan)


def world(
    task: TaskName = "tworoom",
    scale: str = "compact",
    family: str = "lewm",
    batch: MaybeInt = None,
    repeats: int = 5,
    threads: MaybeInt = None,
    json_output: Json = False,
) -> None:
    """Frames/s of encoding and of a world training step on the CPU, beside one large matrix multiplication.

    Example: leplanner bench world pusht

    Args:
        task: a registered task, or package.module:TASK; it sets the size of actions and may adjust the network.
        scale: paper, compact or tiny.
        family: the world model, a registered family or package.module:FAMILY.
        batch: windows in a batch (default: the scale's).
        repeats: timed repetitions; the median counts.
        threads: CPU threads (default: torch's).
        json_output: print JSON instead of a table.
    """
    _use_threads(threads)
    _show(bench_world(find_task(task), scale, find_family(family).name, batch, repeats), json_output, _print_world)


def train(
    task: TaskName = "tworoom",
    scale: str = "compact",
    family: str = "lewm",
    batch: MaybeInt = None,
    repeats: int = 15,
    threads: MaybeInt = None,
    json_output: Json = False,
) -> None:
    """Samples/s of a planner's training step on the CPU: plain eager fp32, and compiled as `leplanner train` runs it.

    Without the perturbed starts of some presets. The two take turns, and medians count. Weights are random: time does
    not depend on them. Compiling the fast step takes minutes the first time and seconds later; it is not counted.

    Example: leplanner bench train

    Args:
        task: a registered task, or package.module:TASK; it sets the size of actions and the training preset.
        scale: paper, compact or tiny.
        family: the world model, a registered family or package.module:FAMILY.
        batch: problems in a batch (default: the scale's).
        repeats: timed steps of each.
        threads: CPU threads (default: torch's).
        json_output: print JSON instead of a table.
    """
    _use_threads(threads)
    report = bench_train(find_task(task), scale, find_family(family).name, batch, repeats, _note(json_output))
    _show(report, json_output, _print_train)


def _use_threads(threads: int | None) -> None:
    if threads:
        torch.set_num_threads(threads)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _note(json_output: bool) -> Callable[[str], None]:
    return no_note if json_output else lambda text: errors.print(f"{text} ...", highlight=False)


def _show(report: dict[str, Any], json_output: bool, show: Callable[[dict[str, Any]], None]) -> None:
    if json_output:
        print(json.dumps(report))
    else:
        show(report)


def _table(title: str, left: Iterable[str], right: Iterable[str]) -> Table:
    table = Table(title=escape(title))
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _print_plan(report: dict[str, Any]) -> None:
    title = f"a decision, {report['scale']} scale, {report['threads']} threads, milliseconds (median and 95 %)"
    columns = ("batch", "encode", "95 %", "plan", "95 %", "transitions", "repeats")
    table = _table(title, ("method", "engine"), columns)
    for row in report["rows"]:
        times = (_ms(row[key]) for key in ("encode_ms", "encode_ms_p95", "plan_ms", "plan_ms_p95"))
        last = (f"{row['transitions']:,}", str(row["repeats"]))
        table.add_row(row["method"], row["engine"], str(row["batch"]), *times, *last)
    console.print(table)
    machine, work = report["machine"], report["work"]
    console.print(
        f"one plan: {work['gflop']:.2f} GFLOP, {work['weights_mb']:.0f} MB of weights read; here a matrix "
        f"multiplication reaches {machine['matmul_gflop_per_s']:.0f} GFLOP/s and a copy moves "
        f"{machine['copy_gb_per_s']:.1f} GB/s: {report['least_ms']:.1f} ms at that speed"
    )
    shown = Table(show_header=False, title="ratios")
    for name, value in report["ratios"].items():
        shown.add_row(name, f"{value:,.1f}")
    console.print(shown)
    _print_export(report["export"])
    _print_first_plan(report["first_plan"])


def _print_export(export: dict[str, Any]) -> None:
    if "error" in export:
        errors.print(f"no ONNX export: {export['error']}", style="red", markup=False)
        return
    columns = ("seconds to make", "MB", "ms at batch 1", "deviation from torch")
    table = _table("ONNX export", ("graph", "way"), columns)
    for row in export["rows"]:
        if "error" in row:
            errors.print(f"{row['graph']}, {row['way']}: {row['error']}", style="red", markup=False)
            continue
        numbers = (
            f"{row['seconds']:.2f}",
            f"{row['size_mb']:.1f}",
            _ms(row["ms"]),
            f"{row['deviation_from_torch']:.1e}",
        )
        table.add_row(row["graph"], row["way"], *numbers)
    console.print(table)
    for graph, deviation in export["deviation"].items():
        if deviation is not None:
            console.print(f"{graph}: the two ways differ by at most {deviation:.1e}")


def _print_first_plan(first: dict[str, Any]) -> None:
    if "error" in first:
        errors.print(f"the first plan of a new process failed: {first['error']}", style="red", markup=False)
        return
    memory = "" if first["resident_mb"] is None else f", {first['resident_mb']:.0f} MB resident beyond torch"
    memory += "" if first["peak_mb"] is None else f" ({first['peak_mb']:.0f} at the peak)"
    console.print(
        f"new process: import {first['import_s']:.2f} s, load {first['load_s']:.2f} s after torch's import, first plan "
        f"{first['first_plan_s']:.2f} s{memory}"
    )


def _print_world(report: dict[str, Any]) -> None:
    speed = f"matmul {report['matmul_gflop_per_s']:.0f} GFLOP/s"
    title = f"{report['task']} {report['scale']}, batch {report['batch']}, {report['threads']} threads, "
    table = _table(f"{title}{report['precision']}; {speed}", ("work",), ("frames/s", "GFLOP/s", "share of matmul"))
    for row in report["rows"]:
        numbers = f"{row['frames_per_s']:.0f}", f"{row['gflop_per_s']:.1f}", f"{row['share_of_matmul']:.0%}"
        table.add_row(row["work"], *numbers)
    console.print(table)
    share = f"{report['loader_share_of_step']:.2%} of a step"
    console.print(f"drawing a batch of windows: {share} (and in a thread of its own)")
    console.print(f"drawing {SAMPLES} planning samples: {report['planning_batch_ms']:.2f} ms")


def _print_train(report: dict[str, Any]) -> None:
    title = f"{report['task']} {report['scale']}, batch {report['batch']}, {report['threads']} threads"
    table = _table(title, ("training step", "precision"), ("ms", "samples/s", "ratio"))
    plain = report["rows"][0]["seconds"]
    for row in report["rows"]:
        precision = report["precision"] if row["step"] == "fast" else "fp32"
        numbers = f"{1e3 * row['seconds']:.0f}", f"{row['samples_per_s']:.0f}", f"{plain / row['seconds']:.2f}"
        table.add_row(row["step"], precision, *numbers)
    console.print(table)
    console.print(f"first steps, with compilation: {report['first_steps_s']:.0f} s")


VERBS = {"plan": plan, "world": world, "train": train}
