"""A session in a thread of its own: MuJoCo draws only in the thread that made its context, and a page's handlers run in
any."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .bundle import PlayBundle
from .session import Session

Result = TypeVar("Result")


class Player:
    def __init__(self, bundle: PlayBundle, seed: int | None = None):
        self.bundle = bundle
        self.running = threading.Event()  # cleared by Stop, and by whatever begins anew
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leplanner-play")
        self._session = self._thread.submit(Session, bundle, seed).result()

    def call(self, function: Callable[[Session], Result]) -> Result:
        """In the session's thread, after what was asked before."""
        return self._thread.submit(function, self._session).result()

    def close(self) -> None:
        """Idempotent: a page that closes and a task that changes may both ask."""
        self.running.clear()
        try:
            self._thread.submit(self._session.close).result()
        except RuntimeError:  # closed before
            return
        self._thread.shutdown()
