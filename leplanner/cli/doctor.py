"""`leplanner doctor`: what is installed, what works, and what to do about what does not."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated

from rich.table import Table
from rich.text import Text
from tyro.conf import arg

from ..bench.installation import cures, examine
from .options import Out, Output
from .progress import note


@dataclass(frozen=True)
class Doctor:
    """Check the installation: versions, device, rendering, and each task created, reset, stepped and rendered.

    Exits with 1 and prints the cure when something fails.

    Example: leplanner doctor
    """

    tasks: Annotated[tuple[str, ...], arg(help_behavior_hint="")] = ()
    """which tasks to try, by name or as package.module:TASK (default: all that are registered)"""
    output: Out = field(default_factory=Output)

    def run(self) -> int:
        findings = examine(self.tasks, note)
        table = Table("check", "", "result")
        for finding in findings:
            mark = Text("ok", "green") if finding.ok else Text("fails", "red")
            table.add_row(finding.check, mark, finding.detail)
        ok = all(finding.ok for finding in findings)
        # below the table, whole: a line that is wrapped inside a cell cannot be copied
        advice = [f"{', '.join(checks)}:\n  {cure}" for cure, checks in cures(findings).items()]
        self.output.show({"ok": ok, "findings": [asdict(finding) for finding in findings]}, table, *advice)
        return 0 if ok else 1
