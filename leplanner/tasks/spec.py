"""What a task is: its action box, what its state means, when a goal counts as reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..core.actions import Array


class Simulator(Protocol):
    """One live environment. `state` holds everything that `set_state` needs to continue exactly from there."""

    def start(self, rng: np.random.Generator) -> None:
        """Put the environment in a random initial state drawn from `rng`."""
        ...

    def state(self) -> Array: ...

    def set_state(self, state: Array) -> None: ...

    def step(self, action: Array) -> None:
        """Apply one raw environment action."""
        ...

    def render(self, size: int) -> Array:
        """uint8 (size, size, 3)."""
        ...

    def close(self) -> None: ...


class Behavior(Protocol):
    """A policy that collects data; it may read the simulator's state, or look at the last frame that was kept."""

    def act(self, frame: Array | None = None) -> Array: ...


Adjust = Callable[[Any], Any]  # a preset in, the preset as this task wants it out
LIGHT = {"shadows": False, "antialias": 0, "supersample": 2, "merge_m": 0.004}  # for small frames drawn on a CPU
NATIVE = {"shadows": True, "antialias": 4, "supersample": 1, "merge_m": 0.0}  # as the released datasets were drawn


def distance(state: Array, goal: Array) -> Array:
    return np.linalg.norm(state - goal, axis=-1)


def whole_state(state: Array) -> Array:
    return state


@dataclass(frozen=True)
class Slider:
    """A number that a goal has besides its place, as a person sets it."""

    label: str  # with its unit
    low: float
    high: float
    start: float


@dataclass(frozen=True)
class GoalClick:
    """How a click on the picture becomes a goal."""

    hint: str  # what a click does, in a sentence
    # (S,) the state now, (2,) the click as shares of the frame, the slider's value -> (S,) the goal; where there can
    # be none, a ValueError says why
    at: Callable[[Array, Array, float], Array]
    slider: Slider | None = None


def held(outcomes: Array, steps: int) -> bool:
    """Whether any `steps` neighboring outcomes are all true."""
    return any(outcomes[i : i + steps].all() for i in range(len(outcomes) - steps + 1))


@dataclass(frozen=True)
class Verdict:
    """When the states that a trial executed count as success."""

    reached: Callable[[Array, Array], Array]  # (..., S), (..., S) -> (...,) bool: a state is at the goal
    steps: int = 1  # for so many steps in a row
    # (T+1, S) the start and what follows, (S,) the goal -> (T,) bool: up to each step the way there was a valid one
    route: Callable[[Array, Array], Array] | None = None

    def passed(self, states: Array, goal: Array) -> bool:
        """(T+1, S), the start first, which never counts; (S,)."""
        outcomes = np.asarray(self.reached(states[1:], goal), bool)
        return held(outcomes if self.route is None else outcomes & self.route(states, goal), self.steps)


@dataclass(frozen=True)
class ClearLewm:
    """What the evaluation specification of CLEAR-LeWM, an audit of this benchmark, says of a task. Its v0.5, v0.8 and
    v0.9 agree on all of it."""

    moderate: Verdict  # the published success, repaired where that is wrong
    strict: Verdict  # what the task is about, more precisely, and kept
    at_rest: Callable[[Array], Array]  # (S,) -> (S,): the same scene, nothing moving
    # (R, S) all rows, (N,) starts, rows ahead -> (N,) bool: pairs that may become trials; by default all
    pairs: Callable[[Array, Array, int], Array] | None = None
    simulator: Callable[[Mapping[str, Any]], Simulator] | None = None  # with corrected physics, where they need that


