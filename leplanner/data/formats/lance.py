"""Lance datasets; stable-worldmodel's reader is loaded when one is opened."""

from __future__ import annotations

from pathlib import Path

from ...tasks import Task
from ..episodes import Episodes
from .base import Format


def is_lance(path: Path) -> bool:
    return path.is_dir() and (path.suffix == ".lance" or any(path.glob("*.lance")) or (path / "_versions").exists())


def _open(path: Path, task: Task | None, in_memory: bool | None) -> Episodes:
    from .swm_lance import open_lance

    return open_lance(path, task)


LANCE = Format("lance", is_lance, _open)
