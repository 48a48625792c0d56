"""Draws docs/images/success-vs-time.svg from the shipped bundles: success against the time of a decision.

    python docs/make_success_figure.py            # an hour of CPU time, most of it CEM's; resumable, in build/success

All methods run on the first 50 trials that each bundle was measured on (CEM's largest budget on the first 20).
They execute whole plans (m = 5), where CEM is at its best; LePlanner also replans after every block.
Times are of a decision alone, warm, in one process.
What is drawn is kept in docs/results/success-vs-time.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch

import leplanner as lp
from leplanner.artifacts import provenance, read_json, write_json
from leplanner.control.methods import METHODS, MethodInputs, SearchBudget
from leplanner.evaluation.latency import measure_latency
from leplanner.evaluation.manifest import load_manifest
from leplanner.evaluation.runner import EvaluationConfig, evaluate
from leplanner.evaluation.summary import summarize
from leplanner.planner.engines import random_problem
from leplanner.zoo import shipped

TASKS = ("tworoom", "pusht", "reacher", "cube")
OURS, SEARCH, FLOOR = "leplanner-reuse", "cem", "random"
BUDGETS = (SearchBudget(30, 3), SearchBudget(100, 10), SearchBudget(300, 30))
TRIALS = {BUDGETS[0]: 50, BUDGETS[1]: 50, BUDGETS[2]: 20}  # the largest takes hours
ROWS = Path("build/success")
HERE = Path(__file__).parent
TABLE, OUT = HERE / "results" / "success-vs-time.json", HERE / "images" / "success-vs-time.svg"


def rates(name: str, methods: tuple[str, ...], replan: tuple[int, ...], search: SearchBudget) -> dict[str, Any]:
    bundle = shipped()[name]
    config = EvaluationConfig(methods, replan, search=search, trials=TRIALS[search])
    rows = evaluate(bundle, bundle / "manifest.json", config, ROWS / name / f"{search}" / "rows.jsonl")
    assert not any(row.error for row in rows)
    return {(s.method, s.replan): s.rates["any"] for s in summarize(rows, rows[0].method)}


def decision_ms(planner: lp.LoadedPlanner, method: str, search: SearchBudget, budget: int) -> float:
    policy = METHODS.get(method).make(MethodInputs(planner, budget, None, search))(None)
    latency = measure_latency(policy, planner, random_problem(planner.model))
    return latency.encode_ms + latency.plan_ms


def measure(name: str) -> list[dict[str, Any]]:
    """A point each: method, label, m, success with its interval, milliseconds of a decision."""
    planner, budget = lp.load(name), load_manifest(shipped()[name] / "manifest.json").budget
    points = []
    for search in BUDGETS:
        first = search == BUDGETS[0]
        methods, replan = ((OURS, SEARCH, FLOOR), (1, 5)) if first else ((SEARCH,), (5,))
        took = {method: decision_ms(planner, method, search, budget) for method in methods if method != FLOOR}
        for (method, m), rate in rates(name, methods, replan, search).items():
            if (method, m) != (SEARCH, 1):
                label = f"{search.samples} x {search.rounds}" if method == SEARCH else f"m = {m}"
                interval = {"value": rate.value, "low": rate.low, "high": rate.high}
                points.append({"method": method, "label": label, "m": m, "success": interval, "ms": took.get(method)})
    return points


def draw(table: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "leplanner"}
    with mpl.rc_context(style):
        figure = Figure(figsize=(8.4, 2.7), layout="constrained")
        panels = figure.subplots(1, len(TASKS), sharey=True)
        for axes, name in zip(panels, TASKS, strict=True):
            points = table["tasks"][name]
            by_method = {method: [p for p in points if p["method"] == method] for method in (SEARCH, OURS, FLOOR)}
            for method, marker in ((SEARCH, "o-"), (OURS, "D")):
                shown, color = by_method[method], METHODS.get(method).color
                value, ms = [100 * p["success"]["value"] for p in shown], [p["ms"] for p in shown]
                bars = [
                    [100 * abs(p["success"][end] - p["success"]["value"]) for p in shown] for end in ("low", "high")
                ]
                axes.errorbar(ms, value, yerr=bars, fmt=marker, ms=5, lw=1, elinewidth=1, color=color)
            highest_first = sorted(by_method[OURS], key=lambda p: -p["success"]["value"])
            for p, lift in zip(highest_first, (2, -9), strict=True):  # the two are close
                spot = {"xytext": (7, lift), "textcoords": "offset points", "fontsize": 8}
                axes.annotate(p["label"], (p["ms"], 100 * p["success"]["value"]), **spot)
            floor = max(100 * p["success"]["value"] for p in by_method[FLOOR])
            axes.axhline(floor, color="#888888", lw=0.8, ls=":")
            axes.set_xscale("log")
            axes.set_xlim(3, 3e4)
            axes.set_ylim(0, 105)
            axes.set_title(lp.get_task(name).title)
            axes.set_xlabel("ms per decision")
        panels[0].set_ylabel("success, %")
        panels[0].plot([], [], "D", color=METHODS.get(OURS).color, label="LePlanner")
        panels[0].plot(
            [],
            [],
            "o-",
            color=METHODS.get(SEARCH).color,
            label=f"CEM, m = 5, samples x rounds: {', '.join(map(str, BUDGETS))}",
        )
        panels[0].plot([], [], ":", color="#888888", label="random actions")
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        figure.patch.set_facecolor("white")
        figure.savefig(OUT, metadata={"Date": None})


def main() -> None:
    table = {
        "command": "python docs/make_success_figure.py",
        "trials": {str(search): trials for search, trials in TRIALS.items()},
        "threads": torch.get_num_threads(),
        "manifests": {name: load_manifest(shipped()[name] / "manifest.json").digest for name in TASKS},
        "tasks": {name: measure(name) for name in TASKS},
        "provenance": provenance(),
    }
    write_json(TABLE, table)
    draw(read_json(TABLE))
    print(json.dumps(table["tasks"], indent=1))


if __name__ == "__main__":
    main()
