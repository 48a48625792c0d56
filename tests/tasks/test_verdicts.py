"""Verdicts on states that were executed: what passes, and the near-misses that must not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from leplanner.evaluation.metrics import score_states
from leplanner.tasks import TASKS
from leplanner.tasks.reacher import arms_to, fingertip

PUSHT, REACHER, TWOROOM, CUBE = (TASKS[name] for name in ("pusht", "reacher", "tworoom", "cube"))


def passed(task, states, goal):
    """By moderate and by strict."""
    outcome = score_states(task, np.array(states, float), np.array(goal, float))
    return outcome["moderate"], outcome["strict"]


def steps(elsewhere, *states):
    return [elsewhere, *states]


# PushT

GOAL = np.array([300.0, 300, 200, 200, 0.05, 0, 0])
FAR = GOAL + [0, 0, 100, 0, 0, 0, 0]


def pusht(agent=0.0, block=0.0, degrees=0.0):
    state = GOAL + [agent, 0, 0, block, np.deg2rad(degrees), 0, 0]
    state[4] %= 2 * np.pi  # as the environment tells it
    return state


@pytest.mark.parametrize(
    ("state", "moderate", "strict"),
    [
        (pusht(), True, True),
        (pusht(agent=19.9), True, True),
        (pusht(agent=20.0), False, True),  # the agent counts for moderate alone
        (pusht(block=9.9, degrees=9.9), True, True),
        (pusht(block=10.0), True, False),
        (pusht(block=15.0, agent=15.0), False, False),  # together they are 21 px off
        (pusht(degrees=-9.9), True, True),  # over zero
        (pusht(degrees=-10.1), True, False),
        (pusht(degrees=-19.9), True, False),
        (pusht(degrees=-20.1), False, False),
    ],
)
def test_pusht(state, moderate, strict):
    assert passed(PUSHT, steps(FAR, state, state, state), GOAL) == (moderate, strict)


def test_pusht_is_kept_for_three_steps():
    near = pusht()
    assert passed(PUSHT, steps(FAR, near, near, FAR, near, near), GOAL) == (True, False)
    assert passed(PUSHT, [near, near, near], GOAL) == (True, False)  # the start never counts


def test_the_papers_pusht_asks_for_the_object_alone():
    def alone(state):
        outcome = score_states(PUSHT, np.stack([FAR, state]), GOAL)
        return outcome["object"], outcome["any"]

    assert alone(pusht(agent=100.0, block=19.9, degrees=-19.9)) == (True, False)
    assert alone(pusht(block=20.0)) == (False, False)
    assert alone(pusht(degrees=20.1)) == (False, False)


# Reacher

ARM = np.array([0.3, -0.8, 0.0, 0.0])


@pytest.mark.parametrize(
    ("off", "moderate"),
    [
        ((0.049, -0.049), True),
        ((0.0, 0.051), False),
        ((2 * np.pi, 0.0), True),  # the shoulder turns freely
        ((-2 * np.pi + 0.04, 0.04), True),
        ((0.0, 2 * np.pi), False),  # the wrist has stops
    ],
)
def test_reacher_matches_joints(off, moderate):
    assert passed(REACHER, [ARM + 1, ARM + [*off, 0, 0]], ARM)[0] == moderate
    assert score_states(REACHER, np.stack([ARM + 1, ARM + [*off, 0, 0]]), ARM)["any"] == (off[1] != 0.051)


def test_reacher_brings_the_fingertip_there_by_whatever_joints():
    mirrored = np.concatenate([max(arms_to(fingertip(ARM)), key=lambda arm: arm[1]), np.zeros(2)])
    assert fingertip(mirrored) == pytest.approx(fingertip(ARM))
    assert passed(REACHER, [ARM + 1, mirrored, mirrored], ARM) == (False, True)
    assert passed(REACHER, [ARM + 1, mirrored, ARM + 1, mirrored], ARM) == (False, False)  # never for two steps
    # the shoulder moves the fingertip on a circle about the origin: a chord of 1 cm is reached, a longer one is not
    radius = np.linalg.norm(fingertip(ARM))
    for chord_m, reached in ((0.0099, True), (0.0101, False)):
        turned = ARM + [2 * np.arcsin(chord_m / 2 / radius), 0, 0, 0]
        assert passed(REACHER, [ARM + 1, turned, turned], ARM)[1] == reached


def test_the_fingertip_is_where_the_simulator_says(simulators):
    sim = simulators("reacher")
    sim.set_state(np.array([0.7, -1.2, 0.0, 0.0]))
    expected = sim.env.env.physics.named.data.geom_xpos["finger", :2]
    assert np.allclose(fingertip(np.array([0.7, -1.2])), expected, atol=1e-6)


# TwoRoom


def straight(start, end, y=49.0, stride=5.0):
    x = np.arange(start, end + 0.1, stride)
    return np.stack([x, np.full_like(x, y)], axis=1)


@pytest.mark.parametrize(
    ("places", "goal", "strict"),
    [
        (straight(80, 160), (160.0, 49.0), True),
        (straight(80, 160), (167.9, 49.0), True),
        (straight(80, 160), (168.0, 49.0), False),
        (straight(80, 160, y=55.9), (160.0, 56.0), True),  # a whole disk fits through between 42 and 56
        (straight(80, 160, y=57.0), (160.0, 57.0), False),  # its center passes, its edge does not
        (straight(80, 160, y=120.0), (160.0, 120.0), False),  # through the wall
        (straight(80, 100), (105.0, 49.0), True),  # in its own room no door is asked for
        (straight(81, 111), (114.0, 49.0), False),  # 3 px away, on the other side
        (straight(84, 114), (114.0, 49.0), True),
        (straight(80, 160) * [1, 0] + [0, 15], (160.0, 15.0), False),  # in the outer wall
    ],
)
def test_tworoom(places, goal, strict):
    assert passed(TWOROOM, places, goal) == (True, strict)


def test_an_illegal_step_is_not_made_good_later():
    back = np.concatenate([straight(80, 160, y=120.0), straight(80, 160, y=120.0)[::-1], straight(80, 160)])
    assert passed(TWOROOM, back, (160.0, 49.0)) == (True, False)
    there_first = np.concatenate([straight(80, 160), straight(80, 160, y=120.0)[::-1]])
    assert passed(TWOROOM, there_first, (160.0, 49.0)) == (True, True)  # success was before


# Cube


def cube(place=0.0, rotation=None):
    state = np.zeros(41)
    state[14:17] = [0.4, place, 0.02]
    x, y, z, w = (rotation or Rotation.identity()).as_quat()
    state[17:21] = [w, x, y, z]
    return state


@pytest.mark.parametrize("number", range(24))
def test_a_cube_looks_the_same_in_24_rotations(number):
    same, target = Rotation.create_group("O")[number], Rotation.from_euler("zyx", [0.3, 0.2, -0.1])
    goal = cube(rotation=target)
    axis = np.array([1.0, 2.0, -0.5]) / np.linalg.norm([1.0, 2.0, -0.5])
    for degrees, strict in ((14.9, True), (15.1, False)):
        slant = Rotation.from_rotvec(np.deg2rad(degrees) * axis)
        state = cube(rotation=slant * target * same)
        assert passed(CUBE, [cube(1.0), state, state, state], goal) == (True, strict)


@pytest.mark.parametrize(
    ("off", "moderate", "strict"), [(0.0299, True, True), (0.0301, True, False), (0.041, False, False)]
)
def test_cube_is_near(off, moderate, strict):
    assert passed(CUBE, [cube(1.0), *[cube(off)] * 3], cube()) == (moderate, strict)


def test_cube_is_kept_for_three_steps():
    there, away = cube(), cube(0.035)
    assert passed(CUBE, [away, there, there, away, there], cube()) == (True, False)
    mirror = there.copy()
    mirror[17:21] *= -1  # the same rotation
    assert passed(CUBE, [away, there, mirror, there], cube()) == (True, True)
