"""Cube: a robot arm carries a cube; state is qpos(21), qvel(20), the cube's pose being qpos[14:21]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from ..core.config import changed
from .pinhole import Pinhole
from .spec import LIGHT, NATIVE, Array, ClearLewm, GoalClick, Simulator, Slider, Task, Verdict

SUCCESS_M = 0.04
POSITIONS = 21  # numbers of qpos; velocities follow
BLOCK, TURN = slice(14, 17), [18, 19, 20, 17]  # the cube's position, and its quaternion in SciPy's order (x, y, z, w)


_QUARTER = np.pi / 2
JOINTS = (  # of the arm: where each sits on the link before it, how it is turned there, and its axis
    ((0.0, 0.0, 0.163), (0.0, 0.0, _QUARTER), (0, 0, 1)),
    ((0.0, 0.138, 0.0), (0.0, _QUARTER, 0.0), (0, 1, 0)),
    ((0.0, -0.131, 0.425), (0.0, 0.0, 0.0), (0, 1, 0)),
    ((0.0, 0.0, 0.392), (0.0, _QUARTER, 0.0), (0, 1, 0)),
    ((0.0, 0.127, 0.0), (0.0, 0.0, 0.0), (0, 0, 1)),
    ((0.0, 0.0, 0.1), (0.0, 0.0, 0.0), (0, 1, 0)),
)
HAND = np.array([0.0, 0.1 + 0.0108 + 0.145, 0.0])  # from the last joint to between the fingertips
FINGERS, CLOSED_RAD = 6, 0.8  # the finger's joint, and its angle when the empty hand is closed
HOLDING_RAD = (0.45, 0.0, 0.447, -0.44) * 2  # the hand's eight joints when it holds the cube
HAND_TURN_M = 0.3  # a radian of the hand's turn counts as much as this far
LET_GO_M = 0.07  # the open hand's height over a cube that it put down
LYING_M = 0.02  # the height of the cube's center on the table
TABLE_M = ((0.25, -0.35), (0.6, 0.35))  # where the data moves the cube: from, to
_BACK = (0.7781291801667516, 0.6281042739649356)  # how much the camera looks along the table, and how much down on it
CAMERA = Pinhole((1.053, -0.014, 0.639), right=(0.0, 1.0, 0.0), up=(-_BACK[1], 0.0, _BACK[0]), fovy_deg=45.0)


def error(state: Array, goal: Array) -> Array:
    return np.linalg.norm(state[..., BLOCK] - goal[..., BLOCK], axis=-1)


def success(state: Array, goal: Array) -> Array:
    return error(state, goal) <= SUCCESS_M


def turn(state: Array, goal: Array) -> Array:
    """The smallest angle between two poses of a cube, any of whose 24 rotations looks the same, in radians."""
    relative = Rotation.from_quat(goal[..., TURN]).inv() * Rotation.from_quat(state[..., TURN])
    return np.min([(relative * same).magnitude() for same in Rotation.create_group("O")], axis=0)


def posed(state: Array, goal: Array) -> Array:
    return (error(state, goal) <= 0.03) & (turn(state, goal) <= np.deg2rad(15))


CLEAR_LEWM = ClearLewm(
    moderate=Verdict(success),
    strict=Verdict(posed, steps=3),
    at_rest=lambda state: np.concatenate([state[:POSITIONS], np.zeros_like(state[POSITIONS:])]),
)


def _kinematics(angles: Array) -> tuple[Array, Rotation]:
    """(B, 6) -> (B, 3) and B rotations: where the fingertips are, and how the hand is turned."""
    place, turned = np.zeros((len(angles), 3)), Rotation.identity(len(angles))
    for (offset, mounted, axis), angle in zip(JOINTS, angles.T, strict=True):
        place = place + turned.apply(offset)
        turned = turned * Rotation.from_rotvec(mounted) * Rotation.from_rotvec(angle[:, None] * np.array(axis))
    return place + turned.apply(HAND), turned


def _hand_pose(state: Array) -> tuple[Array, Array]:
    """(..., S) -> (..., 3) and (...,): where the fingertips are, and how the hand is turned about the vertical."""
    place, turned = _kinematics(state[..., : len(JOINTS)].reshape(-1, len(JOINTS)))
    across = turned.apply([0.0, 0.0, 1.0])  # the hand points down, and this lies level
    shape = state.shape[:-1]
    return place.reshape(*shape, 3), np.arctan2(across[:, 1], across[:, 0]).reshape(shape)


def _yaw(state: Array) -> Array:
    """(..., S) -> (...,): how the cube is turned about the vertical."""
    edge = Rotation.from_quat(state[..., TURN].reshape(-1, 4)).apply([1.0, 0.0, 0.0])
    return np.arctan2(edge[:, 1], edge[:, 0]).reshape(state.shape[:-1])


def hand(state: Array) -> Array:
    """Where the fingertips are: (..., S) -> (..., 3)."""
    return _hand_pose(state)[0]


def plan_view(states: Array) -> Array:
    """The cube's center and between the fingertips."""
    return CAMERA.project(np.stack([states[..., BLOCK], hand(states)], axis=-2))


