"""The paper's central claim in closed loop, and what each part of the objective contributes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...evaluation.manifest import save_manifest
from ...evaluation.metrics import METRICS
from ...evaluation.runner import EvaluationConfig
from ...evaluation.statistics import paired_over_seeds, rate_over_seeds
from ...planner.planner import load_bundle
from ...report.findings import show_p
from ..ablations import REFERENCE, VARIANTS
from ..evaluating import MANIFEST
from .paper import ablated, printed
from .part import Facts, Part, beside, drawing, percent, sheet
from .setting import FIXED, Reproduction

MAIN = (FIXED, REFERENCE)
OTHERS = tuple(name for name in VARIANTS if name not in MAIN)
BUDGETS = (50, 100, 200)  # environment actions


def _claim(reproduction: Reproduction) -> Facts:
    options, task, metric = reproduction.options, reproduction.task, reproduction.metric
    variants = reproduction.variants(MAIN, options.seeds) | reproduction.variants(OTHERS, options.seeds[:1])
    measured = {
        f"{row.method}, m = {row.replan or 'every action'}": percent(row.rates[metric].value)
        for row in reproduction.scoreboard.summaries
        if row.method in ("random", "cem")
    }
    rows = []
    reference = variants[REFERENCE]
    for name, results in variants.items():
        cells = [name, str(len(results))]
        for m in reproduction.replans:
            rate = rate_over_seeds(_outcomes(results, metric, m))
            measured[f"{name}, m = {m}"] = percent(rate.value)
            cells.append(f"{percent(rate.value)} ({percent(rate.low)} to {percent(rate.high)})")
        for m in reproduction.replans:
            cells.append("" if name == REFERENCE else _difference(results, reference, metric, m))
        off = float(np.mean([result["imagined"]["off_support"] for result in results])) if _supported(results) else None
        if off is not None:
            measured[f"{name}, off support"] = percent(off)
        rows.append([*cells, "" if off is None else percent(off)])
    paces = [f"m = {m}" for m in reproduction.replans]
    table = sheet(
        f"Success, {METRICS.get(metric).title}, with 95% intervals over trials and seeds; paired differences to "
        f"{REFERENCE} in points, of these training seeds, with intervals and p over trials, not corrected for multiple "
        "comparisons",
        ("objective",),
        ("seeds", *paces, *(f"difference, {pace}" for pace in paces), "off support"),
        rows,
    )
    known = {one.what for one in printed("claim", task.name)}  # all others are in the table
    shown = {what: value for what, value in measured.items() if what in known}
    bars = {"rows": _bars(variants, metric, reproduction.replans)}
    return {
        "beside": beside("claim", task.name, shown),
        "sheets": [table],
        "drawings": [drawing("objectives", "Success by objective; gray: single training seeds", bars)],
    }


def _outcomes(results: list[dict[str, Any]], metric: str, m: int) -> np.ndarray:
    return np.array([result["outcomes"][metric][str(m)] for result in results])


def _supported(results: list[dict[str, Any]]) -> bool:
    return all(result["imagined"]["off_support"] is not None for result in results)


def _difference(results: list[dict[str, Any]], reference: list[dict[str, Any]], metric: str, m: int) -> str:
    """Over the seeds that both were trained with."""
    shared = reference[: len(results)]
    paired = paired_over_seeds(_outcomes(results, metric, m), _outcomes(shared, metric, m))
    points = [100 * value for value in (paired.difference, paired.low, paired.high)]
    return "{:+.1f} ({:+.1f} to {:+.1f}), ".format(*points) + show_p(paired.p_value)


def _bars(variants: dict[str, list[dict[str, Any]]], metric: str, replans: tuple[int, ...]) -> list[dict[str, Any]]:
    bars = []
    for name, results in variants.items():
        rates = {str(m): rate_over_seeds(_outcomes(results, metric, m)) for m in replans}
        seeds = {str(m): _outcomes(results, metric, m).mean(axis=1).tolist() for m in replans}
        shown = {m: {"value": rate.value, "low": rate.low, "high": rate.high} for m, rate in rates.items()}
        bars.append({"name": name, "success": shown, "by_seed": seeds})
    return bars


def _symptom(reproduction: Reproduction) -> Facts:
    """Whether a larger budget helps the objective that the paper started from."""
    bundle, options = reproduction.planner(FIXED), reproduction.options
    results = reproduction.variants([FIXED], options.seeds[:1])[FIXED]
    measured = {
        "mean absolute value of the plan's blocks": ", ".join(
            f"{value:.3f}" for value in results[0]["imagined"]["magnitudes"]
        )
    }
    for budget in BUDGETS:
        folder, draw = f"symptom/budget-{budget}", replace(reproduction.draw, budget=budget)
        save_manifest(replace(reproduction.ablation.manifest, budget=budget), reproduction.out / folder / MANIFEST)
        config = EvaluationConfig(("leplanner",), (1,), trials=options.trials)
        evaluated = reproduction.evaluate(bundle, draw, config, folder)
        measured[f"budget {budget}, m = 1"] = percent(evaluated.summaries[0].rates[reproduction.metric].value)
    name = load_bundle(bundle).digest[:12]
    return {
        "beside": beside("symptom", reproduction.task.name, measured),
        "notes": [
            f"Bundle {name}, trained with the fixed-terminal objective and path loss; the trials of all tables, with "
            "other budgets."
        ],
    }


def _ablated(reproduction: Reproduction) -> bool:
    return ablated(reproduction.task.name)


CLAIM = Part(
    "claim",
    "Fixed-terminal against arrival-and-hold",
    "The same planner trained with each objective through the same world, on the same trials. The two main "
    "objectives are trained with several seeds, the others with the first.",
    _claim,
    _ablated,
)
SYMPTOM = Part(
    "symptom",
    "Does a larger budget help the fixed-terminal objective?",
    "Success of the fixed-terminal planner, replanning after every block, with more environment actions.",
    _symptom,
    _ablated,
)
