"""Configurations are changed by copying, at any depth of one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from leplanner.core.config import changed


@dataclass(frozen=True)
class Inner:
    steps: int = 10
    rate: float = 0.1


@dataclass(frozen=True)
class Outer:
    optim: Inner = field(default_factory=Inner)
    name: str = "plain"


def test_own_and_inner_fields_are_changed_in_a_copy():
    before = Outer()
    after = changed(before, steps=20, name="other")
    assert after == Outer(Inner(steps=20), "other")
    assert before == Outer()


def test_an_inner_configuration_can_be_given_whole():
    assert changed(Outer(), optim=Inner(5, 0.5)) == Outer(Inner(5, 0.5))


def test_nothing_to_change_is_an_equal_copy():
    assert changed(Outer()) == Outer()


def test_fields_that_no_configuration_has_are_named():
    with pytest.raises(ValueError, match="Outer has no field color, size"):
        changed(Outer(), size=3, steps=20, color="red")
