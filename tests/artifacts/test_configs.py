"""Configurations to JSON and back: nested ones, one of several kinds, and errors that name the field."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from leplanner.artifacts import from_dict, to_dict


@dataclass(frozen=True)
class Circle:
    kind: ClassVar[str] = "circle"
    radius: float = 1.0


@dataclass(frozen=True)
class Box:
    kind: ClassVar[str] = "box"
    sides: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Paint:
    color: str
    layers: int = 1


@dataclass(frozen=True)
class Drawing:
    shape: Circle | Box = field(default_factory=Circle)
    paint: Paint | None = None
    size: tuple[int, ...] = (8, 8)


@pytest.mark.parametrize(
    "drawing",
    [Drawing(), Drawing(Box((3, 4, 5)), Paint("red", 2), (16,)), Drawing(Circle(2.5), Paint("blue"))],
)
def test_through_json_and_back_is_the_identity(drawing):
    stored = json.loads(json.dumps(to_dict(drawing)))
    assert from_dict(Drawing, stored) == drawing


def test_the_kind_of_a_union_is_stored_and_decides():
    stored = to_dict(Drawing(Box()))
    assert stored["shape"] == {"kind": "box", "sides": (1, 2)}
    assert isinstance(from_dict(Drawing, {"shape": {"kind": "circle"}}).shape, Circle)
    with pytest.raises(ValueError, match="Unknown kind 'star'; known: circle, box"):
        from_dict(Drawing, {"shape": {"kind": "star"}})
    with pytest.raises(ValueError, match="Unknown kind None"):
        from_dict(Drawing, {"shape": {"radius": 1.0}})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"width": 3}, "Drawing has no field width; it has paint, shape, size"),
        ({"paint": {"layers": 2}}, "Paint needs color; got layers"),
        ({"shape": {"kind": "box", "radius": 1.0}}, "Box has no field radius; it has sides"),
        (["circle"], "Drawing is described by a mapping; got list"),
    ],
)
def test_what_does_not_fit_is_named(value, message):
    with pytest.raises(ValueError, match=message):
        from_dict(Drawing, value)
