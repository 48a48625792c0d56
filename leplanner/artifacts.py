"""What every artifact shares: atomic writes, content digests, and a record of where it came from."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
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
        temporary.write_text(json.dumps(value, sort_keys=True, default=_plain, **layout) + "\n")


def write_arrays(target: Path, arrays: dict[str, Any]) -> None:
    with atomic_path(target) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON ({error}). Restore the file or make the artifact again.") from error


def from_dict(cls: type, value: dict[str, Any]) -> Any:
    """A dataclass from JSON: lists are its tuples, and fields that it has not, or lacks, are named."""
    fields = dataclasses.fields(cls)
    names = {field.name for field in fields}
    unknown = sorted(set(value) - names)
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}; it has {', '.join(sorted(names))}.")
    none = dataclasses.MISSING
    needed = {field.name for field in fields if field.default is none and field.default_factory is none}
    missing = sorted(needed - set(value))
    if missing:
        raise ValueError(f"{cls.__name__} needs {', '.join(missing)}; found {', '.join(sorted(value)) or 'nothing'}.")
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in value.items()})


def read_lines(path: Path) -> list[Any]:
    """A JSONL file; no file is no lines."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def digest_bytes(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def digest_json(value: Any) -> str:
    return digest_bytes(json.dumps(value, sort_keys=True, default=_plain).encode())


def digest_tensors(tensors: Mapping[str, Any]) -> str:
    """Of names, types, shapes and values: the identity of a set of weights, however they are stored."""
    parts: list[bytes] = []
    for name in sorted(tensors):
        array = tensors[name].detach().cpu().contiguous().numpy()
        parts += [name.encode(), str(array.dtype).encode(), str(array.shape).encode(), array.tobytes()]
    return digest_bytes(*parts)


def fetch_folder(source: str | Path, patterns: tuple[str, ...]) -> Path:
    """A local folder as it is; the files of a Hugging Face repository `owner/name`, fetched once and kept in its cache."""
    path = Path(source)
    if path.is_dir():
        return path
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", str(source)):
        raise ValueError(f"{source} is neither a folder nor a Hugging Face id like owner/name.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(source), allow_patterns=list(patterns)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"{source} is not a local folder and could not be fetched from the Hugging Face hub ({type(error).__name__}: "
            f"{error}). Check the id and the network, or download it elsewhere and give the folder."
        ) from error


def provenance(**inputs: str) -> dict[str, Any]:
    """Package versions, git revision, platform, and the digests of what went in."""
    versions = {}
    for package in ("leplanner", "torch", "numpy", "stable-worldmodel", "mujoco"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "versions": versions,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "git_revision": _git_revision(),
        "inputs": inputs,
    }


def command_line() -> str:
    """What was typed, if it was one of our commands."""
    name = Path(sys.argv[0]).name
    return shlex.join([name, *sys.argv[1:]]) if name == "leplanner" else ""


def _git_revision() -> str | None:
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    with contextlib.suppress(OSError):  # no git here
        command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    return None
