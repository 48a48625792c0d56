"""Where words go: results to stdout, progress and errors to stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

# without markup: [sim] in a sentence is no style. A file has no width, and tables need some
console = Console(width=None if sys.stdout.isatty() else 120, markup=False, highlight=False)
errors = Console(stderr=True, markup=False, highlight=False)
LOG_SECONDS = 30.0  # between two lines when the output is a file


def note(text: str) -> None:
    """Said while working."""
    errors.print(text, style="dim", soft_wrap=True)


@contextlib.contextmanager
def bar(title: str, unit: str) -> Iterator[Callable[..., None]]:
    """Yields `update(done, total, note="")`. The rate counts only what was done here, not what was resumed.

    A terminal gets a bar; a log file gets a line now and then.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=errors, refresh_per_second=4, disable=not errors.is_terminal) as progress:
        task = progress.add_task(title, total=None, note="")
        began = logged = time.monotonic()
        first = last = -1

        def update(done: int, total: int, note: str = "") -> None:
            nonlocal first, last, began, logged
            now = time.monotonic()
            if first < 0 or done < last:  # a stage of two parts counts again
                first, began = done, now
            last = done
            rate = f"{(done - first) / (now - began):.1f} {unit}/s" if now - began > 1 else ""
            note = f"{rate}  {note}".strip()
            progress.update(task, completed=done, total=total, note=note)
            if not errors.is_terminal and (now - logged > LOG_SECONDS or done == total):
                logged = now
                errors.print(f"{title}: {done}/{total} {unit}  {note}", soft_wrap=True)

        yield update
