"""A comparison of families as tables, for a terminal and for Markdown alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from ..control.methods import METHODS
from ..evaluation.metrics import EARLIER_STRICT, HEADLINE, METRICS, by_current_names
from .tables import metric_title, show_rate

RATES = (HEADLINE, "held", "moderate", "strict", EARLIER_STRICT)
COMPARED = (HEADLINE, "held")
UNKNOWN = "-"


@dataclass(frozen=True)
class Sheet:
    name: str
    title: str  # a sentence or several, without the last full stop
    words: tuple[str, ...]  # columns of words, then of figures
    figures: tuple[str, ...]
    sections: list[list[tuple[str, ...]]]  # rows by family

    @property
    def rich(self) -> Table:
        table = Table(title=self.title)
        rows = [row for section in self.sections for row in section]
        for column, cells in zip((*self.words, *self.figures), zip(*rows, strict=True), strict=True):
            # a narrow terminal may break a header, never a figure from its interval
            whole = column in self.words or any(" " in cell for cell in cells)
            table.add_column(column, justify="right" if column in self.figures else "left", no_wrap=whole)
        for section in self.sections:
            for place, row in enumerate(section):
                repeated = place > 0 and row[0] == section[place - 1][0]
                table.add_row("" if repeated else row[0], *row[1:])
            table.add_section()
        return table

    @property
    def markdown(self) -> str:
        columns = (*self.words, *self.figures)
        rules = ["---"] * len(self.words) + ["---:"] * len(self.figures)
        rows = [row for section in self.sections for row in section]
        lines = [columns, rules, *rows]
        return "\n".join([f"{self.title}.", "", *(f"| {' | '.join(cells)} |" for cells in lines)])


def comparison_tables(report: dict[str, Any]) -> list[Sheet]:
    """Worlds, success, paired differences, and what a decision costs."""
    return [sheet for sheet in (_worlds(report), _success(report), _paired(report), _cost(report)) if sheet.sections]


def planner_title(method: str) -> str:
    """Without the budget of searches, which is said once, for all."""
    return METHODS.get(method).title if method in METHODS else method


def preset_words(report: dict[str, Any]) -> str:
    words, effort = f"{report['scale']} scale, {report['recipe']} recipe", report["effort"]
    return words if effort == 1 else f"{words}, {effort:g} of its training steps"


def _worlds(report: dict[str, Any]) -> Sheet:
    first = next(iter(report["families"][0]["probe"]["rmse"]))
    longest = max(len(family["rollout_error"]) for family in report["families"])
    rows = []
    for family in report["families"]:
        minutes, errors, probe = family["minutes"], family["rollout_error"], family["probe"]
        share = np.mean([probe["rmse"][name] / probe["std"][name] for name in probe["rmse"]])
        row = (family["name"], f"{family['parameters'] / 1e6:.2f}")
        row += (_sum(minutes, "world", "finetuned"), _sum(minutes, "density", "planner"))
        row += (
            f"{100 * errors[0]:.1f}",
            f"{100 * errors[-1]:.1f}",
            f"{probe['rmse'][first]:.3g}",
            f"{100 * share:.1f}",
        )
        rows.append(row)
    title = (
        f"{report['task']}: worlds, {preset_words(report)}. Parameters; minutes of "
        f"training; error after 1 and {longest} blocks, % of copying the last latent; linear probe, in "
        f"{report['families'][0]['probe']['unit'] or 'units of the state'} and mean % of the spread"
    )
    figures = ("M", "world min", "planner min", "error 1", f"error {longest}", f"probe {first}", "probe %")
    return Sheet("Worlds", title, ("family",), figures, [rows])


def _sum(minutes: dict[str, float | None], *names: str) -> str:
    parts = [minutes[name] for name in names if name in minutes]
    known = [part for part in parts if part is not None]
    return f"{sum(known):.1f}" if parts and len(known) == len(parts) else UNKNOWN


def _success(report: dict[str, Any]) -> Sheet:
    families = [(family["name"], family["methods"]) for family in report["families"]]
    rates = [[by_current_names(row["rates"]) for row in rows] for _, rows in families]
    measured = [name for name in RATES if any(name in known for of_family in rates for known in of_family)]
    sections = [
        [
            (name, planner_title(row["method"]), str(row["replan"]), str(row["trials"]))
            + tuple(show_rate(known[metric]) if metric in known else UNKNOWN for metric in measured)
            for row, known in zip(rows, of_family, strict=True)
        ]
        for (name, rows), of_family in zip(families, rates, strict=True)
    ]
    searches = f"; searches {report['settings']['search']}" if report["search_trials"] else ""
    title = (
        f"{report['task']}: success, %, with 95 % intervals. {report['protocol']} trials, goals {report['offset']} "
        f"actions ahead{searches}"
    )
    return Sheet(
        "Success", title, ("family", "planner"), ("m", "n", *(METRICS.get(name).title for name in measured)), sections
    )


def _paired(report: dict[str, Any]) -> Sheet:
    sections = []
    for family in report["families"]:
        rows = [
            (family["name"], other, m, str(by_metric[HEADLINE]["trials"]))
            + tuple(_difference(by_metric[name]) for name in COMPARED)
            + (f"{by_metric[HEADLINE]['p_value']:.2g}",)
            for other, by_m in _compared(report, family)
            for m, by_metric in by_m.items()
        ]
        sections += [rows] if rows else []
    title = (
        f"{report['task']}: {planner_title(report['leplanner'])} in a family minus another, points, paired on the "
        f"trials that both ran, with 95 % bootstrap intervals; p of {metric_title(HEADLINE)} by McNemar's exact test. "
        "Intervals are over trials; each family was trained once"
    )
    return Sheet(
        "Paired differences", title, ("family", "minus"), ("m", "n", *map(metric_title, COMPARED), "p"), sections
    )


def _cost(report: dict[str, Any]) -> Sheet:
    sections = [
        [
            (family["name"], planner_title(row["method"]), f"{row['transitions']:,}")
            + (UNKNOWN if row["calls"] is None else f"{row['calls']:,}",)
            + (f"{row['encode_ms']:.1f}", f"{row['plan_ms']:.1f}", f"{row['encode_ms'] + row['plan_ms']:.1f}")
            for row in report["latency"]["rows"]
            if row["family"] == family["name"]
        ]
        for family in report["families"]
    ]
    latency = report["latency"]
    threads = latency["machine"]["threads"]
    engines = " or ".join(dict.fromkeys(one["engine"] for one in latency["fingerprints"].values()))
    others = ", the others in PyTorch" if any(row["method"] != report["leplanner"] for row in latency["rows"]) else ""
    title = (
        f"{report['task']}: a decision at m = 1. Imagined steps, predictor calls one after another, and milliseconds "
        f"(all in turns, {threads} thread{'s' if threads > 1 else ''}; {planner_title(report['leplanner'])} with the "
        f"{engines} engine{others})"
    )
    return Sheet(
        "Cost", title, ("family", "planner"), ("imagined", "calls", "encode ms", "plan ms", "both ms"), sections
    )


def _compared(report: dict[str, Any], family: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What ours is compared with, by name, and the differences."""
    ours, own = planner_title(report["leplanner"]), planner_title(family["own_planner"])
    return [(own, family["minus_own"]), (f"{ours} in {report['reference']}", family["minus_first"])]


def _difference(difference: dict[str, Any]) -> str:
    if not difference["only_this"] + difference["only_reference"]:  # nothing to resample: no interval
        return "0.0 (no trial differs)"
    value, low, high = (100 * difference[name] for name in ("difference", "low", "high"))
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f})"
