"""Results as tables for a terminal."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from rich.table import Table
from rich.text import Text

from ..control.methods import DEFAULT, METHODS, methods_of
from ..diagnostics.closed_loop import ClosedLoopTables
from ..diagnostics.imagined import ImaginedTables
from ..evaluation.manifest import Manifest
from ..evaluation.metrics import HEADLINE, METRICS, metrics_of
from ..evaluation.statistics import Rate
from ..evaluation.summary import MethodSummary
from ..tasks import get_task
from ..worlds.probe import ProbeReport
from .tables import show_rate


def evaluation_tables(summaries: list[MethodSummary], manifest: Manifest, unit: str, reference: str) -> list[Table]:
    title = f"{manifest.task}, {manifest.protocol}, goals {manifest.offset} actions ahead, budget {manifest.budget}"
    metrics = [metric for metric in metrics_of("rate") if any(metric.name in s.rates for s in summaries)]
    success = _empty_table(f"{title}: success and its 95 % interval, %", "n", *(metric.title for metric in metrics))
    paired = _empty_table(f"{METRICS.get(HEADLINE).title} success, paired", "against", "difference", "95 %", "p")
    cost = _empty_table("a decision", "transitions", "plan ms", "encode ms", "imagined distance")
    values = metrics_of("value")
    medians = _empty_table("medians over trials", *(metric.title_in(unit) for metric in values))
    for s in summaries:
        name, m = s.method, str(s.replan)
        success.add_row(name, m, str(s.trials), *(_show(s.rates.get(metric.name)) for metric in metrics))
        for other, d in s.differences.items():
            interval = f"{100 * d.low:+.1f} to {100 * d.high:+.1f}"
            paired.add_row(name, m, f"{reference} {other}", f"{100 * d.difference:+.1f}", interval, f"{d.p_value:.2g}")
        imagined = f"{s.imagined:.3f}" if s.imagined is not None else ""
        times = (f"{s.transitions_per_plan:,.5g}", f"{s.plan_ms:.1f}", f"{s.encode_ms:.1f}")
        cost.add_row(name, m, *times, imagined)
        medians.add_row(name, m, *(_number(s.values.get(metric.name)) for metric in values))
    return [success, *([paired] if paired.row_count else []), medians, cost]


def latency_table(rows: list[dict[str, Any]]) -> Table:
    threads = torch.get_num_threads()
    columns = ("plan", "p95", "encode", "p95", "transitions")
    table = _empty_table(f"milliseconds a decision, {threads} threads, warm", *columns)
    table.columns[1].header = "batch"
    for row in rows:
        times = (f"{row[name]:.1f}" for name in ("plan_ms", "plan_ms_p95", "encode_ms", "encode_ms_p95"))
        table.add_row(row["method"], str(row["batch"]), *times, str(row["transitions"]))
    return table


def _empty_table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in ("method", "m", *columns):
        table.add_column(column, justify="left" if column in ("method", "m") else "right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _show(rate: Rate | None) -> str:
    if rate is None:
        return ""
    return f"{100 * rate.value:.1f} {100 * rate.low:.0f}-{100 * rate.high:.0f}"  # with its 95 % interval


def sweep_table(reports: dict[int, dict[str, Any]]) -> Table:
    """Every draw, its mean and its range; never the best alone."""
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    for report in reports.values():
        for method in report["methods"]:
            rates[method["method"], method["replan"]].append(100 * method["rates"][HEADLINE]["value"])
    table = Table(title=f"{METRICS.get(HEADLINE).title} success by draw, %")
    for title in ("method", "m", *map(str, reports), "mean", "range"):
        table.add_column(title, justify="left" if title in ("method", "m") else "right")
    for (method, m), values in rates.items():
        shown = [f"{value:.0f}" for value in values]
        table.add_row(method, str(m), *shown, f"{np.mean(values):.1f}", f"{min(values):.0f}-{max(values):.0f}")
    return table


def arrival_table(metrics: dict[str, Any], task: str) -> Table:
    """Mean held-out distance of the final plan after each block, by how far away the goal was."""
    start, profile = metrics["held_out_start"], metrics["held_out_profile"]
    by_k = ", ".join(f"{distance / start:.2%}" for distance in metrics["held_out_arrival"])
    title = f"{task}: held-out distance after each block, in % of the start's {start:.3f} (step {metrics['step']})"
    table = Table(title=f"{title}\narrival by k: {by_k}")
    table.add_column("goal at q")
    for block in range(len(profile)):
        table.add_column(f"block {block + 1}", justify="right")
    for q, (row, best) in enumerate(zip(profile, metrics["held_out_profile_minimum"], strict=True), start=1):
        if row is None:  # no held-out goal lies so far away
            continue
        cells = [Text(f"{100 * distance / start:.2f}") for distance in row]
        cells[best - 1].stylize("bold")
        table.add_row(str(q), *cells)
    return table


def ablation_table(report: dict[str, Any]) -> Table:
    replans = list(report["variants"][0]["success"])
    table = Table(title=f"{report['task']}, {report['trials']} trials, {report['steps']} training steps each")
    columns = [title for m in replans for title in (f"m = {m}", "p", "held")]
    for title in ("variant", "seeds", *columns, "D*", "off support"):
        table.add_column(title, justify="left" if title == "variant" else "right")
    for row in report["variants"]:
        cells = []
        for m in replans:
            p = "" if row["name"] == report["reference"] else f"{row['difference'][m]['p_value']:.2g}"
            cells += [f"{100 * row['success'][m]['value']:.1f}", p, f"{100 * row['held'][m]['value']:.1f}"]
        fixed = row["fit"]["fixed_point"]
        settles = f"{fixed:.4f}" if fixed is not None else "none"
        # without refinements nothing is kept within the data's support
        outside = f"{row['off_support']:.1%}" if row["off_support"] is not None else "none"
        table.add_row(row["name"], str(len(row["seeds"])), *cells, settles, outside)
    return table


def diagnosis_tables(imagined: ImaginedTables, executed: ClosedLoopTables | None) -> list[Table | str]:
    horizon = len(imagined.magnitudes)
    profile = Table(
        title=f"distance to the goal after each block, % of the start ({imagined.problems} held-out problems)"
    )
    for title in ("goal at q", "problems", *map(str, range(1, horizon + 1))):
        profile.add_column(title, justify="right")
    for q, (row, count) in enumerate(zip(imagined.profile, imagined.profile_counts, strict=True), start=1):
        if row is not None:
            profile.add_row(str(q), str(count), *(f"{100 * value / imagined.start:.2f}" for value in row))
    depth = Table(title=f"what a refinement buys (trained with {imagined.trained_depth})")
    for title in ("k", "terminal", "arrival", "gain", "change"):
        depth.add_column(title, justify="right")
    for row in imagined.depth:
        rest = (f"{row.gain:+.5f}", f"{row.change:.4f}") if row.gain is not None else ("", "")
        depth.add_row(str(row.k), f"{row.terminal:.5f}", f"{row.arrival:.5f}", *rest)
    beside = imagined.beside_the_data
    lines = [
        "mean |action| by block, standardized: " + " ".join(f"{value:.3f}" for value in imagined.magnitudes),
        f"first block beside the data's: cosine {beside.cosine_mean:.3f} (median {beside.cosine_median:.3f}), differs "
        f"by {beside.difference:.3f} of {beside.magnitude:.3f}; nearer the goal than after the data's block: our plan "
        f"in {beside.plan_nearer:.1%}, our first block in {beside.our_block_nearer:.1%}",
    ]
    if imagined.off_support is not None:
        lines.append(f"blocks that the data does not support: {imagined.off_support:.1%}")
    if executed is not None:
        fit = executed.fit
        settles = (
            f"settles at {fit.fixed_point:.4f} ({fit.low:.4f} to {fit.high:.4f} in the "
            f"{fit.settled:.0%} of resamples that settle)"
            if fit.fixed_point is not None and fit.low is not None
            else "does not settle"
        )
        lines.append(
            f"closed loop over {fit.pairs} replans of {fit.trials} trials: D' = {fit.c:.3f} D + {fit.b:.4f}, {settles}"
        )
        for name, drift, still in (
            ("our plans", executed.drift, executed.drift_of_copying),
            ("the data's actions from the same starts", executed.data_drift, executed.data_drift_of_copying),
        ):
            shares = " ".join(f"{100 * value / max(rest, 1e-12):.1f}" for value, rest in zip(drift, still, strict=True))
            lines.append(f"imagined against real latents after each block, % of copying, {name}: {shares}")
    return [profile, depth, *lines]


def demo_table(summaries: dict[str, list[MethodSummary]], title: str, search: str) -> Table:
    """By task. Of a few trials only counts: their intervals would say little."""
    table = Table(title=title)
    for column in ("task", "method", "reached", "and held", "transitions per plan", "plan, ms"):
        table.add_column(column, justify="left" if column in ("task", "method") else "right")
    for name, methods in summaries.items():
        for s in methods:
            shown = "LePlanner" if s.method == DEFAULT else METHODS.get(s.method).title_with(search)
            reached, held = (f"{s.rates[metric].successes}/{s.rates[metric].trials}" for metric in ("any", "held"))
            cost = (f"{s.transitions_per_plan:,.5g}", f"{s.plan_ms:.0f}")
            table.add_row(get_task(name).title, shown, reached, held, *cost)
        table.add_section()
    return table


def zoo_table(bundles: dict[str, dict[str, Any]]) -> Table:
    """Shipped evaluations by task, with the size of each bundle in bytes."""
    table = Table(title="success on nontrivial held-out trials, %, with 95 % intervals")
    for column in ("load by", "method", "replans", "trials", "any time", "held 5", "MB", "manifest"):
        table.add_column(column, justify="left" if column in ("load by", "method") else "right")
    for name, bundle in bundles.items():
        for row in bundle["methods"]:
            if row["method"] not in methods_of("ours"):
                continue
            rates = (show_rate(row["rates"][metric]) for metric in ("any", "held"))
            blocks = f"{row['replan']} block{'s' if row['replan'] > 1 else ''}"
            rest = (f"{bundle['bytes'] / 1e6:.1f}", bundle["manifest"][:12])
            title = METHODS.get(row["method"]).title
            table.add_row(f'lp.load("{name}")', title, blocks, str(row["trials"]), *rates, *rest)
    return table


def probe_table(report: ProbeReport, task: str) -> Table:
    table = Table(title=f"{task}: {report.held_out_rows} held-out frames, probe fitted on {report.train_rows}")
    for title in ("quantity", "RMSE", "spread", "share"):
        table.add_column(title, justify="left" if title == "quantity" else "right")
    for name, error in report.rmse.items():
        table.add_row(name, f"{error:.4g}", f"{report.std[name]:.4g}", f"{error / report.std[name]:.1%}")
    return table
