"""A stage turns artifacts into an artifact. A run is a list of stages; each skips what is there
and resumes what was begun."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts import read_json, write_json

Update = Callable[..., None]  # (done, total, note="")
Show = Callable[[str, str], AbstractContextManager[Update]]  # (title, unit) -> where progress goes


@contextlib.contextmanager
def silent(title: str, unit: str) -> Iterator[Update]:
    """Shows nothing."""
    yield lambda done, total, note="": None


@dataclass(frozen=True)
class Stage:
    name: str
    inputs: tuple[Path, ...]
    output: Path
    run: Callable[[], Any]


def run_stages(
    stages: Sequence[Stage],
    minutes: Path,  # where the time of each stage is kept, over all calls
    on_stage: Callable[[int, Stage], None] = lambda number, stage: None,
    on_result: Callable[[Any], None] = lambda result: None,
) -> dict[str, float]:
    """Run all in order. A stage's inputs must exist: what an earlier stage did not make is said by name."""
    spent: dict[str, float] = read_json(minutes) if minutes.exists() else {}
    for number, stage in enumerate(stages, start=1):
        on_stage(number, stage)
        missing = [str(path) for path in stage.inputs if not path.exists()]
        if missing:
            raise ValueError(f"Stage {stage.name!r} needs {', '.join(missing)}, which no earlier stage made.")
        began = time.monotonic()
        try:
            on_result(stage.run())
        finally:
            spent[stage.name] = spent.get(stage.name, 0.0) + (time.monotonic() - began) / 60
            write_json(minutes, spent)
    return {stage.name: spent[stage.name] for stage in stages}
