"""`leplanner demo`: the shipped bundles at work on all tasks, beside CEM, as a table and a page of films."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from rich.table import Table

from ..artifacts import write_json
from ..evaluation.manifest import load_manifest, save_manifest
from ..evaluation.properties import DEFAULT
from ..evaluation.runner import EvaluationConfig
from ..evaluation.runner import evaluate as run_evaluation
from ..evaluation.summary import MethodSummary, plain, summarise
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
        out: folder for rows, films and the page (default: a temporary one).
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
    config = EvaluationConfig((DEFAULT, "cem"), (1,), samples=samples, rounds=rounds, trials=trials, films=trials)
    found: dict[str, list[MethodSummary]] = {}
    raised = 0
    for name in names:
        task, bundle, folder = get_task(name), shipped()[name], base / name
        manifest = load_manifest(bundle / "manifest.json")
        save_manifest(manifest, folder / "manifest.json")
        with bar(f"{task.title}", "trials") as update:
            update(0, 2 * trials, "starting the simulators")
            rows = run_evaluation(
                bundle,
                folder / "manifest.json",
                config,
                folder / "rows.jsonl",
                on_row=lambda row, done, total, update=update: update(done, total),
            )
        for row in rows:
            if row.error is not None:
                errors.print(f"trial {row.trial} of {row.method} raised: {row.error}", style="red", markup=False)
                raised += 1
        found[name] = summarise(rows, DEFAULT)
        summary = plain(found[name], name, DEFAULT, manifest.digest, config.settings, rows)
        write_json(folder / "summary.json", summary)
    page = write_page([base / name for name in found], base / "report.html", "leplanner: a demonstration")
    if json_output:
        reports = {name: json.loads((base / name / "summary.json").read_text()) for name in found}
        print(json.dumps({"report": str(page), "tasks": reports}))
    else:
        console.print(_table(found, trials, f"CEM {samples} x {rounds}"))
        console.print(f"films: {page}", soft_wrap=True)
    return 1 if raised else 0


def _table(found: dict[str, list[MethodSummary]], trials: int, search: str) -> Table:
    table = Table(title=f"{trials} trials a task, goals 25 actions ahead, a new plan every 5 actions")
    for column in ("task", "method", "reached", "and stayed", "imagined steps a plan", "plan, ms"):
        table.add_column(column, justify="left" if column in ("task", "method") else "right")
    for name, summaries in found.items():
        for s in summaries:
            method = "LePlanner" if s.method == DEFAULT else search
            reached, stayed = (f"{rate.successes}/{rate.trials}" for rate in (s.any_time, s.held))
            table.add_row(get_task(name).title, method, reached, stayed, f"{s.rows_a_plan:,.5g}", f"{s.plan_ms:.0f}")
        table.add_section()
    return table
