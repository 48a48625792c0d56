"""What `leplanner evaluate` left on disk, as tables ready to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import baselines  # noqa: F401  (registers every method)
from ..artifacts import read_json, read_lines
from ..control.methods import GRAY, METHODS
from ..evaluation.metrics import METRICS, by_current_names
from ..evaluation.videos import video_path
from ..tasks import get_task


@dataclass(frozen=True)
class MethodRow:
    method: str
    title: str
    role: str  # as registered; empty for a method that is not
    color: str
    replan: int
    weights: str
    trials: int
    rates: dict[str, dict[str, Any]]  # value, low and high by metric: as numbers, for figures
    shown: dict[str, str]  # by metric: a rate in percent with its 95 % interval, the median of a value
    differences: dict[int, dict[str, Any]]  # to the reference at m, on the trials both ran: as numbers
    paired: list[str]  # the same in words
    transitions_per_plan: str
    plan_ms: str
    encode_ms: str
    costs: dict[str, float]  # transitions and milliseconds of a plan, and of encoding: as numbers, for figures

    @property
    def decision_ms(self) -> float:
        return self.costs["encode_ms"] + self.costs["plan_ms"]

    @property
    def pace(self) -> str:
        return f"m = {self.replan}" if self.replan else "every action"

    @property
    def label(self) -> str:
        return f"{self.title}, {self.pace}"


@dataclass(frozen=True)
class Evaluation:
    task: str
    title: str  # protocol, offset, budget
    offset: int  # actions from start to goal in the data
    budget: int  # actions
    protocol: str
    manifest: str  # digest
    seed: int
    reference: str  # the method that others are compared with
    metrics: dict[str, str]  # titles of what was measured, in the order of registration
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
    if any("rates" not in method for method in summary["methods"]):
        raise ValueError(
            f"{folder} was evaluated by an earlier version of leplanner. Evaluate again, to another --out."
        )
    methods = [_method_row(value, summary["reference"], summary["settings"]) for value in summary["methods"]]
    most = max(row.trials for row in methods)
    caveats = [
        f"{row.label}, ran only the first {row.trials} of the {most} trials; "
        "paired differences use the trials both ran."
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
        reference=summary["reference"],
        metrics=_measured_metrics(methods, get_task(manifest["task"]).error_unit),
        methods=methods,
        settings=summary["settings"],
        fingerprint=summary["fingerprint"],
        caveats=caveats,
        command=summary.get("command", ""),
        provenance=summary.get("provenance", {}),
    )


def find_video(folder: Path, evaluation: Evaluation, row: MethodRow, trial: int) -> Path | None:
    """The file of a recorded trial. A method that is not registered has none: what its name depends on is not known."""
    if row.method not in METHODS:
        return None
    settings = (evaluation.manifest, evaluation.seed, evaluation.settings, row.weights)
    path = video_path(folder, row.method, row.replan, trial, *settings)
    return path if path.exists() else None


def _method_row(value: dict[str, Any], reference: str, settings: dict[str, Any]) -> MethodRow:
    name, rates = value["method"], by_current_names(value["rates"])
    known = METHODS.get(name) if name in METHODS else None
    paired = [
        f"{100 * d['difference']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f}), p = {d['p_value']:.2g}, "
        f"against {method_title(reference, settings)} at m = {m}"
        for m, d in value["differences"].items()
    ]
    return MethodRow(
        method=name,
        title=method_title(name, settings),
        role=known.role if known else "",
        color=known.color if known else GRAY,
        replan=value["replan"],
        weights=value["weights"],
        trials=value["trials"],
        rates=rates,
        shown={metric: show_rate(rate) for metric, rate in rates.items()}
        | {metric: f"{median:.3g}" for metric, median in value["values"].items() if median is not None},
        differences={int(m): d for m, d in value["differences"].items()},
        paired=paired,
        transitions_per_plan=f"{value['transitions_per_plan']:,.5g}",
        plan_ms=f"{value['plan_ms']:.1f}",
        encode_ms=f"{value['encode_ms']:.1f}",
        costs={
            "transitions": value["transitions_per_plan"],
            "plan_ms": value["plan_ms"],
            "encode_ms": value["encode_ms"],
        },
    )


def method_title(name: str, settings: dict[str, Any]) -> str:
    """As registered, a search with the budget in an evaluation's settings; the name itself for an unknown method."""
    return METHODS.get(name).title_with(settings["search"]) if name in METHODS else name


def metric_title(name: str) -> str:
    return METRICS.get(name).title if name in METRICS else name


def show_rate(rate: dict[str, Any]) -> str:
    return f"{100 * rate['value']:.1f} ({100 * rate['low']:.0f}-{100 * rate['high']:.0f})"


def _measured_metrics(methods: list[MethodRow], unit: str) -> dict[str, str]:
    """Registered ones in their order, then those that nobody registered here."""
    measured = dict.fromkeys(name for method in methods for name in method.shown)
    known = {metric.name: metric.title_in(unit) for metric in METRICS.values() if metric.name in measured}
    return known | {name: name for name in measured if name not in known}
