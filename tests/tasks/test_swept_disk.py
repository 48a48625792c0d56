"""TwoRoom's corrected physics: closed forms, laws over random moves, and stable-worldmodel's own geometry."""

from __future__ import annotations

import numpy as np
import pytest

from leplanner.tasks import TASKS, swept_disk
from leplanner.tasks.swept_disk import RADIUS_PX, clear, crosses, legal, move


@pytest.fixture(scope="module")
def swept():
    simulator = TASKS["tworoom"].clear_lewm.simulator({})
    yield simulator
    simulator.close()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ((50, 50), (54, 53), (54, 53)),  # nothing in the way
        ((90, 120), (110, 120), (100, 120)),  # the wall begins at 107, the disk's center 7 before it
        ((90, 120), (150, 120), (100, 120)),  # however far the step would lead
        ((134, 120), (110, 120), (124, 120)),
        ((95, 120), (115, 140), (100, 140)),  # slides on along the wall
        ((80, 49), (150, 49), (150, 49)),  # through the door
        ((112, 50), (112, 80), (112, 56)),  # in the door, against its post
        ((30, 30), (10, 40), (21, 40)),  # the outer walls
    ],
)
def test_where_a_disk_comes(start, end, expected):
    assert move(np.array(start), np.array(end)) == pytest.approx(expected, abs=1e-3)


def test_a_door_post_turns_a_disk_aside():
    """It touches the corner (107, 63) where the center is 7 px from it, and goes on along the tangent there."""
    start, corner = np.array([90.0, 58.0]), np.array([107.0, 63.0])
    touch = np.array([107 - np.sqrt(49 - 25), 58.0])
    normal = (touch - corner) / RADIUS_PX
    left = np.array([8.0, 0.0])
    end = touch + left
    assert move(start, end) == pytest.approx(touch + left - (left @ normal) * normal, abs=1e-3)


def test_moves_end_clear_and_what_was_executed_is_legal():
    rng = np.random.default_rng(0)
    place, blocked = np.array([90.0, 49.0]), 0
    for _ in range(3000):
        wanted = place + rng.uniform(-9, 9, 2) + 0.2 * np.sign([112.0, 49.0] - place)
        reached = np.float32(move(place, wanted)).astype(float)  # as the environment stores it
        assert clear(reached)
        assert legal(place, reached)
        assert legal(reached, place)
        blocked += not np.allclose(reached, wanted, atol=1e-3)
        place = reached
    assert blocked > 100


def test_a_straight_move_is_legal_when_every_place_on_it_is_clear():
    rng = np.random.default_rng(0)
    starts, ends = rng.uniform([70, 21], [154, 120], (2, 4000, 2))
    on_the_way = starts[:, None] + np.linspace(0, 1, 2001)[None, :, None] * (ends - starts)[:, None]
    judged, sampled = legal(starts, ends), clear(on_the_way).all(axis=1)
    assert not (judged & ~sampled).any()
    assert (judged != sampled).sum() <= 4  # a corner that is grazed between two samples
    assert 0.1 < judged.mean() < 0.9


def test_crossing_is_from_one_room_to_the_other():
    places = np.array([[100.0, 49], [112.0, 49], [120.0, 49], [112.0, 49]])
    assert crosses(places[:-1], places[1:]).tolist() == [True, False, True]  # the middle belongs to neither
    assert not crosses(places[:1], places[:1]).any()


def test_the_geometry_is_stable_worldmodels(swept):
    env = swept.env
    assert (env.wall_axis, env.num_doors, env.WALL_CENTER) == (1, 1, swept_disk.WALL_X)
    assert float(env.variation_space["agent"]["radius"].value.item()) == RADIUS_PX
    assert (float(env.door_positions[0]), float(env.door_sizes[0])) == (swept_disk.DOOR_Y, swept_disk.DOOR_HALF_PX)
    half = env.wall_thickness // 2
    assert (env.WALL_CENTER - half, env.WALL_CENTER + half) == swept_disk.WALL_PX
    inner = env.BORDER_SIZE + RADIUS_PX
    assert (inner, env.IMG_SIZE - inner) == swept_disk.PLACES_PX


def test_the_corrected_environment_does_not_clip_the_door_post(swept, simulators):
    ends = []
    for simulator in (swept, simulators("tworoom")):
        simulator.set_state(np.array([95.0, 57.5]))
        for _ in range(8):
            simulator.step(np.array([1.0, 0.0], np.float32))
        ends.append(simulator.state())
    assert ends[0][0] > 112  # it came through, a little lower
    assert ends[0][1] < 56.001
    assert ends[1][1] == 57.5
