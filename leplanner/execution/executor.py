"""Where independent jobs run. Whatever does many of one thing spreads them through an
executor, and through nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..core.registry import Registry
from .inline import Inline
from .processes import Processes

Job = TypeVar("Job")
Result = TypeVar("Result")


class Executor(Protocol):
    @property
    def concurrency(self) -> int:
        """How many jobs run at once, at most."""
        ...

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
        """`work` of each job, in the order in which they finish. Both are pickled: module level, plain data."""
        ...


@dataclass(frozen=True)
class ExecutorKind:
    name: str
    make: Callable[[int | None], Executor]  # (workers; None: as many as there are cores)


EXECUTORS: Registry[ExecutorKind] = Registry("executor", "leplanner.executors")
EXECUTORS.register(ExecutorKind("processes", Processes))
EXECUTORS.register(ExecutorKind("inline", Inline))


def make_executor(name: str = "processes", workers: int | None = None) -> Executor:
    return EXECUTORS.get(name).make(workers)
