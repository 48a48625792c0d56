"""What each method of a comparison requires, declared by name: the capability table is made from this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

YES, NO, PARTLY = "yes", "no", "partly"
OURS = ("leplanner", "leplanner-keep")  # one planner: the new plan always wins, or the rest of the last one may
DEFAULT = "leplanner-keep"  # what a loaded bundle's controller does
SEARCH = ("cem", "icem", "mppi", "gradient")


@dataclass(frozen=True)
class Properties:
    """Every field is a requirement met: yes, no or partly."""

    family: str
    no_online_search: str  # it does not try many plans before it acts
    no_action_supervision: str  # it is not trained to repeat the data's actions
    multi_step_plan: str  # it decides more than the next action or block
    no_deadline: str  # it need not be told how many steps are left
    frozen_world: str  # it uses a world model that was trained without it, for any task in it
    fixed_cost: str  # a decision takes a known number of imagined steps, and few

    @property
    def marks(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in REQUIREMENTS)


REQUIREMENTS = {
    "no_online_search": "No online search",
    "no_action_supervision": "No action supervision",
    "multi_step_plan": "Multi-step plan",
    "no_deadline": "No test-time deadline",
    "frozen_world": "Frozen, task-agnostic world",
    "fixed_cost": "Fixed inference cost",
}
_SAMPLING = Properties("CEM / MPPI / iCEM", NO, YES, YES, YES, YES, NO)
_GOAL_CONDITIONED = Properties("GCBC / GCIQL / GCIVL", YES, NO, NO, YES, YES, YES)
# the data's actions bound where plans may go, and are never what a plan must equal
_OURS = Properties("LePlanner", YES, PARTLY, YES, YES, YES, YES)
PROPERTIES = {
    "cem": _SAMPLING,
    "mppi": _SAMPLING,
    "icem": _SAMPLING,
    "gradient": Properties("Gradient optimisation", NO, YES, YES, YES, YES, NO),
    "gcbc": _GOAL_CONDITIONED,
    "gciql": _GOAL_CONDITIONED,
    "gcivl": _GOAL_CONDITIONED,
    "gcidm": Properties("GC-IDM", YES, NO, NO, NO, YES, YES),
    "leplanner": _OURS,
    "leplanner-keep": _OURS,
}


def families() -> list[Properties]:
    """Once each, in the order of the declarations."""
    return list(dict.fromkeys(PROPERTIES.values()))


def settings_of(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What of an evaluation's settings decides a method's rows: a search budget is nothing to who does not search."""
    return {name: value for name, value in settings.items() if name != "search" or method in SEARCH}
