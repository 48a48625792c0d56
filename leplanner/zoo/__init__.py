"""Bundles that come with the package, one folder a task; and where any other bundle is found."""

from __future__ import annotations

from pathlib import Path

from ..artifacts import fetch_folder
from ..core.registry import match_name

FOLDER = Path(__file__).parent
CONTENTS = ("*.json", "*.safetensors", "README.md")  # weights, card, trials and results


def shipped() -> dict[str, Path]:
    """Task name -> bundle folder."""
    return {path.name: path for path in sorted(FOLDER.iterdir()) if (path / "config.json").exists()}


def find_bundle(source: str | Path, revision: str | None = None) -> Path:
    """The folder of a shipped bundle, of a local one, or of one on the Hugging Face hub. A shipped task's name means
    the shipped bundle even where a folder has the same name; write ./NAME for the folder."""
    if isinstance(source, str) and source in shipped() and revision is None:
        return shipped()[source]
    try:
        return fetch_folder(source, CONTENTS, revision)
    except ValueError as error:
        try:
            return shipped()[match_name("shipped bundle", str(source), shipped())]
        except ValueError as unknown:
            raise ValueError(f"No bundle {source}: {error} {unknown} Make one with: leplanner run TASK") from error
