"""What verbs share: option types, so that their help reads alike, the presets that a task, scale, recipe and family
choose, and how results are shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from ..artifacts.files import plain
from ..data.formats import rename_columns
from ..execution.executor import Executor, make_executor
from ..pipeline.paths import RunPaths
from ..pipeline.presets import Preset, default_recipe, get_preset
from ..pipeline.stages import Made
from ..tasks import TASKS, Task, find_task
from ..training.runtime import Runtime
from ..worlds import check_family, find_family
from .progress import console

_QUIET = arg(help_behavior_hint="")
Flat = OmitArgPrefixes
TaskName = Annotated[str, Positional, arg(metavar="TASK")]
WorldFolder = Annotated[Path, Positional, arg(metavar="WORLD")]
Source = Annotated[str, Positional, arg(metavar="SOURCE")]
MaybePath = Annotated[Path | None, _QUIET, arg(metavar="PATH")]
MaybeFloats = Annotated[tuple[float, ...] | None, _QUIET, arg(metavar="FLOAT ...")]
MaybeBundle = Annotated[str | None, _QUIET, arg(metavar="BUNDLE")]
MaybeInt = Annotated[int | None, _QUIET, arg(metavar="INT")]
MaybeStr = Annotated[str | None, _QUIET, arg(metavar="NAME")]
Comma = Annotated[str, arg(metavar="A,B")]
Switch = Annotated[bool, FlagCreatePairsOff, _QUIET]


@dataclass(frozen=True)
class Output:
    json: Switch = False
    """print one JSON object to stdout, with what was made and its figures, instead of text"""

    def show(self, data: dict[Any, Any], *shown: Table | object) -> None:
        """The result of a verb: data for programs, or tables and lines for people."""
        if self.json:
            print(json.dumps(data, default=plain))
            return
        for item in shown:
            console.print(item if isinstance(item, Table) else str(item), soft_wrap=not isinstance(item, Table))

    def show_made(self, made: Made, *tables: Table) -> None:
        self.show(made.plain, *tables, made)


Out = Annotated[Output, Flat]


@dataclass(frozen=True)
class Choice:
    """They set the defaults of all other options."""

    task: Annotated[str, Positional, _QUIET, arg(metavar="TASK")]
    """a registered task (tworoom, pusht, reacher, cube, or another package's), or package.module:TASK"""
    scale: str = "compact"
    """paper, compact or tiny: how large"""
    recipe: str = "best"
    """paper or best: how it is trained"""
    family: MaybeStr = None
    """the world model: a registered family, or package.module:FAMILY (default: lewm)"""
    effort: float = 1.0
    """training steps of every stage, as a fraction of the preset's"""
    base: MaybePath = None
    """folder of the task's artifacts (default: runs/TASK)"""

    def __post_init__(self) -> None:
        find_family(self.family or "lewm")  # known from here on, also to verbs that only load a world of it

    @property
    def spec(self) -> Task:
        return find_task(self.task)

    @property
    def preset(self) -> Preset:
        return get_preset(self.spec, self.scale, self.recipe, find_family(self.family or "lewm").name, self.effort)

    @property
    def paths(self) -> RunPaths:
        return RunPaths.of(self.spec, self.base)

    def checked(self, folder: Path) -> Path:
        """Of a world or bundle; not of another family than the one that was typed."""
        return check_family(folder, self.family)


@dataclass(frozen=True)
class Columns:
    columns: Annotated[str, _QUIET, arg(metavar="OURS=THEIRS")] = ""
    """what the dataset calls its columns, where not as we or its task do: pixels=image,state=qpos+qvel"""

    def of(self, task: Task) -> Task:
        """The task, for such a dataset."""
        return rename_columns(task, self.columns)


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


def preselect(words: Sequence[str], default: str | None = None) -> Choice:
    """Task, scale, recipe, family and effort as typed, read before the rest: the defaults of the other options follow
    from them. `default`: the task of verbs that need none."""
    typed: dict[str, Any] = {}
    given: list[str] = []
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name in ("--scale", "--recipe", "--family", "--effort"):
            typed[name[2:]] = value if equals else next(remaining, "")
        elif not word.startswith("-"):
            given.append(word)
    typed["effort"] = number(typed.get("effort", "1"), "--effort")
    typed.setdefault("recipe", default_recipe(typed.get("scale", Choice.scale)))
    known = [word for word in given if word in TASKS or ":" in word]
    if default is None and asks_for_help(words):
        default = TASKS.names()[0]
    if default is not None:
        return Choice((*known, default)[0], **typed)
    if not given:
        raise ValueError(f"Which task? Known: {', '.join(TASKS)}; or package.module:TASK.")
    return Choice((known or given)[0], **typed)


def asks_for_help(words: Sequence[str]) -> bool:
    return bool({"-h", "--help"} & set(words))


def is_typed(option: str, words: Sequence[str]) -> bool:
    """As `--option value` or `--option=value`."""
    return any(word.partition("=")[0].replace("_", "-") == option for word in words)


def typed(option: str, words: Sequence[str]) -> str | None:
    """The value that was typed, the last one where there are several."""
    pairs = zip(words, [*words[1:], ""], strict=True)
    values = [after if word == option else word.partition("=")[2] for word, after in pairs if is_typed(option, [word])]
    return values[-1] if values else None


def names(text: str) -> tuple[str, ...]:
    """Those between commas; none in an empty text."""
    return tuple(name for name in text.split(",") if name)


def number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} takes a number; got {text!r}.") from None


def integers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} takes integers separated by commas; got {text!r}.") from None


def span(text: str, option: str) -> tuple[int, ...]:
    """FIRST..LAST, both included."""
    try:
        first, last = (int(part) for part in text.split(".."))
    except ValueError:
        raise ValueError(f"{option} takes FIRST..LAST, such as 43..53; got {text!r}.") from None
    if first > last:
        raise ValueError(f"{option} takes FIRST..LAST, the first not after the last; got {text!r}.")
    return tuple(range(first, last + 1))
