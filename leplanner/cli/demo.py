"""`leplanner demo`: the shipped bundles at work on all tasks, beside CEM, as a table and a page of videos."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from rich.table import Table

from ..control.methods import DEFAULT, METHODS, SearchBudget
from ..evaluation.manifest import load_manifest, save_manifest
from ..evaluation.runner import EvaluationConfig
from ..pipeline.evaluating import Draw, Evaluated, evaluate_folder
from ..report.page import check_installed, write_page
from ..tasks import get_task
from ..zoo import shipped
from .options import Comma, Json, MaybePath
from .progress import bar, console, errors


def demo(
    tasks: Comma = "tworoom,pusht,reacher,cube",
    trials: int = 4,
    samples: int = 100,
    rounds: int = 10,
    out: MaybePath = None,
    json_output: Json = False,
) -> int:
    """Watch the shipped planners reach goal images on all four tasks, beside CEM with a small budget: a few minutes.

    Example: leplanner demo

    Args:
        tasks: names, separated by commas.
        trials: the first so many of the trials that each bundle was measured on.
        samples: CEM's candidates a round; published comparisons use 300.
        rounds: CEM's rounds; published comparisons use 30.
        out: folder for rows, videos and the page (default: a temporary one).
        json_output: print JSON instead of a table.
    """
    names = tasks.split(",")
    missing = [name for name in names if get_task(name).name not in shipped()]
    if missing:
        raise ValueError(f"No bundle is shipped for {', '.join(missing)}; there are {', '.join(shipped()) or 'none'}.")
    if trials < 1:
        raise ValueError(f"--trials must be at least 1; got {trials}.")
    check_installed()
    base = out or Path(tempfile.mkdtemp(prefix="leplanner-demo-"))
    search = SearchBudget(samples, rounds)
    config = EvaluationConfig((DEFAULT, "cem"), (1,), search=search, trials=trials, videos=trials)
    evaluations: dict[str, Evaluated] = {}
    for name in names:
        task, bundle, folder = get_task(name), shipped()[name], base / name
        manifest = load_manifest(bundle / "manifest.json")
        save_manifest(manifest, folder / "manifest.json")
        draw = Draw(trials, manifest.seed, manifest.protocol, manifest.offset, manifest.budget)
        evaluations[name] = evaluate_folder(
            task, bundle, folder / "no-data", draw, config, folder, show=bar, title=task.title
        )
        for row in evaluations[name].raised:
            errors.print(f"trial {row.trial} of {row.method} raised: {row.error}", style="red", markup=False)
    page = write_page([base / name for name in names], base / "report.html", "leplanner: a demonstration")
    if json_output:
        reports = {name: evaluated.report for name, evaluated in evaluations.items()}
        print(json.dumps({"report": str(page), "tasks": reports}))
    else:
        console.print(_table(evaluations, trials, str(search)))
        console.print(f"videos: {page}", soft_wrap=True)
    return 1 if any(evaluated.raised for evaluated in evaluations.values()) else 0


def _table(evaluations: dict[str, Evaluated], trials: int, search: str) -> Table:
    offsets = ", ".join(dict.fromkeys(str(e.manifest.offset) for e in evaluations.values()))
    table = Table(title=f"{trials} trials a task, goals {offsets} actions ahead, a new plan after every block")
    for column in ("task", "method", "reached", "and held", "transitions per plan", "plan, ms"):
        table.add_column(column, justify="left" if column in ("task", "method") else "right")
    for name, evaluated in evaluations.items():
        for s in evaluated.summaries:
            title = "LePlanner" if s.method == DEFAULT else METHODS.get(s.method).title_with(search)
            rates = (s.rates[metric] for metric in ("any", "held"))
            reached, held = (f"{rate.successes}/{rate.trials}" for rate in rates)
            cost = (f"{s.transitions_per_plan:,.5g}", f"{s.plan_ms:.0f}")
            table.add_row(get_task(name).title, title, reached, held, *cost)
        table.add_section()
    return table
