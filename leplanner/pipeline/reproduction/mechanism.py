"""How plans behave: when they arrive, where the closed loop settles, what refinements gain."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...planner.objectives import arrival_and_hold, fixed_terminal
from ..ablations import REFERENCE
from .paper import ARRIVES, DEFERS, ablated
from .part import Facts, Part, beside, drawing, percent, sheet
from .setting import FIXED, Reproduction

NO_HOLD = "hold 0"
REPLANS = 10  # of the curves from one start
TITLES = {FIXED: "fixed-terminal with path loss", REFERENCE: "arrival-and-hold"}

Result = dict[str, Any]


def _first(reproduction: Reproduction, *names: str) -> dict[str, Result]:
    """Results of the first seed's planners."""
    found = reproduction.variants(names, reproduction.options.seeds[:1])
    return {name: results[0] for name, results in found.items()}


def _arrival(reproduction: Reproduction) -> Facts:
    names = (FIXED, REFERENCE, *([NO_HOLD] if ablated(reproduction.task.name) else []))
    profiles = {name: result["imagined"] for name, result in _first(reproduction, *names).items()}
    measured = {
        f"{FIXED}: minimum of every curve": _minima(profiles[FIXED]),
        f"{REFERENCE}: minimum of the curve of q": _minima(profiles[REFERENCE]),
    }
    for name in (NO_HOLD, REFERENCE):
        if name in profiles:
            measured[f"{name}: final distance over the minimum"] = _rise(profiles[name])
    return {
        "beside": beside("arrival", reproduction.task.name, measured),
        "sheets": [_indifference(profiles)],
        "drawings": [
            drawing("arrival", f"When plans arrive: {TITLES[name]}", profiles[name] | {"name": TITLES[name]})
            for name in (FIXED, REFERENCE)
        ],
    }


def _curves(imagined: Result) -> dict[int, list[float]]:
    return {q: row for q, row in enumerate(imagined["profile"], start=1) if row is not None}


def _minima(imagined: Result) -> str:
    lowest = {q: 1 + row.index(min(row)) for q, row in _curves(imagined).items()}
    return f"blocks {', '.join(map(str, lowest.values()))} for q = {', '.join(map(str, lowest))}"


def _rise(imagined: Result) -> str:
    """Of goals that leave room for it: those that are due before the plan's end."""
    ratios = [row[-1] / min(row) for q, row in _curves(imagined).items() if q < len(row)]
    return f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else "no such goals"


def _indifference(profiles: dict[str, Result]) -> dict[str, Any]:
    """Two plans for a goal one block away, scored by both objectives: the paper's, and those planned here."""
    plans = {"paper, defers arrival": DEFERS, "paper, arrives and holds": ARRIVES}
    plans |= {f"here, {TITLES[name]}": tuple(_curves(profiles[name]).get(1, ())) for name in (FIXED, REFERENCE)}
    rows = []
    for name, profile in plans.items():
        if profile:
            distances, due = torch.tensor([profile]), torch.ones(1, dtype=torch.long)
            shown = ", ".join(f"{value:.3f}" for value in profile)
            losses = fixed_terminal(distances).item(), arrival_and_hold(distances, due).item()
            rows.append((name, shown, *(f"{loss:.4f}" for loss in losses)))
    title = "Plans for a goal one block away: distance after each block, and what each objective makes of it"
    return sheet(title, ("plan", "distances"), ("terminal distance", "arrival-and-hold"), rows)


def _loop(reproduction: Reproduction) -> Facts:
    results = _first(reproduction, FIXED, REFERENCE)
    fits = {name: result["executed"]["fit"] for name, result in results.items()}
    measured, notes = {}, []
    for name, fit in fits.items():
        measured |= {f"{name}: c": f"{fit['c']:.3f}", f"{name}: b": f"{fit['b']:.3f}"}
        measured[f"{name}: D*"] = "does not converge" if fit["fixed_point"] is None else f"{fit['fixed_point']:.3f}"
        if fit["fixed_point"] is not None and fit["low"] is not None:
            notes.append(
                f"{TITLES[name]}: D* {fit['fixed_point']:.4f}, 95% bootstrap interval {fit['low']:.4f} to "
                f"{fit['high']:.4f}; {fit['pairs']} pairs of replans in {fit['trials']} trials."
            )
    start = float(np.mean([row[0] for row in results[REFERENCE]["executed"]["distances"]]))
    curves = {
        TITLES[name]: {"distances": settling(start, fit["c"], fit["b"]), "settles": fit["fixed_point"]}
        for name, fit in fits.items()
    }
    return {
        "beside": beside("loop", reproduction.task.name, measured),
        "notes": [*notes, "Distances are this world's own; they compare with the paper's only as ratios."],
        "drawings": [drawing("settling", "The fitted closed loops from the mean first distance", {"curves": curves})],
    }


