"""Runs jobs on several processes and yields each result as it is ready; what is finished is
never lost with the rest."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from ..core.registry import load_plugins, plugins

Job = TypeVar("Job")
Result = TypeVar("Result")


class Processes:
    """As many processes as there are cores, or as requested. Each keeps what it loaded between its jobs."""

    def __init__(self, workers: int | None = None):
        if workers is not None and workers < 1:
            raise ValueError(f"--workers must be at least 1; got {workers}.")
        self.concurrency = workers or os.cpu_count() or 1

    def run(self, work: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
        if not jobs:
            return
        count = min(self.concurrency, len(jobs))
        # spawn, not fork: a forked process shares GL and thread state that neither survives
        context = multiprocessing.get_context("spawn")
        arguments = (count, plugins())
        with ProcessPoolExecutor(count, mp_context=context, initializer=_become_worker, initargs=arguments) as pool:
            pending: set[Future[Result]] = {pool.submit(work, job) for job in jobs}
            try:
                while pending:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in finished:
                        yield future.result()
            except BrokenProcessPool as error:
                raise ValueError(
                    f"A worker process died; {count} ran at once, so lack of memory is likely. What is finished "
                    "is kept: run the same command with fewer --workers. (A script of your own must guard its "
                    "start: if __name__ == '__main__'.)"
                ) from error
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _become_worker(count: int, known: tuple[tuple[str, str], ...]) -> None:
    """An interrupt is the parent's to handle. A killed parent must not leave workers behind: each one waits for
    its parent's end in a thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Mesa's software renderer would start one thread a core in each of `count` processes
    os.environ.setdefault("LP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))

    def wait_and_leave() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait_and_leave, daemon=True).start()
    load_plugins(known)  # tasks and families that were named on the command line
