"""Benchmarks and a check of the installation. They return reports as plain data; the command line prints them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

Note = Callable[[str], None]  # told what is measured next


def no_note(text: str) -> None:
    """For callers that do not look."""


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    """Of one call, after a first one that warms up."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))