def settling(start: float, c: float, b: float) -> list[float]:
    """Distances at replans, by the fit."""
    distances = [start]
    for _ in range(REPLANS):
        distances.append(c * distances[-1] + b)
    return distances


def _refinement(reproduction: Reproduction) -> Facts:
    """The paper's depth table is of the objective that it started from."""
    results = _first(reproduction, FIXED, REFERENCE)
    ours, before = results[REFERENCE], results[FIXED]["imagined"]
    depth, trained = before["depth"], before["trained_depth"]
    data = ours["imagined"]["beside_the_data"]
    last = depth[trained]
    lowest = min(depth, key=lambda row: row["terminal"])
    measured = {
        "terminal distance of k = 0 over that of k = 3": f"{depth[0]['terminal'] / last['terminal']:.1f}",
        "arrival distance over terminal distance, k = 3": f"{last['arrival'] / last['terminal']:.1f}",
        "k with the lowest terminal distance, up to 10": str(lowest["k"]),
        "step sizes": _sizes(results[FIXED]),
        "step sizes, arrival-hold": _sizes(ours),
        "terminal distance, k = 0 to 3": ", ".join(f"{row['terminal']:.4f}" for row in depth[: trained + 1]),
        "arrival distance, k = 0 to 3": ", ".join(f"{row['arrival']:.4f}" for row in depth[: trained + 1]),
        "first block beside the data's: mean cosine": f"{data['cosine_mean']:.3f}",
        "first block beside the data's: median cosine": f"{data['cosine_median']:.3f}",
        "first block beside the data's: mean absolute difference": f"{data['difference']:.3f}",
        "mean absolute value of the data's block": f"{data['magnitude']:.3f}",
        "distance where the plan ends": f"{data['plan_ends']:.4f}",
        "distance after the data's block": f"{data['data_block_ends']:.4f}",
        "distance at the start": f"{ours['imagined']['start']:.4f}",
        "plan ends nearer than the data's block does": percent(data["plan_nearer"]),
    }
    losses = ours["losses"]
    if losses.get("loss") and "support" in losses:
        weighted = reproduction.preset.training.support_weight * losses["support"]
        measured["share of the support penalty in the loss"] = percent(weighted / losses["loss"])
    return {
        "beside": beside("refinement", reproduction.task.name, measured),
        "sheets": [_depth(TITLES[name], result["imagined"]["depth"]) for name, result in results.items()],
        "drawings": [
            drawing("depth", f"Refinements, {TITLES[name]}", result["imagined"] | {"name": TITLES[name]})
            for name, result in results.items()
        ],
    }


def _sizes(result: Result) -> str:
    return ", ".join(f"{size:.3f}" for size in result["step_sizes"])


def _depth(name: str, depth: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [
        (
            str(row["k"]),
            f"{row['terminal']:.5f}",
            f"{row['arrival']:.5f}",
            "" if row["gain"] is None else f"{row['gain']:+.5f}",
            "" if row["change"] is None else f"{row['change']:.5f}",
        )
        for row in depth
    ]
    return sheet(f"{name}: distances after k refinements", ("k",), ("terminal", "arrival", "gain", "plan change"), rows)


ARRIVAL = Part(
    "arrival",
    "When plans arrive",
    "Imagined distance to the goal after each block of a plan, by how many blocks q away the goal is.",
    _arrival,
)
LOOP = Part(
    "loop",
    "Where the closed loop settles",
    "D' = c D + b, fitted over consecutive replans, settles at D* = b / (1 - c) however long it runs.",
    _loop,
)
REFINEMENT = Part(
    "refinement",
    "What refinements gain, and whether it is cloning",
    "Held-out problems in imagination. Depth, ratios and step sizes are of the fixed-terminal planner, since the "
    "paper's table says that its objective never asked for arrival; the comparison with the data's actions is of the "
    "arrival-and-hold planner.",
    _refinement,
)
