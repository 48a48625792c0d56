"""One process at a time in a folder that a long job writes to. The lock ends with the process, however that ends."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAME = ".lock"


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the folder, or say who does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / NAME).open("a+") as file:
        if not _acquire(file):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise ValueError(
                f"Another leplanner process (pid {holder}) is writing to {folder}. Wait for it, stop "
                "it, or choose another --out."
            )
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            _release(file)


def _acquire(file: Any) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _release(file: Any) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
