"""Progress bars for long work."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console(width=None if sys.stdout.isatty() else 120)  # a file has no width; tables need some
errors = Console(stderr=True)


LOG_SECONDS = 30.0  # between two lines when the output is a file


@contextlib.contextmanager
def bar(title: str, unit: str) -> Iterator[Callable[..., None]]:
    """Yields `update(done, total, note="")`. The rate counts only what was done here, not what was resumed.

    A terminal gets a bar; a log file gets a line now and then.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=errors, refresh_per_second=4, disable=not errors.is_terminal) as progress:
        task = progress.add_task(title, total=None, note="")
        began = logged = time.monotonic()
        first: int | None = None

        def update(done: int, total: int, note: str = "") -> None:
            nonlocal first, began, logged
            now = time.monotonic()
            if first is None:
                first, began = done, now
            rate = f"{(done - first) / (now - began):.1f} {unit}/s" if now - began > 1 else ""
            note = f"{rate}  {note}".strip()
            progress.update(task, completed=done, total=total, note=note)
            if not errors.is_terminal and (now - logged > LOG_SECONDS or done == total):
                logged = now
                errors.print(f"{title}: {done}/{total} {unit}  {note}", highlight=False, soft_wrap=True)

        yield update
