"""Rows to one table: rates with intervals, paired differences to a reference method, costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..artifacts import command_line, provenance
from ..control.methods import METHODS
from .metrics import HEADLINE, METRICS, metrics_of
from .runner import TrialRow
from .statistics import PairedDifference, Rate, paired_difference, wilson

Group = dict[int, TrialRow]  # one method at one m: rows by trial


@dataclass(frozen=True)
class MethodSummary:
    method: str
    replan: int
    weights: str  # digest of what it decides with
    trials: int
    rates: dict[str, Rate]  # by metric
    values: dict[str, float | None]  # by metric: the median over the trials that have one
    differences: dict[
        int, PairedDifference
    ]  # of any-time success to the reference method at m, over the trials both ran
    transitions_per_plan: float
    encode_ms: float
    plan_ms: float
    imagined: float | None  # mean distance to the goal at which its plans end in imagination


def summarize(rows: Sequence[TrialRow], reference: str) -> list[MethodSummary]:
    """A trial that raised for one method counts for none: all are scored on the same trials."""
    if reference not in {row.method for row in rows}:
        raise ValueError(
            f"The reference method {reference!r} is not among those that ran. Choose one with --reference."
        )
    raised = {row.trial for row in rows if row.error is not None}
    groups: dict[tuple[str, int], Group] = {}
    for row in rows:
        if row.trial not in raised:
            groups.setdefault((row.method, row.replan), {})[row.trial] = row
    references = {replan: group for (method, replan), group in groups.items() if method == reference}
    return [_summary(method, replan, group, references, reference) for (method, replan), group in groups.items()]


def _summary(method: str, replan: int, group: Group, references: dict[int, Group], reference: str) -> MethodSummary:
    """A method at its own pace is compared with the reference at each of its m, others at the same m."""
    mine = list(group.values())

    def column(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in mine], float)

    own_pace = METHODS.get(method).replan is not None
    compared = {} if method == reference else {m: g for m, g in references.items() if own_pace or m == replan}
    imagined = column("imagined")
    outcomes = {metric.name: [row.outcome.get(metric.name) for row in mine] for metric in METRICS.values()}
    known = {name: [value for value in values if value is not None] for name, values in outcomes.items()}
    return MethodSummary(
        method=method,
        replan=replan,
        weights=mine[0].weights,
        trials=len(mine),
        rates={
            m.name: wilson(sum(map(bool, known[m.name])), len(known[m.name]))
            for m in metrics_of("rate")
            if known[m.name]
        },
        values={m.name: float(np.median(known[m.name])) if known[m.name] else None for m in metrics_of("value")},
        differences={m: one for m, other in compared.items() if (one := difference(group, other)) is not None},
        transitions_per_plan=float(column("transitions_per_plan").mean()),
        encode_ms=float(np.median(column("encode_ms"))),
        plan_ms=float(np.median(column("plan_ms"))),
        imagined=float(imagined.mean()) if np.isfinite(imagined).all() else None,
    )


def difference(group: Group, other: Group, metric: str = HEADLINE) -> PairedDifference | None:
    """Over the trials that both ran; none if there are no such trials, or some were not given this metric."""
    shared = sorted(group.keys() & other.keys())
    ours, theirs = ([rows[trial].outcome.get(metric) for trial in shared] for rows in (group, other))
    if not shared or None in ours + theirs:
        return None
    return paired_difference(np.array(ours), np.array(theirs))


def plain(
    summaries: Sequence[MethodSummary],
    task: str,
    reference: str,
    manifest: str,
    settings: dict[str, Any],
    rows: Sequence[TrialRow],
) -> dict[str, Any]:
    """As it is kept in summary.json."""
    methods = [dataclasses.asdict(summary) for summary in summaries]
    for method, summary in zip(methods, summaries, strict=True):
        for name, rate in summary.rates.items():
            method["rates"][name]["value"] = rate.value
    raised = sum(row.error is not None for row in rows)
    common = {"task": task, "manifest": manifest, "reference": reference, "settings": settings, "errors": raised}
    about = {"command": command_line(), "provenance": provenance(manifest=manifest)}
    return {**common, "fingerprint": _fingerprints(rows), "methods": methods, **about}


def _fingerprints(rows: Sequence[TrialRow]) -> dict[str, Any]:
    """What the rows were run with; where they differ, as those of a resumed evaluation may, all of it."""
    values = {name: [row.fingerprint.get(name) for row in rows] for row in rows for name in row.fingerprint}
    distinct = {name: list(dict.fromkeys(column)) for name, column in values.items()}
    return {name: each[0] if len(each) == 1 else " or ".join(map(str, each)) for name, each in distinct.items()}
