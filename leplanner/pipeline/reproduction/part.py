"""A part of the reproduction: tables and figures of the paper, made here, and what the paper prints beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.registry import Registry
from .paper import printed
from .setting import Reproduction

Facts = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """`run` returns what is kept in OUT/NAME.json: `beside`, and optionally `sheets`, `drawings`, `notes`."""

    name: str
    title: str
    about: str  # for readers of the page
    run: Callable[[Reproduction], Facts]
    applies: Callable[[Reproduction], bool] = lambda reproduction: True


PARTS: Registry[Part] = Registry("part")


def beside(part: str, task: str, measured: Mapping[str, str]) -> list[dict[str, str]]:
    """What was measured beside what the paper prints. What it prints of this task and was not measured is listed,
    too."""
    known = {one.what: one for one in printed(part, task)}
    return [
        {
            "what": what,
            "paper": known[what].value if what in known else "",
            "here": measured.get(what, "not measured"),
            "where": known[what].where if what in known else "",
        }
        for what in dict.fromkeys([*known, *measured])
    ]


def sheet(title: str, words: Sequence[str], figures: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A table: columns of words, then of figures."""
    return {"title": title, "words": list(words), "figures": list(figures), "rows": [list(row) for row in rows]}


def drawing(kind: str, caption: str, data: Any) -> dict[str, Any]:
    """A figure to be drawn of these data; `report/reproduction.py` knows the kinds."""
    return {"kind": kind, "caption": caption, "data": data}


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}%"
