"""TwoRoom: a dot in two rooms joined by a door; positions in pixels of a 224 px floor plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.config import changed
from . import swept_disk
from .spec import (
    LIGHT,
    NATIVE,
    Array,
    ClearLewm,
    GoalClick,
    Simulator,
    SmoothNoise,
    Task,
    Verdict,
    farthest_corner,
    whole_state,
)
from .swept_disk import DOOR_Y, FLOOR_PX, WALL_X

SPEED_PX = 5.0  # how far a unit action moves the dot
FREE_PX = (22.0, 202.0)  # where the dot's center can be, walls and radius taken off
WALL_HALF_PX = 13.0
SUCCESS_PX, STRICT_PX = 16.0, 8.0


def error(state: Array, goal: Array) -> Array:
    return np.linalg.norm(state[..., :2] - goal[..., :2], axis=-1)


def success(state: Array, goal: Array) -> Array:
    return error(state, goal) < SUCCESS_PX


def near(state: Array, goal: Array) -> Array:
    return error(state, goal) < STRICT_PX


def free_position(rng: np.random.Generator) -> Array:
    while True:
        position = rng.uniform(*FREE_PX, size=2)
        if abs(position[0] - WALL_X) > WALL_HALF_PX:
            return position


class ThroughTheDoor:
    """Walks to random goals, through the door when it lies between, lingers, and picks a new goal.

    Each episode has its own noise level and its own top speed, so that the data holds straight and
    crooked, fast and slow ways.
    """

    def __init__(self, sim: Simulator, rng: np.random.Generator):
        self.sim, self.rng = sim, rng
        self.noise_level = rng.uniform(0.0, 1.0)
        self.speed = rng.uniform(0.6, 1.0)
        self.noise = SmoothNoise(rng, 2, memory=0.8)
        self.goal, self.linger = free_position(rng), 0

    def act(self, frame: Array | None = None) -> Array:
        position = self.sim.state()[:2]
        if np.linalg.norm(self.goal - position) < 6.0:
            if self.linger > 0:
                self.linger -= 1
            else:
                self.goal = free_position(self.rng)
                self.linger = int(self.rng.integers(0, 12))
        way = self._waypoint(position) - position
        distance = float(np.linalg.norm(way))
        direct = way / max(distance, 1e-9) * min(self.speed, distance / SPEED_PX)
        return np.clip(direct + self.noise_level * self.noise.draw(), -1.0, 1.0)

    def _waypoint(self, position: Array) -> Array:
        side, goal_side = np.sign(position[0] - WALL_X), np.sign(self.goal[0] - WALL_X)
        if side == goal_side:
            return self.goal
        if abs(position[1] - DOOR_Y) > 8.0:  # first in front of the door, then through it
            return np.array([WALL_X + side * (WALL_HALF_PX + 5.0), DOOR_Y])
        return np.array([WALL_X + goal_side * (WALL_HALF_PX + 5.0), DOOR_Y])


def away(state: Array, number: int) -> Array:
    return farthest_corner(state, *FREE_PX, number)


def goal_at(state: Array, click: Array, value: float) -> Array:
    """The dot where the click is, or as near as walls allow."""
    place = np.clip(np.asarray(click) * FLOOR_PX, *FREE_PX)
    if abs(place[0] - WALL_X) <= WALL_HALF_PX:
        raise ValueError("The wall is there: click in one of the two rooms.")
    return place


def kick(state: Array, rng: np.random.Generator) -> Array:
    """Up to 30 px aside, within the room."""
    angle, far_px = rng.uniform(0, 2 * np.pi), rng.uniform(15.0, 30.0)
    moved = np.clip(state + far_px * np.array([np.cos(angle), np.sin(angle)]), *FREE_PX)
    side = np.sign(state[0] - WALL_X) or 1.0
    moved[0] = WALL_X + side * max(side * (moved[0] - WALL_X), WALL_HALF_PX + 1.0)
    return moved


def simulator(visuals: Mapping[str, Any]) -> Simulator:
    from .swm_tworoom import TwoRoomSimulator

    return TwoRoomSimulator(visuals)


def swept_simulator(visuals: Mapping[str, Any]) -> Simulator:
    from .swm_tworoom import SweptTwoRoomSimulator

    return SweptTwoRoomSimulator(visuals)


CLEAR_LEWM = ClearLewm(
    moderate=Verdict(success),
    strict=Verdict(near, route=swept_disk.valid_route),
    at_rest=whole_state,  # the dot has no velocity
    pairs=swept_disk.clean_pairs,
    simulator=swept_simulator,
)


def _compact(preset: Any) -> Any:
    return replace(preset, world=changed(preset.world, steps=3200), training=changed(preset.training, steps=4500))


def _paper(preset: Any) -> Any:
    """The paper's exception for this task, at every scale."""
    return replace(preset, training=changed(preset.training, batch=32, learning_rate=1e-4))


def _best(preset: Any) -> Any:
    training = changed(preset.training, tracking_weight=0.1, perturb_prob=0.25, far_goal_prob=0.4)
    return replace(preset, training=training)


TASK = Task(
    name="tworoom",
    title="TwoRoom",
    env_id="swm/TwoRoom-v1",
    action_dim=2,
    state_dim=2,
    state_columns=(("proprio",),),
    error_unit="px",
    error=error,
    success=success,
    clear_lewm=CLEAR_LEWM,
    probe_names=("agent_x", "agent_y"),
    probe_unit="px of 224",
    probe=lambda state: state[..., :2],
    behavior=ThroughTheDoor,
    away=away,
    plan_view=lambda states: states[:, None, :2] / FLOOR_PX,
    goal_click=GoalClick("Click where the dot should be.", goal_at),
    kick=kick,
    simulator=simulator,
    visuals=LIGHT,
    native_visuals=NATIVE,
    scales={"compact": _compact, "paper": _paper},
    recipes={"paper": _paper, "best": _best},
    networks={"compact": {"extra_convolutions": 0}},  # one dot on a floor plan: those that shrink the frame suffice
)
