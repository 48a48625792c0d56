"""Reacher: a two-joint arm matches a joint configuration; state is qpos(2), qvel(2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.config import changed
from .pinhole import Pinhole
from .spec import LIGHT, NATIVE, Array, ClearLewm, GoalClick, Simulator, SmoothNoise, Task, Verdict, wrapped

SUCCESS_RAD = 0.05
LINK_M = 0.12
WRIST_RAD = 2.6  # just inside the wrist's stops; the shoulder turns freely
CAMERA = Pinhole((0.0, 0.0, 0.75), right=(1.0, 0.0, 0.0), up=(0.0, 1.0, 0.0), fovy_deg=45.0)
ARM_M = 0.01  # the arm's height over the floor


def joint_errors(state: Array, goal: Array) -> Array:
    """Per joint, the short way round: the shoulder may have turned more than once."""
    return np.abs(wrapped(state[..., :2] - goal[..., :2]))


def error(state: Array, goal: Array) -> Array:
    return joint_errors(state, goal).max(axis=-1)


def success(state: Array, goal: Array) -> Array:
    return error(state, goal) < SUCCESS_RAD


def fingertip(state: Array) -> Array:
    """Where the finger's center is, in meters: two links of 12 cm."""
    shoulder, both = state[..., 0], state[..., 0] + state[..., 1]
    return LINK_M * np.stack([np.cos(shoulder) + np.cos(both), np.sin(shoulder) + np.sin(both)], axis=-1)


def elbow(state: Array) -> Array:
    return LINK_M * np.stack([np.cos(state[..., 0]), np.sin(state[..., 0])], axis=-1)


def plan_view(states: Array) -> Array:
    """Elbow and fingertip."""
    level = np.stack([elbow(states), fingertip(states)], axis=-2)
    return CAMERA.project(np.concatenate([level, np.full((*level.shape[:-1], 1), ARM_M)], axis=-1))


def joints_matched(state: Array, goal: Array) -> Array:
    """As `success`, but the wrist has stops and cannot go the other way round: its error is not wrapped."""
    wrist = np.abs(state[..., 1] - goal[..., 1])
    return np.maximum(joint_errors(state, goal)[..., 0], wrist) < SUCCESS_RAD


def fingertip_near(state: Array, goal: Array) -> Array:
    return np.linalg.norm(fingertip(state) - fingertip(goal), axis=-1) <= 0.01


CLEAR_LEWM = ClearLewm(
    moderate=Verdict(joints_matched),
    strict=Verdict(fingertip_near, steps=2),
    at_rest=lambda state: np.concatenate([state[:2], np.zeros(2)]),
)


def probe(state: Array) -> Array:
    return np.concatenate([np.sin(state[..., :2]), np.cos(state[..., :2])], axis=-1)


def random_joints(rng: np.random.Generator) -> Array:
    return np.array([rng.uniform(-np.pi, np.pi), rng.uniform(-WRIST_RAD, WRIST_RAD)])


class ReachAndSway:
    """A PD controller to random joint targets that change some time after arrival, and smooth random torque.

    Staying a while at a target is as much worth learning from as getting there, so arrivals linger.
    """

    def __init__(self, sim: Simulator, rng: np.random.Generator):
        self.sim, self.rng = sim, rng
        self.noise_level = rng.uniform(0.0, 0.3)
        self.gain = rng.uniform(0.6, 1.2)
        self.noise = SmoothNoise(rng, 2, memory=0.8)
        self.sway_share = 0.2
        self._choose()

    def _choose(self) -> None:
        self.target = random_joints(self.rng)
        self.linger = int(self.rng.integers(0, 25))
        self.sway = int(self.rng.integers(10, 30)) if self.rng.random() < self.sway_share else 0

    def act(self, frame: Array | None = None) -> Array:
        state = self.sim.state()
        away, speed = self.target - state[:2], state[2:4]
        away[0] = wrapped(away[0])
        if self.sway > 0:
            self.sway -= 1
            return np.clip(0.4 * self.noise.draw(), -1.0, 1.0)
        if np.all(np.abs(away) < 0.08) and np.all(np.abs(speed) < 0.5):
            self.linger -= 1
            if self.linger < 0:
                self._choose()
        torque = self.gain * away - 0.15 * np.sqrt(self.gain) * speed
        return np.clip(torque + self.noise_level * self.noise.draw(), -1.0, 1.0)


def away(state: Array, number: int) -> Array:
    return state + np.pi / (1 + number) * np.eye(len(state))[0]  # the whole arm, turned at its shoulder


def arms_to(place: Array) -> list[Array]:
    """Joints (2,) that bring the fingertip there: elbow on one side, and on the other."""
    far = float(np.linalg.norm(place))
    nearest, farthest = 2 * LINK_M * np.cos(WRIST_RAD / 2), 2 * LINK_M
    if not nearest <= far <= farthest:
        raise ValueError(
            f"The fingertip reaches places {100 * nearest:.0f} to {100 * farthest:.0f} cm from the shoulder; this one "
            f"is {100 * far:.0f} cm away. Click {'nearer' if far > farthest else 'farther out'}."
        )
    wrist, heading = 2 * np.arccos(far / farthest), np.arctan2(place[1], place[0])
    return [np.array([wrapped(heading - side * wrist / 2), side * wrist]) for side in (1.0, -1.0)]


def goal_at(state: Array, click: Array, value: float) -> Array:
    """The fingertip where the click is, the elbow on the side that takes less turning."""
    arms = [np.concatenate([joints, np.zeros(2)]) for joints in arms_to(CAMERA.on_level(click, ARM_M)[:2])]
    return min(arms, key=lambda arm: float(error(state, arm)))


def kick(state: Array, rng: np.random.Generator) -> Array:
    """Both joints get 4 to 8 rad/s, either way round."""
    return state + np.concatenate([np.zeros(2), rng.choice([-1.0, 1.0], 2) * rng.uniform(4.0, 8.0, 2)])


def simulator(visuals: Mapping[str, Any]) -> Simulator:
    from .swm_mujoco import with_rendering
    from .swm_reacher import ReacherSimulator

    return with_rendering(lambda: ReacherSimulator(visuals))


def _compact(preset: Any) -> Any:
    collect = replace(preset.collect, episodes=2600)
    return replace(preset, collect=collect, training=changed(preset.training, steps=4000))


def _best(preset: Any) -> Any:
    training = changed(preset.training, learning_rate=1e-3, optimizer="muon")
    return replace(preset, world=changed(preset.world, grounding=1.0), training=training)


TASK = Task(
    name="reacher",
    title="Reacher",
    env_id="swm/ReacherDMControl-v0",
    action_dim=2,
    state_dim=4,
    state_columns=(("qpos", "qvel"),),
    error_unit="rad",
    error=error,
    success=success,
    clear_lewm=CLEAR_LEWM,
    probe_names=("sin_shoulder", "sin_wrist", "cos_shoulder", "cos_wrist"),
    probe_unit="unitless",
    probe=probe,
    behavior=ReachAndSway,
    away=away,
    plan_view=plan_view,
    goal_click=GoalClick("Click where the fingertip should be.", goal_at),
    kick=kick,
    simulator=simulator,
    visuals=LIGHT,
    native_visuals=NATIVE,
    scales={"compact": _compact},
    recipes={"best": _best},
)
