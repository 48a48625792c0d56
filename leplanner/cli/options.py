"""Option types that several verbs share, so that their help reads alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

_OF_THE_SCALE = arg(help_behavior_hint="(default: the scale's)")

TaskName = Annotated[str, Positional, arg(metavar="TASK")]
WorldFolder = Annotated[Path, Positional, arg(metavar="WORLD")]
Source = Annotated[str, Positional, arg(metavar="SOURCE")]
MaybePath = Annotated[Path | None, arg(help_behavior_hint="", metavar="PATH")]
MaybeFloats = Annotated[tuple[float, ...] | None, arg(help_behavior_hint="", metavar="FLOAT ...")]
MaybeInt = Annotated[int | None, arg(help_behavior_hint="", metavar="INT")]
ScaleInt = Annotated[int | None, _OF_THE_SCALE, arg(metavar="INT")]
ScaleFloat = Annotated[float | None, _OF_THE_SCALE, arg(metavar="FLOAT")]
ScaleStr = Annotated[str | None, _OF_THE_SCALE, arg(metavar="STR")]
Comma = Annotated[str, arg(metavar="A,B")]
Json = Annotated[bool, tyro.conf.arg(name="json")]


def world_folder(given: Path | None, task: str) -> Path:
    """The refined world where there is one."""
    refined = Path("runs") / task / "refined"
    return given or (refined if (refined / "config.json").exists() else Path("runs") / task / "world")
