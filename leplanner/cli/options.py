"""What verbs share: option types, so that their help reads alike, and the presets that a task,
scale, recipe and family choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ..execution.executor import Executor, make_executor
from ..pipeline.paths import RunPaths
from ..pipeline.presets import Preset, get_preset
from ..tasks import TASKS, Task, find_task
from ..training.runtime import Runtime
from ..worlds import find_family

_QUIET = arg(help_behavior_hint="")
TaskName = Annotated[str, Positional, arg(metavar="TASK")]
WorldFolder = Annotated[Path, Positional, arg(metavar="WORLD")]
Source = Annotated[str, Positional, arg(metavar="SOURCE")]
MaybePath = Annotated[Path | None, _QUIET, arg(metavar="PATH")]
MaybeFloats = Annotated[tuple[float, ...] | None, _QUIET, arg(metavar="FLOAT ...")]
MaybeBundle = Annotated[str | None, _QUIET, arg(metavar="BUNDLE")]
MaybeInt = Annotated[int | None, _QUIET, arg(metavar="INT")]
MaybeStr = Annotated[str | None, _QUIET, arg(metavar="NAME")]
Comma = Annotated[str, arg(metavar="A,B")]
Json = Annotated[bool, arg(name="json")]


@dataclass(frozen=True)
class Choice:
    """Task and preset: they set the defaults of all other options."""

    task: TaskName
    """a registered task (tworoom, pusht, reacher, cube, or another package's), or package.module:TASK"""
    scale: str = "compact"
    """paper, compact or tiny: how large"""
    recipe: MaybeStr = None
    """paper or best: how it is trained (default: best, and paper at the paper's scale)"""
    family: str = "lewm"
    """the world model: a registered family, or package.module:FAMILY"""
    base: MaybePath = None
    """folder of the task's artifacts (default: runs/TASK)"""

    @property
    def spec(self) -> Task:
        return find_task(self.task)

    @property
    def preset(self) -> Preset:
        return get_preset(self.spec, self.scale, self.recipe, find_family(self.family).name)

    @property
    def paths(self) -> RunPaths:
        return RunPaths.of(self.spec, self.base)


@dataclass(frozen=True)
class Compute:
    device: str = "auto"
    """auto, cpu, cuda, mps"""
    log: Annotated[str, _QUIET, arg(metavar="A,B")] = ""
    """log every step also to tensorboard, wandb or trackio"""

    @property
    def runtime(self) -> Runtime:
        return Runtime(self.device, tuple(self.log.split(",")) if self.log else ())


@dataclass(frozen=True)
class Workers:
    workers: MaybeInt = None
    """processes (default: one a core)"""

    @property
    def executor(self) -> Executor:
        return make_executor(workers=self.workers)


def preselect(words: Sequence[str]) -> Choice:
    """Task, scale, recipe and family as typed, read before the rest: the defaults of the
    other options follow from them."""
    typed: dict[str, Any] = {}
    given: list[str] = []
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name in ("--scale", "--recipe", "--family"):
            typed[name[2:]] = value if equals else next(remaining, "")
        elif not word.startswith("-"):
            given.append(word)
    known = [word for word in given if word in TASKS or ":" in word]
    asks_for_help = {"-h", "--help"} & set(words)
    if asks_for_help and not known:
        return Choice(TASKS.names()[0], **typed)
    if not given:
        raise ValueError(f"Which task? Known: {', '.join(TASKS)}; or package.module:TASK.")
    return Choice((known or given)[0], **typed)


def is_typed(option: str, words: Sequence[str]) -> bool:
    """As `--option value` or `--option=value`."""
    return any(word.partition("=")[0].replace("_", "-") == option for word in words)


def integers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} takes integers separated by commas; got {text!r}.") from None
