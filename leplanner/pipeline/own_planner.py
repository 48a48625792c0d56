"""The planner that a family's authors use: a method, which the family names."""

from __future__ import annotations

from ..control.methods import METHODS, Method
from ..worlds import FAMILIES
from .presets import Preset


def own_planner(family: str) -> Method:
    return METHODS.get(FAMILIES.get(family).own_planner)


def own_methods(family: str, search_trials: int) -> tuple[str, ...]:
    """For an evaluation: its name, unless it is a search and searches get no trials."""
    method = own_planner(family)
    return () if method.role == "search" and not search_trials else (method.name,)


def check_own_planner(preset: Preset) -> None:
    """Before anything is trained: the family's network offers what its planner needs."""
    method, family = own_planner(preset.family), FAMILIES.get(preset.family)
    if method.needs and not method.suits(family.build(preset.network)):
        raise ValueError(
            f"The family {family.name!r} names {method.name} as its own planner, which needs {', '.join(method.needs)} "
            "of a world; its network does not offer them. Name another method as the family's own_planner."
        )
