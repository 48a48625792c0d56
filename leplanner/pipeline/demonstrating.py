"""The demonstration: the shipped bundles beside CEM, a few trials of each task, and a page of their videos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..control.methods import DEFAULT, SearchBudget
from ..evaluation.manifest import load_manifest
from ..evaluation.runner import EvaluationConfig
from ..report.page import check_installed, write_page
from ..tasks import Task
from ..zoo import shipped
from .evaluating import MANIFEST, Draw, Evaluated, evaluate_folder
from .stage import Show, silent


@dataclass(frozen=True)
class Demonstration:
    page: Path
    tasks: dict[str, Evaluated]


def demonstrate(
    tasks: Sequence[Task],
    trials: int,
    search: SearchBudget,
    out: Path,
    show: Show = silent,
    say: Callable[[str], None] = lambda text: None,
) -> Demonstration:
    """The first trials that each bundle was measured on. Resumable: what OUT holds of these settings is kept."""
    missing = [task.name for task in tasks if task.name not in shipped()]
    if missing:
        raise ValueError(f"No bundle is shipped for {', '.join(missing)}; there are {', '.join(shipped()) or 'none'}.")
    if trials < 1:
        raise ValueError(f"--trials must be at least 1; got {trials}.")
    check_installed()
    config = EvaluationConfig((DEFAULT, "cem"), (1,), search=search, trials=trials, videos=trials)
    evaluations: dict[str, Evaluated] = {}
    for task in tasks:
        bundle, folder = shipped()[task.name], out / task.name
        known = load_manifest(bundle / MANIFEST)
        draw = Draw(trials, known.seed, known.protocol, known.offset, known.budget)
        no_data = folder / "no-data"  # the bundle brings its trials
        evaluations[task.name] = evaluate_folder(
            task, bundle, no_data, draw, config, folder, show=show, title=task.title, say=say
        )
    page = write_page([out / name for name in evaluations], out / "report.html", "leplanner: a demonstration")
    return Demonstration(page, evaluations)
