"""Runs jobs one after another in this process: for jobs that are in a worker process themselves, and for debugging."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class Inline:
    concurrency = 1

    def __init__(self, workers: int | None = None):
        if workers not in (None, 1):
            raise ValueError(f"This process alone runs one job at a time; {workers} workers were requested.")

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
        return map(work, jobs)
