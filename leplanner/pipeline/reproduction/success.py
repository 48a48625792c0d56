"""Success and cost beside every rival, and how much a draw of trials decides."""

from __future__ import annotations

import shutil

import numpy as np

from ...control.methods import METHODS
from ...data.formats import open_episodes
from ...evaluation.metrics import METRICS
from ...evaluation.runner import EvaluationConfig, TrialRow
from ...evaluation.statistics import Rate
from ...execution.executor import make_executor
from ..evaluating import Draw
from .part import Facts, Part, beside, drawing, percent, sheet
from .setting import OFFSET, SCOREBOARD, Reproduction

PUBLISHED_DRAW = 45


def _success(reproduction: Reproduction) -> Facts:
    evaluated = reproduction.scoreboard
    measured = {
        f"LePlanner, m = {row.replan}": percent(row.rates[reproduction.metric].value)
        for row in evaluated.summaries
        if row.method == "leplanner"
    }
    metrics = list(evaluated.summaries[0].rates)
    rows = [
        (
            METHODS.get(row.method).title,
            _pace(row.replan),
            str(row.trials),
            *(_with_interval(row.rates.get(name)) for name in metrics),
            "" if row.values.get("first_success") is None else f"{row.values['first_success']:g}",
        )
        for row in evaluated.summaries
    ]
    table = sheet(
        f"Success with 95% Wilson intervals, manifest {evaluated.manifest.digest[:12]}",
        ("method", "replans"),
        ("n", *(METRICS.get(name).title for name in metrics), "steps to success"),
        rows,
    )
    curves = {label: _curve(trials) for label, trials in _by_label(evaluated.rows).items()}
    return {
        "beside": beside("success", reproduction.task.name, measured),
        "sheets": [table],
        "drawings": [
            drawing("success", "Any-time success, and held", {"folder": "scoreboard"}),
            drawing("steps", "Success by number of steps", {"curves": curves, "budget": evaluated.manifest.budget}),
        ],
    }


def _with_interval(rate: Rate | None) -> str:
    return "" if rate is None else f"{percent(rate.value)} ({percent(rate.low)} to {percent(rate.high)})"


def _pace(replan: int) -> str:
    return f"m = {replan}" if replan else "every action"


def _by_label(rows: list[TrialRow]) -> dict[str, list[TrialRow]]:
    by_label: dict[str, list[TrialRow]] = {}
    for row in rows:
        method = METHODS.get(row.method)
        if method.role in ("ours", "search") or row.method == "replay":
            by_label.setdefault(f"{method.title}, {_pace(row.replan)}", []).append(row)
    return by_label


def _curve(rows: list[TrialRow]) -> list[float]:
    """Share of trials that had succeeded by each step."""
    first = np.array([row.outcome.get("first_success") or np.inf for row in rows], float)
    return [float((first <= step).mean()) for step in range(1, 2 * OFFSET + 1)]


def _wall_clock(reproduction: Reproduction) -> Facts:
    """Whole episodes, all methods in one process, one after another."""
    options = reproduction.options
    timed = tuple(name for name in SCOREBOARD if METHODS.get(name).role not in ("floor", "ceiling"))
    count = options.timed_trials + 1  # the first warms up
    config = EvaluationConfig(timed, reproduction.replans, search=options.search, trials=count)
    reproduction.train_rivals()
    shutil.rmtree(reproduction.out / "wall-clock", ignore_errors=True)  # times of one session only
    evaluated = reproduction.evaluate(
        reproduction.planner(), reproduction.draw, config, "wall-clock", shared=True, executor=make_executor("inline")
    )
    seconds: dict[tuple[str, int], list[float]] = {}
    for row in evaluated.rows:
        if row.trial > 0 and row.seconds is not None:
            seconds.setdefault((row.method, row.replan), []).append(row.seconds)
    median = {key: float(np.median(values)) for key, values in seconds.items()}
    measured = {
        f"CEM's seconds an episode over LePlanner's, m = {m}": f"{median['cem', m] / median['leplanner', m]:.0f}x"
        for m in reproduction.replans
    }
    rows = [(METHODS.get(name).title, _pace(m), f"{value:.2f}") for (name, m), value in median.items()]
    bars = [{"method": name, "replan": m, "seconds": value} for (name, m), value in median.items()]
    return {
        "beside": beside("wall-clock", reproduction.task.name, measured),
        "sheets": [sheet("Seconds an episode, median", ("method", "replans"), ("seconds",), rows)],
        "notes": [
            f"Episodes of {evaluated.manifest.budget} actions, {options.timed_trials} a method: encoding, planning, "
            f"environment and rendering. Searches: {options.search}. Each method's first episode, which includes what "
            "it prepares once, is left out.",
        ],
        "drawings": [drawing("wall-clock", "Seconds an episode, logarithmic", {"bars": bars})],
    }


def _draws(reproduction: Reproduction) -> Facts:
    """As published work evaluates: many small draws from all rows, of which one is usually reported."""
    options, by_pace = reproduction.options, dict[int, list[float]]()
    for seed in options.draws:
        draw = Draw(options.draw_trials, seed, "official", OFFSET, 2 * OFFSET)
        config = EvaluationConfig(("leplanner",), reproduction.replans, seed=seed, trials=options.draw_trials)
        evaluated = reproduction.evaluate(reproduction.planner(), draw, config, f"draws/{seed}")
        for row in evaluated.summaries:
            by_pace.setdefault(row.replan, []).append(row.rates[reproduction.metric].value)
    measured = {}
    for m, rates in by_pace.items():
        measured[f"LePlanner, m = {m}: mean of {len(rates)} draws"] = percent(float(np.mean(rates)))
        if PUBLISHED_DRAW in options.draws:
            published = rates[options.draws.index(PUBLISHED_DRAW)]
            measured[f"LePlanner, m = {m}: the draw that the paper reports first"] = percent(published, 0)
        measured[f"LePlanner, m = {m}: range"] = f"{100 * min(rates):.0f} to {100 * max(rates):.0f}%"
    rows = [(f"m = {m}", *(percent(rate, 0) for rate in rates)) for m, rates in by_pace.items()]
    title = f"Success, {METRICS.get(reproduction.metric).title}, by seed of the draw, {options.draw_trials} trials each"
    episodes = open_episodes(reproduction.test_data, reproduction.task, in_memory=False)
    of = (
        "of the test episodes" if episodes.for_trials_only else "of the dataset, most of whose episodes were trained on"
    )
    return {
        "beside": beside("draws", reproduction.task.name, measured),
        "sheets": [sheet(title, ("replans",), tuple(map(str, options.draws)), rows)],
        "notes": [f"Drawn from all rows {of}; pairs that are solved at the start are not left out."],
    }


SUCCESS = Part(
    "success",
    "Success beside every rival",
    "All methods on the same trials through the same world. Searches run the first of them.",
    _success,
)
WALL_CLOCK = Part(
    "wall-clock", "Seconds an episode", "How long an episode takes with each method, on this machine.", _wall_clock
)
DRAWS = Part(
    "draws",
    "How much the draw of trials decides",
    "The same planner on several draws of few trials: their mean and range, never the best alone.",
    _draws,
)
