"""What `leplanner evaluate` left on disk, as tables ready to show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts import read_json

TITLES = {
    "leplanner": "LePlanner",
    "cem": "CEM",
    "icem": "iCEM",
    "mppi": "MPPI",
    "gradient": "gradient",
    "gcidm": "GC-IDM",
    "gcbc": "GCBC",
    "gcivl": "GCIVL",
    "gciql": "GCIQL",
    "random": "random",
    "nothing": "do nothing",
    "replay": "replay of the data",
}


@dataclass(frozen=True)
class MethodRow:
    method: str
    title: str
    replan: int
    trials: int
    any_time: str  # percent with its 95 % interval
    final: str
    held: str
    strict: str
    paired: list[str]  # differences to the reference
    rows_a_plan: str
    plan_ms: str
    encode_ms: str

    @property
    def pace(self) -> str:
        return f"m = {self.replan}" if self.replan else "every action"


@dataclass(frozen=True)
class Evaluation:
    task: str
    title: str  # protocol, offset, budget
    manifest: str  # digest
    methods: list[MethodRow]
    settings: dict[str, Any]
    fingerprint: dict[str, Any]


def read_evaluation(folder: Path) -> Evaluation:
    for name in ("summary.json", "manifest.json"):
        if not (folder / name).exists():
            raise ValueError(f"{folder} has no {name}. Give a folder that `leplanner evaluate` made and finished.")
    summary, manifest = read_json(folder / "summary.json"), read_json(folder / "manifest.json")
    title = f"{manifest['protocol']}, goals {manifest['offset']} actions ahead, budget {manifest['budget']}"
    methods = [_method_row(value, summary["reference"]) for value in summary["methods"]]
    return Evaluation(
        manifest["task"], title, summary["manifest"], methods, summary["settings"], summary["fingerprint"]
    )


def _method_row(value: dict[str, Any], reference: str) -> MethodRow:
    paired = [
        f"{100 * d['difference']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f}), p = {d['p_value']:.2g}, "
        f"against {TITLES[reference]} at m = {m}"
        for m, d in value["differences"].items()
    ]
    return MethodRow(
        method=value["method"],
        title=TITLES[value["method"]],
        replan=value["replan"],
        trials=value["any_time"]["trials"],
        **{name: show_rate(value[name]) for name in ("any_time", "final", "held", "strict")},
        paired=paired,
        rows_a_plan=f"{value['rows_a_plan']:,.0f}",
        plan_ms=f"{value['plan_ms']:.1f}",
        encode_ms=f"{value['encode_ms']:.1f}",
    )


def show_rate(rate: dict[str, Any]) -> str:
    return f"{100 * rate['value']:.1f} ({100 * rate['low']:.0f}-{100 * rate['high']:.0f})"
