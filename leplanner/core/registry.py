"""Things by name. Adding a family, task, method, metric, format, logger or engine is one file
and one `register` line."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar


class Named(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)
_plugins: list[tuple[str, str]] = []


def match_name(kind: str, name: str, known: Iterable[str]) -> str:
    """The known name that was meant, whatever its case. An unknown one is answered with the known ones, the nearest
    first."""
    names = {other.casefold(): other for other in known}
    if name.casefold() in names:
        return names[name.casefold()]
    near = difflib.get_close_matches(name.casefold(), names, n=1)
    suggestion = f" Did you mean {names[near[0]]!r}?" if near else ""
    raise ValueError(f"Unknown {kind} {name!r}.{suggestion} Known: {', '.join(names.values()) or 'none'}.")


class Registry(Generic[Item]):
    """Items in the order of their registration. `group` is an entry point group: installed packages add to the registry
    without being imported by the user. `home` is a module of ours that registers items, imported
    when they are first looked for."""

    def __init__(self, kind: str, group: str | None = None, home: str | None = None, address: str | None = None):
        """`address`: where this registry itself is, as package.module:NAME, if users may name items in that way."""
        self.kind, self.group, self.home, self.address = kind, group, home, address
        self._items: dict[str, Item] = {}

    def register(self, item: Item) -> Item:
        same = [known for name, known in self._items.items() if name.casefold() == item.name.casefold()]
        if any(known != item for known in same):
            raise ValueError(f"There is a {self.kind} {same[0].name!r} already. Choose another name.")
        self._items[item.name] = item
        return item

    def get(self, name: str) -> Item:
        """By its name, whatever its case."""
        if name not in self._items:
            self._complete()
        return self._items[match_name(self.kind, name, self._items)]

    def find(self, text: str) -> Item:
        """What a user typed: a name, or `package.module:NAME`, which is imported and registered."""
        if ":" not in text or self.address is None:
            return self.get(text)
        item = self.register(load_object(text))
        if (self.address, text) not in _plugins:
            _plugins.append((self.address, text))
        return item

    def names(self) -> list[str]:
        self._complete()
        return list(self._items)

    def values(self) -> list[Item]:
        self._complete()
        return list(self._items.values())

    def __getitem__(self, name: str) -> Item:
        return self.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.casefold() in map(str.casefold, self.names())

    def _complete(self) -> None:
        group, self.group, home, self.home = self.group, None, self.home, None  # once
        if home is not None:
            importlib.import_module(home)
        for entry in entry_points(group=group) if group else ():
            self.register(entry.load())


def load_object(address: str) -> Any:
    """What `package.module:NAME` names. For what a user typed; never for what a downloaded file says."""
    module, _, name = address.partition(":")
    if (here := str(Path.cwd())) not in sys.path:  # a console script, unlike `python -m`, does not look there
        sys.path.append(here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # TypeError: a relative path such as ./task
        raise ValueError(
            f"{address!r} could not be loaded ({error}). Give package.module:NAME, of a module that "
            "Python can import from here."
        ) from error


def plugins() -> tuple[tuple[str, str], ...]:
    """What users named by `package.module:NAME`, for new processes to load too: registries,
    and what to find in them."""
    return tuple(_plugins)


def load_plugins(known: tuple[tuple[str, str], ...]) -> None:
    for registry, text in known:
        load_object(registry).find(text)
