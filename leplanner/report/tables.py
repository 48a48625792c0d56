"""What `leplanner evaluate` left on disk, as tables ready to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts import read_json, read_lines

TITLES = {
    "leplanner": "LePlanner",
    "leplanner-keep": "LePlanner-keep",
    "gcidm": "GC-IDM",
    "gcbc": "GCBC",
    "gcivl": "GCIVL",
    "gciql": "GCIQL",
    "random": "random",
    "nothing": "do nothing",
    "replay": "replay of the data",
}
SEARCH_TITLES = {"cem": "CEM", "icem": "iCEM", "mppi": "MPPI", "gradient": "gradient"}  # shown with their budget


@dataclass(frozen=True)
class MethodRow:
    method: str
    title: str
    replan: int
    weights: str
    trials: int
    any_time: str  # percent with its 95 % interval
    final: str
    held: str
    strict: str
    paired: list[str]  # differences to the reference
    rows_a_plan: str
    plan_ms: str
    encode_ms: str
    rates: dict[str, dict[str, float]]  # value, low and high, by name: as numbers, for figures
    costs: dict[str, float]  # rows, plan_ms

    @property
    def pace(self) -> str:
        return f"m = {self.replan}" if self.replan else "every action"


@dataclass(frozen=True)
class Evaluation:
    task: str
    title: str  # protocol, offset, budget
    offset: int  # actions from start to goal in the data
    budget: int  # actions
    protocol: str
    manifest: str  # digest
    seed: int
    methods: list[MethodRow]
    settings: dict[str, Any]
    fingerprint: dict[str, Any]
    caveats: list[str]  # what a reader must know before comparing
    command: str  # that made it; empty if it was not a command
    provenance: dict[str, Any]


def counted_trials(folder: Path, number: int) -> list[int]:
    """The first so many trials of an evaluation, without those that raised for any method: what its table is of."""
    raised = {row["trial"] for row in read_lines(folder / "rows.jsonl") if row["error"] is not None}
    return [trial for trial in range(number + len(raised)) if trial not in raised][:number]


def read_evaluation(folder: Path) -> Evaluation:
    for name in ("summary.json", "manifest.json"):
        if not (folder / name).exists():
            raise ValueError(f"{folder} has no {name}. Give a folder that `leplanner evaluate` made and finished.")
    summary, manifest = read_json(folder / "summary.json"), read_json(folder / "manifest.json")
    methods = [_method_row(value, summary["reference"], summary["settings"]) for value in summary["methods"]]
    most = max(row.trials for row in methods)
    caveats = [
        f"{row.title}, {row.pace}, ran only the first {row.trials} of the {most} trials; paired differences use the trials both ran."
        for row in methods
        if row.trials < most
    ]
    if summary["errors"]:
        caveats.append(f"{summary['errors']} trials raised an error and count for no method.")
    return Evaluation(
        task=manifest["task"],
        title=f"{manifest['protocol']}, goals {manifest['offset']} actions ahead, budget {manifest['budget']}",
        offset=manifest["offset"],
        budget=manifest["budget"],
        protocol=manifest["protocol"],
        manifest=summary["manifest"],
        seed=manifest["seed"],
        methods=methods,
        settings=summary["settings"],
        fingerprint=summary["fingerprint"],
        caveats=caveats,
        command=summary.get("command", ""),
        provenance=summary.get("provenance", {}),
    )


def _method_row(value: dict[str, Any], reference: str, settings: dict[str, Any]) -> MethodRow:
    paired = [
        f"{100 * d['difference']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f}), p = {d['p_value']:.2g}, "
        f"against {_title(reference, settings)} at m = {m}"
        for m, d in value["differences"].items()
    ]
    return MethodRow(
        method=value["method"],
        title=_title(value["method"], settings),
        replan=value["replan"],
        weights=value["weights"],
        trials=value["any_time"]["trials"],
        **{name: show_rate(value[name]) for name in ("any_time", "final", "held", "strict")},
        paired=paired,
        rows_a_plan=f"{value['rows_a_plan']:,.5g}",
        plan_ms=f"{value['plan_ms']:.1f}",
        encode_ms=f"{value['encode_ms']:.1f}",
        rates={name: value[name] for name in ("any_time", "held")},
        costs={"rows": value["rows_a_plan"], "plan_ms": value["plan_ms"]},
    )


def _title(method: str, settings: dict[str, Any]) -> str:
    if method in SEARCH_TITLES:
        return f"{SEARCH_TITLES[method]} {settings['search'].split(',')[0]}"
    return TITLES.get(method, method)


def show_rate(rate: dict[str, Any]) -> str:
    return f"{100 * rate['value']:.1f} ({100 * rate['low']:.0f}-{100 * rate['high']:.0f})"
