"""Option types that several verbs share, so that their help reads alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from ..planner.planner import load_bundle
from ..world.world import World, load_world
from ..zoo import find_bundle

_OF_THE_SCALE = arg(help_behavior_hint="(default: the scale's)")

TaskName = Annotated[str, Positional, arg(metavar="TASK")]
WorldFolder = Annotated[Path, Positional, arg(metavar="WORLD")]
Source = Annotated[str, Positional, arg(metavar="SOURCE")]
MaybePath = Annotated[Path | None, arg(help_behavior_hint="", metavar="PATH")]
MaybeFloats = Annotated[tuple[float, ...] | None, arg(help_behavior_hint="", metavar="FLOAT ...")]
MaybeBundle = Annotated[str | None, arg(help_behavior_hint="", metavar="BUNDLE")]
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


def frozen_world(world: Path | None, bundle: str | None, task: str) -> World:
    """The world in a folder, or that of a bundle."""
    folder = find_bundle(bundle) if bundle else world_folder(world, task)
    frozen = load_bundle(folder).world if bundle else load_world(folder)
    if frozen.spec.task != task:
        raise ValueError(f"The world at {folder} is {frozen.spec.task}'s, but {task} was asked for.")
    return frozen


def bundle_folder(given: str | None, task: str) -> Path:
    """The planner that was trained here, once it is whole; else the shipped one."""
    trained = Path("runs") / task / "planner"
    return find_bundle(given or (trained if (trained / "config.json").exists() else task))