def probe(state: Array) -> Array:
    """Cube, hand and fingers: whether a grasp will hold is decided by a centimetre between them, and by how the hand is
    turned to the cube. A cube looks the same after a quarter turn, a hand of two fingers after half a turn."""
    closed = np.clip(state[..., FINGERS, None] / CLOSED_RAD, 0.0, 1.0)
    place, turned = _hand_pose(state)
    cube = _yaw(state)
    turns = np.stack([np.sin(4 * cube), np.cos(4 * cube), np.sin(2 * turned), np.cos(2 * turned)], axis=-1)
    return np.concatenate([state[..., BLOCK], place, closed, turns], axis=-1)


class RestlessOracle:
    """OGBench's scripted oracle; when it has placed the cube, it gets a new target, so that cubes keep moving.

    Now and then it misses: it closes the gripper beside the cube, or above it in the air, and carries nothing for a
    while; and its hand slips: for a few steps it is closed or opened wherever it is. A world that never saw that
    imagines that cubes follow whatever the gripper does.

    The oracle draws from numpy's global generator; what it drew is overwritten from ours, which makes
    an episode a function of its seed.
    """

    def __init__(self, sim: Simulator, rng: np.random.Generator):
        from ogbench.manipspace.oracles.markov.cube_markov import CubeMarkovOracle

        self.sim: Any = sim
        self.rng = rng
        self.oracle = CubeMarkovOracle(env=self.sim.env, min_norm=rng.uniform(0.3, 0.6))
        self.noise_level = rng.uniform(0.0, 0.1)
        self.random_share = rng.choice([0.0, 0.0, 0.05])
        self.miss_share = 0.35
        self.slip_share = rng.choice([0.0, 0.01, 0.03])  # of steps that begin one
        self.slipping, self.slip = 0, 0.0
        self.withdraw_share = 0.5  # after placing: withdraw as the oracle does, or turn to the new target at once
        self._new_target()

    def _new_target(self) -> None:
        self.sim.new_target(self.rng)
        global_state = np.random.get_state()
        self.oracle.reset(None, None)
        np.random.set_state(global_state)
        low, high = self.sim.arm_bounds()
        self.oracle._final_pos = self.rng.uniform(low, high)
        self.oracle._final_yaw = self.rng.uniform(-np.pi, np.pi)
        self.withdraw = self.rng.random() < self.withdraw_share
        self.missing = self.rng.random() < self.miss_share
        # a grasp fails from about 3 cm on: where it just holds and where it just fails must both be seen
        angle, beside_m = self.rng.uniform(0, 2 * np.pi), self.rng.uniform(0.0, 0.1)
        above_m = self.rng.uniform(0.0, 0.12) if beside_m < 0.015 or self.rng.random() < 0.5 else 0.0
        self.beside = np.array([beside_m * np.cos(angle), beside_m * np.sin(angle), above_m])
        self.closing, self.carrying = 4, int(self.rng.integers(10, 26))  # steps of a miss, where it began to close

    def _seen(self, info: dict[str, Any]) -> dict[str, Any]:
        """What the oracle is told: the truth, or while it misses a cube beside the real one,
        then one in its empty hand."""
        if not self.missing:
            return info
        hand, cube = info["proprio/effector_pos"], info["privileged/block_0_pos"] + self.beside
        if self.closing > 0:
            self.closing -= int(np.linalg.norm(cube - hand) <= 0.02)
            return info | {"privileged/block_0_pos": cube}
        self.carrying -= 1
        self.missing = self.carrying > 0
        return info | {"privileged/block_0_pos": hand, "proprio/gripper_contact": np.ones(1)}

    def act(self, frame: Array | None = None) -> Array:
        info = self.sim.info()
        action = np.asarray(self.oracle.select_action(None, self._seen(info)))
        placed = np.linalg.norm(info["privileged/target_block_pos"] - info["privileged/block_0_pos"]) <= 0.02
        let_go = info["proprio/gripper_contact"][0] < 0.1 and info["proprio/effector_pos"][2] > 0.12
        if self.oracle.done or (placed and let_go and not self.withdraw):
            self._new_target()
        if self.rng.random() < self.random_share:
            return self.rng.uniform(-1.0, 1.0, size=5)
        action = action + self.rng.normal(size=5) * self.noise_level * np.array([1.0, 1.0, 1.0, 3.0, 2.0])
        if self.slipping == 0 and self.rng.random() < self.slip_share:
            self.slipping, self.slip = int(self.rng.integers(3, 11)), self.rng.choice([-1.0, 1.0])
        if self.slipping > 0:
            self.slipping, action[4] = self.slipping - 1, self.slip
        return np.clip(action, -1.0, 1.0)


def away(state: Array, number: int) -> Array:
    moved = state.copy()
    moved[BLOCK] += [0.0, 0.0, -2.0]  # below the floor
    return moved


