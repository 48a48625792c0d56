"""A comparison of families as tables, for a terminal and for Markdown alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from ..evaluation.metrics import HEADLINE, METRICS
from .findings import show_p
from .tables import method_title, metric_title, show_rate

RATES = (HEADLINE, "held", "strict")
COMPARED = (HEADLINE, "held")
UNKNOWN = "-"


@dataclass(frozen=True)
class Sheet:
    title: str
    words: tuple[str, ...]  # columns of words, then of figures
    figures: tuple[str, ...]
    sections: list[list[tuple[str, ...]]]  # rows by family

    @property
    def rich(self) -> Table:
        table = Table(title=self.title)
        for column in (*self.words, *self.figures):
            table.add_column(column, justify="right" if column in self.figures else "left")
        for section in self.sections:
            for row in section:
                table.add_row(*row)
            table.add_section()
        return table

    @property
    def markdown(self) -> str:
        columns = (*self.words, *self.figures)
        rules = ["---"] * len(self.words) + ["---:"] * len(self.figures)
        rows = [row for section in self.sections for row in section]
        lines = [columns, rules, *rows]
        return "\n".join([f"{self.title}:", "", *(f"| {' | '.join(cells)} |" for cells in lines)])


def comparison_tables(report: dict[str, Any]) -> list[Sheet]:
    """Worlds, success, paired differences, and what a decision costs."""
    return [sheet for sheet in (_worlds(report), _success(report), _paired(report), _cost(report)) if sheet.sections]


def _worlds(report: dict[str, Any]) -> Sheet:
    first = next(iter(report["families"][0]["probe"]["rmse"]))
    longest = max(len(family["rollout_error"]) for family in report["families"])
    rows = []
    for family in report["families"]:
        minutes, errors, probe = family["minutes"], family["rollout_error"], family["probe"]
        shares = [probe["rmse"][name] / probe["std"][name] for name in probe["rmse"]]
        cells = (f"{family['parameters'] / 1e6:.2f}", f"{family['planner_parameters'] / 1e6:.2f}")
        cells += (_sum(minutes, "world", "finetuned"), _sum(minutes, "density", "planner"))
        cells += (f"{100 * errors[0]:.1f}", f"{100 * errors[-1]:.1f}")
        rows.append([(family["name"], *cells, f"{probe['rmse'][first]:.3g}", f"{100 * np.mean(shares):.1f}")])
    figures = ("world, M", "planner, M", "world, min", "planner, min", "error 1, %", f"error {longest}, %")
    title = f"{report['task']}: worlds, their training, error of 1 and {longest} blocks as a share of copying"
    return Sheet(title, ("family",), (*figures, f"probe {first}", "probe, % of spread"), rows)


def _sum(minutes: dict[str, float | None], *names: str) -> str:
    parts = [minutes[name] for name in names if name in minutes]
    known = [part for part in parts if part is not None]
    return f"{sum(known):.1f}" if parts and len(known) == len(parts) else UNKNOWN


def _success(report: dict[str, Any]) -> Sheet:
    measured = [name for name in RATES if any(name in row["rates"] for row in _rows(report))]
    sections = [
        [
            (family["name"], _planner(report, row["method"]), str(row["replan"]), str(row["trials"]))
            + tuple(show_rate(row["rates"][name]) if name in row["rates"] else UNKNOWN for name in measured)
            for row in family["methods"]
        ]
        for family in report["families"]
    ]
    title = f"{report['task']}: success, %, with 95 % intervals; goals {report['offset']} actions ahead"
    return Sheet(title, ("family", "planner"), ("m", "n", *(METRICS.get(name).title for name in measured)), sections)


def _paired(report: dict[str, Any]) -> Sheet:
    sections = []
    for family in report["families"]:
        rows = [
            (family["name"], f"{_planner(report, report['leplanner'])} - {other}", m)
            + (str(by_metric[HEADLINE]["trials"]), *(_difference(by_metric[name]) for name in COMPARED))
            for other, by_m in _compared(report, family)
            for m, by_metric in by_m.items()
        ]
        sections += [rows] if rows else []
    title = f"{report['task']}: paired differences in points on the trials that both ran, 95 % intervals"
    return Sheet(title, ("family", "difference"), ("m", "n", *map(metric_title, COMPARED)), sections)


def _cost(report: dict[str, Any]) -> Sheet:
    sections = []
    for family in report["families"]:
        rows = [row for row in report["latency"]["rows"] if row["family"] == family["name"]]
        sections.append(
            [
                (family["name"], _planner(report, row["method"]), f"{row['transitions']:,}")
                + (UNKNOWN if row["calls"] is None else f"{row['calls']:,}",)
                + (f"{row['encode_ms']:.1f}", f"{row['plan_ms']:.1f}", f"{row['encode_ms'] + row['plan_ms']:.1f}")
                for row in rows
            ]
        )
    threads = report["latency"]["machine"]["threads"]
    title = f"{report['task']}: a decision at m = 1, side by side, {threads} thread{'s' if threads > 1 else ''}"
    figures = ("imagined steps", "calls in sequence", "encode, ms", "plan, ms", "together, ms")
    return Sheet(title, ("family", "planner"), figures, sections)


def difference_lines(report: dict[str, Any]) -> list[str]:
    """Paired differences of the headline, a sentence each."""
    lines = []
    for family in report["families"]:
        for other, by_m in _compared(report, family):
            for m, by_metric in by_m.items():
                d = by_metric[HEADLINE]
                lines.append(
                    f"{family['name']}, m = {m}: {_planner(report, report['leplanner'])} - {other}: "
                    f"{_difference(d)}, {show_p(d['p_value'])}, {d['trials']} trials"
                )
    return lines


def _compared(report: dict[str, Any], family: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What ours is compared with, by name, and the differences."""
    own = _planner(report, family["own_planner"])
    return [(own, family["minus_own"]), (f"with {report['reference']}", family["minus_first"])]


def _rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for family in report["families"] for row in family["methods"]]


def _planner(report: dict[str, Any], method: str) -> str:
    return method_title(method, report["settings"])


def _difference(difference: dict[str, Any]) -> str:
    value, low, high = (100 * difference[name] for name in ("difference", "low", "high"))
    return f"{value:+.1f} ({low:+.0f} to {high:+.0f})"
