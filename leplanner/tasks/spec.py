"""What a task is: its action box, what its state means, when a goal counts as reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Array = np.ndarray


class Simulator(Protocol):
    """One live environment. `state` holds everything that `set_state` needs to continue exactly from there."""

    def start(self, rng: np.random.Generator) -> None:
        """Put the environment in a random initial state drawn from `rng`."""
        ...

    def state(self) -> Array: ...

    def set_state(self, state: Array) -> None: ...

    def set_goal(self, goal_state: Array) -> None: ...

    def step(self, action: Array) -> None:
        """Apply one raw environment action."""
        ...

    def render(self, size: int) -> Array:
        """uint8 (size, size, 3)."""
        ...

    def close(self) -> None: ...


class Behaviour(Protocol):
    """A policy that collects data; it may read the simulator's state, or look at the last frame that was kept."""

    def act(self, frame: Array | None = None) -> Array: ...


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    env_id: str
    env_options: dict[str, Any] = field(repr=False)
    action_dim: int
    state_dim: int
    state_columns: tuple[str, ...]  # columns of released datasets that concatenate to `state`
    error_unit: str
    error: Callable[[Array, Array], Array]  # (..., S), (..., S) -> (...,) in `error_unit`
    success: Callable[[Array, Array], Array]  # (..., S), (..., S) -> (...,) bool
    strict: Callable[[Array, Array], bool]  # (T+1, S) the start, which does not count, and what follows; (S,) goal
    probe_names: tuple[str, ...]
    probe_unit: str
    probe: Callable[[Array], Array]  # (..., S) -> (..., len(probe_names)); what a frame shows of the state
    behaviour: Callable[[Simulator, np.random.Generator], Behaviour]
    away: Callable[[Array, int], Array]  # a goal state with all that is judged put elsewhere; two places, 0 and 1
    # how a missed goal is corrected, shown in a share of practice
    correcting: Callable[[Simulator, np.random.Generator], Behaviour] | None = None
    plan_view: Callable[[Array], Array] | None = None  # (T, S) -> (T, P, 2): where things are, as shares of the frame
    action_low: float = -1.0
    action_high: float = 1.0


def held(verdicts: Array, steps: int) -> bool:
    """Whether any `steps` neighbouring verdicts are all true."""
    return any(verdicts[i : i + steps].all() for i in range(len(verdicts) - steps + 1))


def farthest_corner(place: Array, low: float, high: float, number: int) -> Array:
    """Of a square's corners, the one farthest from a place, or the next."""
    corners = np.array([[low, low], [low, high], [high, low], [high, high]])
    return corners[np.argsort(-np.linalg.norm(corners - place, axis=1), kind="stable")[number]]


def wrapped(angle: Array) -> Array:
    """The same angle in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


class SmoothNoise:
    """First-order autoregressive noise of unit variance: neighbouring actions err alike, as real ones do."""

    def __init__(self, rng: np.random.Generator, dim: int, memory: float):
        self.rng, self.memory = rng, memory
        self.value = rng.normal(size=dim)

    def draw(self) -> Array:
        fresh = self.rng.normal(size=self.value.shape)
        self.value = self.memory * self.value + np.sqrt(1 - self.memory**2) * fresh
        return self.value
