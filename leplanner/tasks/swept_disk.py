"""TwoRoom with walls that hold: the agent is a disk that moves without a gap between steps and slides along what it
touches. stable-worldmodel looks only at where a step ends, so that a disk clips door posts and may pass a wall."""

from __future__ import annotations

import numpy as np

from ..core.actions import Array

RADIUS_PX = 7.0
FLOOR_PX = 224.0
PLACES_PX = (14.0 + RADIUS_PX, FLOOR_PX - 14.0 - RADIUS_PX)  # where a disk's center can be between the outer walls
WALL_X = 112.0
WALL_PX = (107.0, 117.0)  # across
DOOR_Y, DOOR_HALF_PX = 49.0, 14.0
WALLS = np.array(  # what is left of the wall beside the door: lower corner, upper corner
    [
        [[WALL_PX[0], 0.0], [WALL_PX[1], DOOR_Y - DOOR_HALF_PX]],
        [[WALL_PX[0], DOOR_Y + DOOR_HALF_PX], [WALL_PX[1], FLOOR_PX]],
    ]
)
SKIN_PX = 1e-4  # kept from a wall after touching it: the environment stores places in float32
TOLERANCE_PX = 1e-6
CONTACTS = 4  # in one step


def clear(place: Array) -> Array:
    """(..., 2) -> (...,) bool: a whole disk fits there."""
    inside = np.all((place >= PLACES_PX[0] - TOLERANCE_PX) & (place <= PLACES_PX[1] + TOLERANCE_PX), axis=-1)
    return inside & (_gap(place) >= RADIUS_PX - TOLERANCE_PX)


def legal(before: Array, after: Array) -> Array:
    """(..., 2), (..., 2) -> (...,) bool: a disk can go straight from one to the other."""
    return clear(before) & clear(after) & (_gap_on_the_way(before, after) >= RADIUS_PX - TOLERANCE_PX)


def side(place: Array) -> Array:
    """(..., 2) -> (...,): -1 in the left room, 1 in the right one."""
    return np.sign(place[..., 0] - WALL_X)


def opposite(start: Array, goal: Array) -> Array:
    return side(start) * side(goal) < 0


def crosses(before: Array, after: Array) -> Array:
    """(..., 2), (..., 2) -> (...,) bool: from one room to the other, or to the middle of the wall between them."""
    return (side(before) != 0) & (side(before) != side(after))


def clean_pairs(places: Array, rows: Array, ahead: int) -> Array:
    """(R, 2), (N,) -> (N,) bool: in opposite rooms, and every recorded step from start to goal is legal."""
    illegal = np.concatenate([[0], np.cumsum(~legal(places[:-1], places[1:]))])
    return opposite(places[rows], places[rows + ahead]) & (illegal[rows] == illegal[rows + ahead])


def valid_route(places: Array, goal: Array) -> Array:
    """(T+1, 2), (2,) -> (T,) bool: up to each step all was legal, and the agent is in the goal's room, where it came
    through the door unless it started there."""
    before, after = places[:-1], places[1:]
    unbroken = np.logical_and.accumulate(legal(before, after)) & clear(goal)
    came = np.logical_or.accumulate(crosses(before, after)) | ~opposite(places[0], goal)
    return unbroken & came & (side(after) == side(goal))


def move(start: Array, end: Array) -> Array:
    """(2,), (2,) -> (2,): where a disk comes that wants to get from start to end."""
    place = np.clip(np.asarray(start, np.float64), *PLACES_PX)
    way = np.clip(np.asarray(end, np.float64), *PLACES_PX) - place
    for _ in range(CONTACTS):
        touch = min(_touches(place, way), key=lambda touch: touch[0], default=None)
        if touch is None:
            place = place + way
            break
        share, normal = touch
        place = place + share * way + SKIN_PX * normal
        way = (1 - share) * way
        way = way - min(0.0, float(way @ normal)) * normal  # what is left of it along the wall
    return np.clip(place, *PLACES_PX)


def _gap(place: Array) -> Array:
    """From a place to the nearest wall."""
    nearest = np.clip(place[..., None, :], WALLS[:, 0], WALLS[:, 1])
    return np.linalg.norm(place[..., None, :] - nearest, axis=-1).min(axis=-1)


def _corners() -> Array:
    return np.array([[x, y] for low, high in WALLS for x in (low[0], high[0]) for y in (low[1], high[1])])


def _gap_on_the_way(before: Array, after: Array) -> Array:
    """From a straight line to the nearest wall: where it passes one, zero; else at one of its ends or at a corner."""
    way = (after - before)[..., None, :]
    to_corner = _corners() - before[..., None, :]
    share = np.clip((to_corner * way).sum(-1) / np.maximum((way * way).sum(-1), 1e-12), 0.0, 1.0)
    corners = np.linalg.norm(to_corner - share[..., None] * way, axis=-1).min(axis=-1)
    steps = np.where(np.abs(way) < 1e-12, 1e-12, way)
    first, second = ((WALLS[:, corner] - before[..., None, :]) / steps for corner in (0, 1))
    enters, leaves = np.minimum(first, second).max(axis=-1), np.maximum(first, second).min(axis=-1)
    passes = np.any((enters <= leaves) & (leaves >= 0) & (enters <= 1), axis=-1)
    return np.where(passes, 0.0, np.minimum(corners, np.minimum(_gap(before), _gap(after))))


def _touches(place: Array, way: Array) -> list[tuple[float, Array]]:
    """Share of the way after which the disk touches a wall, and the wall's direction there, for all that it would
    move into."""
    found: list[tuple[float, Array]] = []
    for low, high in WALLS:
        for axis, sign in ((0, -1), (0, 1), (1, -1), (1, 1)):
            ahead = sign * (place[axis] - (high if sign > 0 else low)[axis])
            if ahead <= 0 or sign * way[axis] >= 0:  # behind this side of the wall, or not moving towards it
                continue
            share = max(0.0, (ahead - RADIUS_PX) / -(sign * way[axis]))
            along = place[1 - axis] + share * way[1 - axis]
            if share <= 1 and low[1 - axis] <= along <= high[1 - axis]:
                found.append((share, sign * np.eye(2)[axis]))
    for corner in _corners():
        away = place - corner
        towards, length = float(away @ way), float(way @ way)
        inside = towards**2 - length * (float(away @ away) - RADIUS_PX**2)
        if towards >= 0 or inside < 0:
            continue
        share = max(0.0, (-towards - np.sqrt(inside)) / length)
        if share <= 1:
            there = away + share * way
            found.append((share, there / np.linalg.norm(there)))
    return found
