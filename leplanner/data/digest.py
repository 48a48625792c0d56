"""The identity of a dataset: every frame, every number, every episode id."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..artifacts import write_json
from .episodes import Array, Frames

CHUNK_BYTES = 64 * 2**20
REMEMBER_BYTES = 1_000_000_000  # hashing larger files takes longer than a glance


def content_digest(frames: Frames, columns: Mapping[str, Array | None]) -> str:
    digest = hashlib.sha256(str(tuple(frames.shape)).encode())
    rows = max(1, CHUNK_BYTES // max(1, int(np.prod(frames.shape[1:]))))
    for start in range(0, frames.shape[0], rows):
        digest.update(np.ascontiguousarray(frames[start : start + rows]).data)
    for name, column in columns.items():
        if column is not None:
            digest.update(f"{name} {column.dtype} {column.shape}".encode())
            digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def files_digest(folder: Path) -> str:
    """Of all files below a folder, by name."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def remembered_digest(path: Path, compute: Callable[[], str]) -> str:
    """The digest of a large file is computed once, and again when its size, time or place on the disk has changed."""
    stat = path.stat()
    if stat.st_size < REMEMBER_BYTES:
        return compute()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "leplanner" / "digests"
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    identity = [stat.st_size, stat.st_mtime_ns, stat.st_ino]
    entry = cache / f"{name}.json"
    try:
        known = json.loads(entry.read_text())
        if known["identity"] == identity:
            return known["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # none yet, or not ours: computed anew
    digest = compute()
    try:
        write_json(entry, {"path": str(path.resolve()), "identity": identity, "digest": digest})
    except OSError:
        return digest  # a home that cannot be written to only costs time
    return digest
