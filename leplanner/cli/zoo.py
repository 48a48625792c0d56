"""`leplanner zoo`: the bundles that come with the package."""

from __future__ import annotations

import json

from rich.table import Table

from ..artifacts import read_json
from ..control.methods import METHODS, methods_of
from ..report.tables import show_rate
from ..tasks import get_task
from ..zoo import shipped
from .options import Json
from .progress import console


def zoo(json_output: Json = False) -> None:
    """List the shipped bundles and what they were measured to do. Each has a model card, README.md, in its folder.

    Example: leplanner zoo

    Args:
        json_output: print JSON instead of a table.
    """
    evaluations = {name: read_json(folder / "evaluation.json") for name, folder in shipped().items()}
    if json_output:
        print(json.dumps({name: {"folder": str(shipped()[name]), **value} for name, value in evaluations.items()}))
        return
    table = Table(title="success on nontrivial held-out trials, %, with 95 % intervals")
    for column in ("load by", "method", "replans", "trials", "any time", "held 5", "MB", "manifest"):
        table.add_column(column, justify="left" if column in ("load by", "method") else "right")
    for name, evaluation in evaluations.items():
        size = sum(path.stat().st_size for path in shipped()[name].iterdir()) / 1e6
        for row in evaluation["methods"]:
            if row["method"] not in methods_of("ours"):
                continue
            rates = (show_rate(row["rates"][metric]) for metric in ("any", "held"))
            blocks = f"{row['replan']} block{'s' if row['replan'] > 1 else ''}"
            title, trials = METHODS.get(row["method"]).title, str(row["trials"])
            table.add_row(
                f'lp.load("{name}")', title, blocks, trials, *rates, f"{size:.1f}", evaluation["manifest"][:12]
            )
    console.print(table)
    for name, folder in shipped().items():
        console.print(f"{get_task(name).title}: {folder / 'README.md'}", soft_wrap=True)
