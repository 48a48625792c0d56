"""Files that are whole or not there: atomic writes, JSON, arrays, lines."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


@contextlib.contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A temporary path beside `target`; on leaving without error it is synced to disk and takes the target's place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(target: Path, value: Any, readable: bool = True) -> None:
    layout: dict[str, Any] = {"indent": 2} if readable else {"separators": (",", ":")}
    with atomic_path(target) as temporary:
        temporary.write_text(json.dumps(value, sort_keys=True, default=plain, **layout) + "\n")


def write_arrays(target: Path, arrays: dict[str, Any]) -> None:
    with atomic_path(target) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON ({error}). Restore the file or make the artifact again.") from error


def read_lines(path: Path) -> list[Any]:
    """A JSONL file; no file is no lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def plain(value: Any) -> Any:
    """What JSON does not know, as what it does."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")
