"""`leplanner demo`: the shipped bundles at work on all tasks, beside CEM, as a table and a page of videos."""

from __future__ import annotations

import os
import sys
import webbrowser
from dataclasses import dataclass, field

from ..control.methods import SearchBudget
from ..pipeline.demonstrating import demonstrate
from ..pipeline.paths import DEMO
from ..report.terminal import demo_table
from ..tasks import get_task
from .options import Comma, MaybePath, Out, Output, Switch
from .progress import bar, console, errors, note


@dataclass(frozen=True)
class Demo:
    """Watch the shipped planners reach goal images on all four tasks, beside CEM with a small budget: a few minutes.

    Writes a page of videos, and opens it in a browser where there is a display; resumable.

    Example: leplanner demo
    """

    tasks: Comma = "tworoom,pusht,reacher,cube"
    """names, separated by commas"""
    trials: int = 4
    """the first so many of the trials that each bundle was measured on"""
    samples: int = 100
    """CEM's candidates a round; published comparisons use 300"""
    rounds: int = 10
    """CEM's rounds; published comparisons use 30"""
    out: MaybePath = None
    """folder for rows, videos and the page, report.html (default: runs/demo)"""
    open: Switch = True
    """do not open the page in a browser"""
    output: Out = field(default_factory=Output)

    def run(self) -> int:
        tasks, search = [get_task(name) for name in self.tasks.split(",")], SearchBudget(self.samples, self.rounds)
        done = demonstrate(tasks, self.trials, search, self.out or DEMO, bar, note)
        raised = [row for evaluated in done.tasks.values() for row in evaluated.raised]
        for row in raised:
            errors.print(f"trial {row.trial} of {row.method} raised: {row.error}", style="red")
        title = f"the first {self.trials} trials of each task, a new plan after every block"
        table = demo_table({name: evaluated.summaries for name, evaluated in done.tasks.items()}, title, str(search))
        reports = {name: evaluated.report for name, evaluated in done.tasks.items()}
        self.output.show({"report": done.page, "tasks": reports}, table, f"report: {done.page}")
        if self.open and not self.output.json and has_display():
            webbrowser.open(done.page.resolve().as_uri())
        return 1 if raised else 0


def has_display() -> bool:
    """Whether somebody sits in front of this terminal: not in CI, not over ssh to a machine without a screen."""
    if not console.is_terminal or "CI" in os.environ:
        return False
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