@dataclass(frozen=True)
class Task:
    """All that the package knows about a task. What has a default may be left out."""

    name: str
    action_dim: int
    state_dim: int
    simulator: Callable[[Mapping[str, Any]], Simulator]  # (visuals) -> a live environment
    behavior: Callable[[Simulator, np.random.Generator], Behavior]  # who collects the data
    success: Callable[[Array, Array], Array]  # (..., S), (..., S) -> (...,) bool
    title: str = ""
    env_id: str = ""  # the environment's public name
    error: Callable[[Array, Array], Array] = distance  # (..., S), (..., S) -> (...,) in `error_unit`
    error_unit: str = ""
    object_success: Callable[[Array, Array], Array] | None = None  # as `success`, of what is moved alone
    clear_lewm: ClearLewm | None = None  # verdicts and trials `moderate` and `strict`
    state_columns: tuple[tuple[str, ...], ...] = ()  # layouts of released datasets, each concatenating to `state`
    # what a dataset calls its columns, where not as we do: see `data.formats.rename_columns`
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    probe: Callable[[Array], Array] = whole_state  # (..., S) -> (..., P); what a frame shows of the state
    probe_names: tuple[str, ...] = ()
    probe_unit: str = ""
    action_low: float | tuple[float, ...] = -1.0  # one number for all dimensions, or one for each
    action_high: float | tuple[float, ...] = 1.0
    visuals: Mapping[str, Any] = field(default_factory=dict)  # how frames are drawn, passed to `simulator`
    native_visuals: Mapping[str, Any] = field(default_factory=dict)  # as released datasets were drawn
    correction: Callable[[Simulator, np.random.Generator], Behavior] | None = (
        None  # shows how a missed goal is corrected
    )
    away: Callable[[Array, int], Array] | None = (
        None  # a goal state with all that is scored put elsewhere; two places, 0 and 1
    )
    plan_view: Callable[[Array], Array] | None = None  # (T, S) -> (T, P, 2): where things are, as shares of the frame
    goal_click: GoalClick | None = None  # how a person sets a goal by hand; without it goals are taken from episodes
    kick: Callable[[Array, np.random.Generator], Array] | None = None  # (S,) -> (S,): the scene after a shove
    # what this task changes in a scale and in a recipe, by their names
    scales: Mapping[str, Adjust] = field(default_factory=dict, repr=False)
    recipes: Mapping[str, Adjust] = field(default_factory=dict, repr=False)
    # at a scale, sizes of world networks that this task wants otherwise, wherever a family has a size of that name
    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        defaults = {"title": self.name, "probe_names": tuple(f"state_{i}" for i in range(self.state_dim))}
        for name, value in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name in ("action_low", "action_high"):
            if len(_per_dimension(getattr(self, name), self.action_dim)) != self.action_dim:
                raise ValueError(
                    f"{self.name}: {name} needs one number, or {self.action_dim}; got {getattr(self, name)}."
                )

    @property
    def low(self) -> tuple[float, ...]:
        return _per_dimension(self.action_low, self.action_dim)

    @property
    def high(self) -> tuple[float, ...]:
        return _per_dimension(self.action_high, self.action_dim)

    def simulate(self, recorded: Mapping[str, Any] | None = None) -> Simulator:
        """A live environment that draws by default as `collect` does; `recorded`: as a dataset or a world recorded it.
        Released ones record nothing and saw native visuals."""
        if recorded is None:
            return self.simulator(self.visuals)
        return self.simulator(recorded or self.native_visuals)


def _per_dimension(value: float | tuple[float, ...], size: int) -> tuple[float, ...]:
    return tuple(float(v) for v in value) if isinstance(value, tuple) else (float(value),) * size


def farthest_corner(place: Array, low: float, high: float, number: int) -> Array:
    """Of a square's corners, the one farthest from a place, or the next."""
    corners = np.array([[low, low], [low, high], [high, low], [high, high]])
    return corners[np.argsort(-np.linalg.norm(corners - place, axis=1), kind="stable")[number]]


def wrapped(angle: Array) -> Array:
    """The same angle in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


class SmoothNoise:
    """First-order autoregressive noise of unit variance: neighboring actions err alike, as real ones do."""

    def __init__(self, rng: np.random.Generator, dim: int, memory: float):
        self.rng, self.memory = rng, memory
        self.value = rng.normal(size=dim)

    def draw(self) -> Array:
        fresh = self.rng.normal(size=self.value.shape)
        self.value = self.memory * self.value + np.sqrt(1 - self.memory**2) * fresh
        return self.value
