"""`leplanner doctor`: what is installed, what works, and what to do about what does not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from rich.markup import escape
from rich.table import Table
from tyro.conf import arg

from ..bench import no_note
from ..bench.installation import examine
from .options import Json
from .progress import console, errors


def doctor(tasks: Annotated[tuple[str, ...], arg(help_behavior_hint="")] = (), json_output: Json = False) -> int:
    """Check the installation: versions, device, rendering, and each task created, reset, stepped and rendered.

    Exits with 1 and prints the cure when something fails.

    Example: leplanner doctor

    Args:
        tasks: which tasks to try, by name or as package.module:TASK (default: all that are registered).
        json_output: print JSON instead of a table.
    """
    findings = examine(tasks, no_note if json_output else lambda text: errors.print(f"{text} ...", highlight=False))
    if json_output:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        table = Table()
        for title in ("check", "", "result", "cure"):
            table.add_column(title)
        for finding in findings:
            mark = "[green]ok[/green]" if finding.ok else "[red]fails[/red]"
            table.add_row(escape(finding.check), mark, escape(finding.detail), escape(finding.cure))
        console.print(table)
    return 0 if all(finding.ok for finding in findings) else 1
