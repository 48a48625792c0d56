"""Where an artifact came from: versions, revision, platform, inputs, the command that was typed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any


def provenance(**inputs: str) -> dict[str, Any]:
    """`inputs`: the digests of what went in."""
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
    root = Path(__file__).resolve().parent.parent.parent
    if not (root / ".git").exists():
        return None
    with contextlib.suppress(OSError):  # no git here
        command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    return None
