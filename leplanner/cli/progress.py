"""Progress bars for long work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console()
errors = Console(stderr=True)


@contextlib.contextmanager
def bar(title: str, unit: str) -> Iterator[Callable[..., None]]:
    """Yields `update(done, total, note="")`. The rate counts only what was done here, not what was resumed."""
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
    with Progress(*columns, console=errors, refresh_per_second=4) as progress:
        task = progress.add_task(title, total=None, note="")
        started: list[float] = []

        def update(done: int, total: int, note: str = "") -> None:
            if not started:
                started.extend([time.monotonic(), done])
            seconds = time.monotonic() - started[0]
            rate = f"{(done - started[1]) / seconds:.0f} {unit}/s" if seconds > 1 else ""
            progress.update(task, completed=done, total=total, note=f"{rate}  {note}".strip())

        yield update
