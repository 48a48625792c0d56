"""Rows to one table: rates with intervals, paired differences to a reference method, costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .runner import TrialRow
from .statistics import PairedDifference, Rate, paired_difference, wilson


@dataclass(frozen=True)
class MethodSummary:
    method: str
    replan: int
    any_time: Rate
    final: Rate
    held: Rate
    strict: Rate
    versus: str  # the reference method, at the same replanning
    difference: PairedDifference | None  # of any-time success, over the trials both ran
    rows_a_plan: float
    encode_ms: float
    plan_ms: float
    final_error: float  # median, in the task's unit


def summarise(rows: Sequence[TrialRow], reference: str) -> list[MethodSummary]:
    groups: dict[tuple[str, int], dict[int, TrialRow]] = {}
    for row in rows:
        if row.error is None:
            groups.setdefault((row.method, row.replan), {})[row.trial] = row
    return [_summary(key, group, groups, reference) for key, group in groups.items()]


def _summary(
    key: tuple[str, int],
    group: dict[int, TrialRow],
    groups: dict[tuple[str, int], dict[int, TrialRow]],
    reference: str,
) -> MethodSummary:
    method, replan = key
    mine = list(group.values())
    other = groups.get((reference, replan), {})
    shared = sorted(group.keys() & other.keys())
    difference = None
    if shared and method != reference:
        difference = paired_difference(
            np.array([group[i].success_any for i in shared]), np.array([other[i].success_any for i in shared])
        )

    def column(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in mine], float)

    return MethodSummary(
        method=method,
        replan=replan,
        any_time=_rate(column("success_any")),
        final=_rate(column("success_final")),
        held=_rate(column("success_held")),
        strict=_rate(column("strict")),
        versus=reference,
        difference=difference,
        rows_a_plan=float(column("rows_a_plan").mean()),
        encode_ms=float(np.median(column("encode_ms"))),
        plan_ms=float(np.median(column("plan_ms"))),
        final_error=float(np.median(column("final_error"))),
    )


def _rate(outcomes: np.ndarray) -> Rate:
    return wilson(int(outcomes.sum()), len(outcomes))
