"""One store for every artifact: a folder with `config.json` and safetensors, written weights first and config last.

A folder with a config.json is whole. The config says the kind, the format, what was resolved, the digest, how it was
trained and from what. Formats of earlier versions are migrated when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from .files import read_json, write_json
from .provenance import provenance
from .weights import load_strictly, read_safetensors, write_safetensors

FORMAT = 2
CONFIG = "config.json"
MAKE = {  # how each kind is made, for errors
    "world": "leplanner world train TASK",
    "bundle": "leplanner train TASK",
    "density": "leplanner density TASK",
    "baseline": "leplanner baselines TASK",
    "decoder": "leplanner decoder TASK",
    "latent cache": "leplanner cache TASK",
}
Migration = Callable[[dict[str, Any]], dict[str, Any]]
_migrations: dict[tuple[str, int], Migration] = {}


def migration(kind: str, from_format: int) -> Callable[[Migration], Migration]:
    """Declares how a config of an earlier format becomes one of the next."""

    def declare(migrate: Migration) -> Migration:
        _migrations[kind, from_format] = migrate
        return migrate

    return declare


def write_artifact(
    folder: Path,
    kind: str,
    contents: Mapping[str, Any],
    modules: Mapping[str, nn.Module] | None = None,
    history: Mapping[str, Any] | None = None,
    **inputs: str,
) -> None:
    """`contents` goes into the config, each module into NAME.safetensors; `inputs` are digests of what went in."""
    for name, module in (modules or {}).items():
        write_safetensors(folder / f"{name}.safetensors", module)
    config = {"kind": f"leplanner {kind}", "format": FORMAT, **contents}
    write_json(folder / CONFIG, config | {"training": dict(history or {}), "provenance": provenance(**inputs)})


def is_whole(folder: Path) -> bool:
    return (folder / CONFIG).exists()


def read_artifact(folder: Path, kind: str) -> dict[str, Any]:
    """The config of an artifact of this kind, in the present format."""
    make = f"Make one with: {MAKE.get(kind, 'leplanner')}"
    if not is_whole(folder):
        raise ValueError(f"No {kind} at {folder}: it has no {CONFIG}. {make}")
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or config.get("kind") != f"leplanner {kind}":
        raise ValueError(f"{folder / CONFIG} does not describe a leplanner {kind}. {make}")
    number = config.get("format", 1)
    if not isinstance(number, int) or number > FORMAT:
        raise ValueError(
            f"{folder} has format {number}; this version of leplanner reads up to {FORMAT}. Upgrade leplanner."
        )
    while number < FORMAT:
        if (kind, number) not in _migrations:
            raise ValueError(
                f"The {kind} at {folder} was made by an earlier version of leplanner. Delete it and make it again."
            )
        config = _migrations[kind, number](config)
        number += 1
    return config


def load_modules(folder: Path, modules: Mapping[str, nn.Module]) -> None:
    for name, module in modules.items():
        path = folder / f"{name}.safetensors"
        load_strictly(module, read_safetensors(path), str(path))


def check_digest(folder: Path, expected: str, actual: str) -> None:
    if expected != actual:
        raise ValueError(
            f"{folder}: the weights do not match the digest in {CONFIG}. The folder is damaged or was edited."
        )
