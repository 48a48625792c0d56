"""What a dataset format is: how to tell one, and how to open it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...core.registry import Registry
from ...tasks import Task
from ..episodes import Episodes


@dataclass(frozen=True)
class Format:
    name: str
    detects: Callable[[Path], bool]
    open: Callable[[Path, Task | None, bool | None], Episodes]  # (path, task, in_memory)


FORMATS: Registry[Format] = Registry("dataset format", "leplanner.formats")