def reach(angles: Array, place: Array, about: float) -> Array:
    """Joints (6,) that bring the fingertips to a place and turn the hand about the vertical by so much; the nearest to
    those now."""
    from scipy.optimize import least_squares

    target = Rotation.from_euler("z", about) * _kinematics(angles[None])[1]

    def off(tried: Array) -> Array:
        there, turned = _kinematics(tried[None])
        return np.concatenate([there[0] - place, HAND_TURN_M * (turned * target.inv()).as_rotvec()[0]])

    solved = least_squares(off, angles, xtol=1e-10)
    if np.abs(solved.fun).max() > 1e-3:
        raise ValueError("The arm cannot hold the cube there: click nearer the middle of the table, or lower.")
    return solved.x


def goal_at(state: Array, click: Array, height_cm: float) -> Array:
    """The cube above the click, turned as it is now. In the air it is held in the hand, flat on two of its sides; on
    the table it was let go, and the open hand is above it, as in most of the data."""
    place = CAMERA.on_level(click, LYING_M)
    if np.any(place[:2] < TABLE_M[0]) or np.any(place[:2] > TABLE_M[1]):
        (left, right), (near, far) = np.array(TABLE_M)[:, 1], np.array(TABLE_M)[:, 0]
        raise ValueError(
            f"The arm works on {100 * (right - left):.0f} x {100 * (far - near):.0f} cm in the middle of the table; "
            f"this is outside. Click nearer the middle."
        )
    place = place + [0.0, 0.0, height_cm / 100]
    goal = np.zeros_like(state)
    yaw = _yaw(state)
    to_flat = (yaw - _hand_pose(state)[1] + _QUARTER / 2) % _QUARTER - _QUARTER / 2  # a cube's sides are alike
    lifted = height_cm > 0
    above = np.array([0.0, 0.0, 0.0 if lifted else LET_GO_M])
    goal[: len(JOINTS)] = reach(state[: len(JOINTS)], place + above, float(to_flat))
    if lifted:
        goal[FINGERS : FINGERS + len(HOLDING_RAD)] = HOLDING_RAD
    goal[BLOCK] = place
    goal[TURN] = Rotation.from_euler("z", yaw).as_quat()
    return goal


def kick(state: Array, rng: np.random.Generator) -> Array:
    """The cube, 5 to 8 cm aside: out of the hand, if it was held."""
    moved, angle = state.copy(), rng.uniform(0, 2 * np.pi)
    moved[BLOCK][:2] += rng.uniform(0.05, 0.08) * np.array([np.cos(angle), np.sin(angle)])
    moved[BLOCK][:2] = np.clip(moved[BLOCK][:2], *TABLE_M)
    return moved


def simulator(visuals: Mapping[str, Any]) -> Simulator:
    from .swm_cube import CubeSimulator
    from .swm_mujoco import with_rendering

    return with_rendering(lambda: CubeSimulator(visuals))


def _compact(preset: Any) -> Any:
    return replace(
        preset,
        collect=replace(preset.collect, size=96),  # the cube is small: more pixels
        world=changed(preset.world, steps=2000),
        finetune=changed(preset.finetune, steps=5000, batch=256, learning_rate=2e-3, horizon="0:1,0.3:2,0.6:5"),
        planner=replace(preset.planner, width=256, heads=8),
        training=changed(preset.training, steps=5500),
    )


def _best(preset: Any) -> Any:
    """Few frames of a hard world: plans must stay near what the data did."""
    training = changed(
        preset.training,
        curriculum="0:2,0.1:3,0.25:5",
        tracking_weight=0.3,
        perturb_prob=0.25,
        far_goal_prob=0.3,
        support_weight=0.3,
        learning_rate=1e-3,
        optimizer="muon",
        precision="auto",
    )
    return replace(
        preset,
        world=changed(preset.world, grounding=1.0),
        finetune=changed(preset.finetune, optimizer="muon"),
        training=training,
    )


TASK = Task(
    name="cube",
    title="Cube",
    env_id="swm/OGBCube-v0",
    action_dim=5,
    state_dim=41,
    state_columns=(("qpos", "qvel"),),
    error_unit="m",
    error=error,
    success=success,
    clear_lewm=CLEAR_LEWM,
    probe_names=(
        *("block_x", "block_y", "block_z", "hand_x", "hand_y", "hand_z", "closed"),
        *("block_sin4", "block_cos4", "hand_sin2", "hand_cos2"),
    ),
    probe_unit="m; closed: share; sines and cosines unitless",
    probe=probe,
    behavior=RestlessOracle,
    away=away,
    plan_view=plan_view,
    goal_click=GoalClick(
        "Click where on the table the cube should be, or above which place.",
        goal_at,
        Slider("height above the table, cm", 0.0, 20.0, 0.0),
    ),
    kick=kick,
    simulator=simulator,
    visuals=LIGHT,
    native_visuals=NATIVE,
    scales={"compact": _compact},
    recipes={"best": _best},
)
