"""Methods by name: whatever can be compared over the same trials is declared once, here or in its own file, and tables,
figures and the capability table read the declaration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..core.dynamics import Dynamics, capability
from ..core.registry import Registry
from ..planner.planner import Planner
from .policy import PlannerPolicy, Policy

# Okabe and Ito's colors, which color-blind eyes tell apart
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
GRAY = "#888888"  # floors and ceilings
YES, NO, PARTLY = "yes", "no", "partly"
DEFAULT = "leplanner-reuse"  # what a loaded bundle's controller does


@dataclass(frozen=True)
class SearchBudget:
    """Defaults are the published ones: 300 candidates, 30 rounds, 30 elites."""

    samples: int = 300
    rounds: int = 30
    compiled: bool = False  # imagine through a compiled rollout: the same within 1e-5, twice as fast

    def __post_init__(self) -> None:
        if self.elites < 2 or self.rounds < 1:  # the spread of one elite is not a number
            raise ValueError(
                f"A search needs at least one round and two elites, a tenth of its samples; got {self.rounds} rounds "
                f"of {self.samples} samples. Use at least 20 samples."
            )

    @property
    def elites(self) -> int:
        return self.samples // 10

    def __str__(self) -> str:
        return f"{self.samples} x {self.rounds}" + (", compiled" if self.compiled else "")


@dataclass(frozen=True)
class MethodInputs:
    """All that a method may be made from: one planner with its world, trained baselines, and what a trial allows."""

    planner: Planner
    budget: int  # environment actions a trial may take
    baselines: Path | None = None  # folder of trained baselines
    search: SearchBudget = field(default_factory=SearchBudget)


PolicyFor = Callable[[Any], Policy]  # the policy for a trial; most are the same for all
Role = Literal["ours", "search", "learned", "floor", "ceiling"]


@dataclass(frozen=True)
class Properties:
    """What a group of methods does without: yes, no or partly. Rows of the capability table."""

    group: str
    no_online_search: str  # it does not try many plans before it acts
    no_action_supervision: str  # it is not trained to repeat the data's actions
    multi_step_plan: str  # it decides more than the next action or block
    no_deadline: str  # it need not be told how many steps are left
    frozen_world: str  # it uses a world model that was trained without it, for any task in it
    fixed_cost: str  # a decision takes a known number of predictor transitions, and few

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


def _world_digest(inputs: MethodInputs) -> str:
    return inputs.planner.world.digest


@dataclass(frozen=True)
class Method:
    name: str
    title: str
    role: Role
    make: Callable[[MethodInputs], PolicyFor]
    color: str = GRAY
    properties: Properties | None = None
    replan: int | None = None  # its own pace: before every action (0) or so many blocks; None: the evaluation's m
    weights: Callable[[MethodInputs], str] = _world_digest  # digest of what it decides with
    needs: tuple[str, ...] = ()  # capabilities of `core.dynamics` that a world must offer

    def suits(self, world: Dynamics) -> bool:
        """Whether a world offers all that the method needs."""
        return all(capability(world, name) is not None for name in self.needs)

    def title_with(self, search: str) -> str:
        """Searches are shown with their budget, on which alone they depend."""
        return f"{self.title} {search.split(',')[0]}" if self.role == "search" else self.title


METHODS: Registry[Method] = Registry("method", "leplanner.methods", home="leplanner.baselines")


def methods_of(role: Role) -> tuple[str, ...]:
    return tuple(method.name for method in METHODS.values() if method.role == role)


def capability_table() -> list[Properties]:
    """Each group once, in the order of registration."""
    return list(dict.fromkeys(method.properties for method in METHODS.values() if method.properties is not None))


def settings_of(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What of an evaluation's settings decides a method's rows: only search methods depend on the search budget."""
    searches = METHODS.get(method).role == "search"
    return {name: value for name, value in settings.items() if name != "search" or searches}


# the data's actions bound where plans may go, and are never what a plan must equal
_OURS = Properties("LePlanner", YES, PARTLY, YES, YES, YES, YES)


def _planner_policy(reuse: bool) -> Callable[[MethodInputs], PolicyFor]:
    def make(inputs: MethodInputs) -> PolicyFor:
        policy = PlannerPolicy(inputs.planner, reuse)
        return lambda trial: policy

    return make


def _planner_digest(inputs: MethodInputs) -> str:
    return inputs.planner.digest


METHODS.register(Method("leplanner", "LePlanner", "ours", _planner_policy(False), BLUE, _OURS, weights=_planner_digest))
METHODS.register(
    Method("leplanner-reuse", "LePlanner-reuse", "ours", _planner_policy(True), SKY, _OURS, weights=_planner_digest)
)
