"""Where training metrics go: always to metrics.jsonl, and to whatever else was requested. Resumed
runs continue their curves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..artifacts import atomic_path
from ..core.registry import Registry

FILE = "metrics.jsonl"
TAIL_BYTES = 1 << 16  # holds several lines


class Logger(Protocol):
    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Numbers, or lists of numbers, by name."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class RunInfo:
    """What a logger may want to know about the run it logs."""

    out: Path
    run: str  # digest of the run's configuration and inputs: the same when it is resumed
    step: int  # steps done before; later ones that were logged are of a run that was killed
    config: Mapping[str, Any]


@dataclass(frozen=True)
class LoggerKind:
    name: str
    open: Callable[[RunInfo], Logger]


LOGGERS: Registry[LoggerKind] = Registry("logger", "leplanner.loggers")


class JsonlLogger:
    """One line a step: losses, gradient norm, learning rate, and at validations what they found."""

    def __init__(self, info: RunInfo):
        path = info.out / FILE
        lines = _lines(info.out)
        kept = [line for line in lines if _step_of(line) <= info.step]
        if len(kept) < len(lines):
            with atomic_path(path) as temporary:
                temporary.write_text("".join(line + "\n" for line in kept))
        info.out.mkdir(parents=True, exist_ok=True)
        self.file = path.open("a")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.file.write(json.dumps({"step": step, **metrics}) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _lines(out: Path) -> list[str]:
    path = out / FILE
    return path.read_text().splitlines() if path.exists() else []


def _step_of(line: str) -> float:
    """Of a logged line; a half-written one belongs to no step."""
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError):
        return math.inf


def last_step(out: Path) -> int:
    """How far a run is, read from the end of its log: another process may be writing it."""
    path = out / FILE
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return max((int(step) for step in map(_step_of, lines[-3:]) if math.isfinite(step)), default=0)


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Lists as one curve an element, without what is not a number."""
    flat: dict[str, float] = {}
    for name, value in metrics.items():
        values = {f"{name}/{i}": v for i, v in enumerate(value)} if isinstance(value, list) else {name: value}
        flat |= {key: float(v) for key, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return flat


class TensorBoardLogger:
    def __init__(self, info: RunInfo):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(info.out / "tensorboard"), purge_step=info.step + 1)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        for name, value in scalars(metrics).items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class ProjectLogger:
    """wandb, and trackio, which has wandb's interface."""

    def __init__(self, module: str, info: RunInfo, **options: Any):
        import importlib

        self.api = importlib.import_module(module)
        self.api.init(project="leplanner", config=dict(info.config), **options)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.api.log(scalars(metrics), step=step)

    def close(self) -> None:
        self.api.finish()


def _wandb(info: RunInfo) -> Logger:
    name = "-".join(info.out.resolve().parts[-2:])
    return ProjectLogger("wandb", info, id=info.run[:16], name=name, resume="allow", dir=str(info.out))


def _trackio(info: RunInfo) -> Logger:
    name = "-".join(info.out.resolve().parts[-2:])
    return ProjectLogger("trackio", info, name=f"{name}-{info.run[:8]}", resume="allow")


LOGGERS.register(LoggerKind("tensorboard", TensorBoardLogger))
LOGGERS.register(LoggerKind("wandb", _wandb))
LOGGERS.register(LoggerKind("trackio", _trackio))


class Loggers:
    """The file, and those requested by name."""

    def __init__(self, info: RunInfo, names: tuple[str, ...]):
        kinds = [LOGGERS.get(name) for name in names]
        self.all: list[Logger] = [JsonlLogger(info)]
        for kind in kinds:
            try:
                self.all.append(kind.open(info))
            except ImportError as error:
                self.close()
                raise ImportError(
                    f"--log {kind.name} needs a package that is not installed ({error}). Install it "
                    f"with: pip install {kind.name}"
                ) from error

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        for logger in self.all:
            logger.log(step, metrics)

    def close(self) -> None:
        for logger in self.all:
            logger.close()


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """Every logged step of a run; without a line that is half-written, since the run was killed or goes on."""
    return [json.loads(line) for line in _lines(out) if math.isfinite(_step_of(line))]


def read_validations(out: Path) -> list[dict[str, Any]]:
    """The steps at which the run was validated."""
    return [line for line in read_metrics(out) if "minutes" in line]
