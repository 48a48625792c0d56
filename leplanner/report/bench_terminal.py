"""Benchmarks as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table

Shown = list[Table | str]


def plan_tables(report: dict[str, Any]) -> Shown:
    title = f"a decision, {report['scale']} scale, {report['threads']} threads, milliseconds (median and 95 %)"
    columns = ("batch", "encode", "95 %", "plan", "95 %", "transitions", "repeats")
    table = _table(title, ("world", "method", "engine"), columns)
    for row in report["rows"]:
        times = (_ms(row[key]) for key in ("encode_ms", "encode_ms_p95", "plan_ms", "plan_ms_p95"))
        last = (f"{row['transitions']:,}", str(row["repeats"]))
        table.add_row(row["family"], row["method"], row["engine"], str(row["batch"]), *times, *last)
    machine, work = report["machine"], report["work"]
    limit = (
        f"one plan: {work['gflop']:.2f} GFLOP, {work['weights_mb']:.0f} MB of weights read; here a matrix "
        f"multiplication reaches {machine['matmul_gflop_per_s']:.0f} GFLOP/s and a copy moves "
        f"{machine['copy_gb_per_s']:.1f} GB/s: {report['least_ms']:.1f} ms at that speed"
    )
    ratios = Table(show_header=False, title="ratios")
    for name, value in report["ratios"].items():
        ratios.add_row(name, f"{value:,.1f}" if value >= 1 else f"{value:.2f}")
    return [table, limit, ratios, *_export_tables(report["export"]), _first_plan(report["first_plan"])]


def _export_tables(export: dict[str, Any]) -> Shown:
    if "error" in export:
        return [f"no ONNX export: {export['error']}"]
    columns = ("seconds to make", "MB", "ms at batch 1", "deviation from torch")
    table = _table("ONNX export", ("graph", "way"), columns)
    lines = []
    for row in export["rows"]:
        if "error" in row:
            lines.append(f"{row['graph']}, {row['way']}: {row['error']}")
            continue
        sizes = (f"{row['seconds']:.2f}", f"{row['size_mb']:.1f}", _ms(row["ms"]))
        table.add_row(row["graph"], row["way"], *sizes, f"{row['deviation_from_torch']:.1e}")
    known = {graph: deviation for graph, deviation in export["deviation"].items() if deviation is not None}
    lines += [f"{graph}: the two ways differ by at most {deviation:.1e}" for graph, deviation in known.items()]
    return [table, *lines]


def _first_plan(first: dict[str, Any]) -> str:
    if "error" in first:
        return f"the first plan of a new process failed: {first['error']}"
    memory = "" if first["resident_mb"] is None else f", {first['resident_mb']:.0f} MB resident beyond torch"
    memory += "" if first["peak_mb"] is None else f" ({first['peak_mb']:.0f} at the peak)"
    return (
        f"new process: import {first['import_s']:.2f} s, load {first['load_s']:.2f} s after torch's import, first plan "
        f"{first['first_plan_s']:.2f} s{memory}"
    )


def world_tables(report: dict[str, Any]) -> Shown:
    speed = f"matmul {report['matmul_gflop_per_s']:.0f} GFLOP/s"
    title = f"{report['task']} {report['scale']}, batch {report['batch']}, {report['threads']} threads, "
    table = _table(f"{title}{report['precision']}; {speed}", ("work",), ("frames/s", "GFLOP/s", "share of matmul"))
    for row in report["rows"]:
        numbers = f"{row['frames_per_s']:.0f}", f"{row['gflop_per_s']:.1f}", f"{row['share_of_matmul']:.0%}"
        table.add_row(row["work"], *numbers)
    share = f"{report['loader_share_of_step']:.2%} of a step"
    return [
        table,
        f"drawing a batch of windows: {share} (and in a thread of its own)",
        f"drawing {report['planning_samples']} planning samples: {report['planning_batch_ms']:.2f} ms",
    ]


def train_tables(report: dict[str, Any]) -> Shown:
    title = f"{report['task']} {report['scale']}, batch {report['batch']}, {report['threads']} threads"
    table = _table(title, ("world", "training step", "precision"), ("ms", "samples/s", "ratio"))
    plain = report["rows"][0]["seconds"]
    for row in report["rows"]:
        precision = report["precision"] if row["step"] == "fast" else "fp32"
        numbers = f"{1e3 * row['seconds']:.0f}", f"{row['samples_per_s']:.0f}", f"{plain / row['seconds']:.2f}"
        table.add_row(row["family"], row["step"], precision, *numbers)
    lines = [f"fast step through {name} / through {report['family']}: {r:.2f}" for name, r in report["ratios"].items()]
    return [table, *lines, f"first steps, with compilation: {report['first_steps_s']:.0f} s"]


def _table(title: str, left: Iterable[str], right: Iterable[str]) -> Table:
    table = Table(title=title)
    for name in left:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right")
    return table


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
