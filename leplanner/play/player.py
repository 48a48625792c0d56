"""Sessions in threads of their own: MuJoCo draws only in the thread that made its context, and a page's handlers run in
any."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .bundle import PlayBundle
from .session import Session

Result = TypeVar("Result")


class Closed(Exception):  # noqa: N818 - the visitor is gone, which is no error
    """The player was closed."""


class Player:
    def __init__(self, bundle: PlayBundle, seed: int | None = None):
        self.bundle = bundle
        self.running = threading.Event()  # cleared by Stop, and by whatever begins anew
        self._open, self._lock = True, threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leplanner-play")
        self._session = self._thread.submit(Session, bundle, seed).result()

    def call(self, function: Callable[[Session], Result]) -> Result:
        """In the session's thread, after what was asked before."""
        with self._lock:
            if not self._open:
                raise Closed
            result = self._thread.submit(function, self._session)
        return result.result()

    def close(self) -> None:
        """Once or more often: a tab that closes and a task that changes may both ask."""
        self.running.clear()
        with self._lock:
            if self._open:
                self._open = False
                self._thread.submit(self._session.close).result()
                self._thread.shutdown()


class Visitors:
    """The player of every open tab."""

    def __init__(self) -> None:
        self._players: dict[str, Player] = {}
        self._lock = threading.Lock()

    def seat(self, tab: str, player: Player) -> None:
        """Instead of the player that the tab had."""
        with self._lock:
            old = self._players.get(tab)
            self._players[tab] = player
        if old is not None:
            old.close()

    def leave(self, tab: str) -> None:
        with self._lock:
            player = self._players.pop(tab, None)
        if player is not None:
            player.close()

    def __len__(self) -> int:
        return len(self._players)

    def close(self) -> None:
        for tab in list(self._players):
            self.leave(tab)
