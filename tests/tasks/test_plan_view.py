"""Where things are in the picture: against the simulator's own camera, and against rendered pixels."""

from __future__ import annotations

import numpy as np
import pytest

from leplanner.tasks import TASKS, cube, reacher
from leplanner.tasks.spec import Array

PX = 224
NAMES = tuple(TASKS)


def camera_of(name: str, sim) -> tuple[Array, Array, float]:
    """Position, axes as columns (right, up, back) and field of view, as MuJoCo draws."""
    if name == "reacher":
        physics = sim.env.env.physics
        model, data, number = physics.model.ptr, physics.data.ptr, sim.env.camera_id
    else:
        model, data = sim.env.model, sim.env.data
        number = model.camera("front_pixels").id
    return data.cam_xpos[number], data.cam_xmat[number].reshape(3, 3), float(model.cam_fovy[number])


@pytest.mark.parametrize(("name", "module"), [("reacher", reacher), ("cube", cube)])
def test_the_camera_is_the_simulators(name, module, simulators, rng):
    sim, camera = simulators(name), module.CAMERA
    sim.start(rng)
    position, axes, fovy = camera_of(name, sim)
    np.testing.assert_allclose(camera.position, position, atol=1e-9)
    np.testing.assert_allclose(camera.right, axes[:, 0], atol=1e-9)
    np.testing.assert_allclose(camera.up, axes[:, 1], atol=1e-9)
    assert camera.fovy_deg == pytest.approx(fovy)


def test_a_click_means_the_point_that_is_shown_there(rng):
    for camera in (reacher.CAMERA, cube.CAMERA):
        point = np.array([*rng.uniform(0.2, 0.5, 2), 0.02])
        np.testing.assert_allclose(camera.on_level(camera.project(point), 0.02), point, atol=1e-9)


def centroid(seen: Array) -> Array:
    """(S, S) bool -> (2,) x, y in shares of the frame."""
    y, x = np.nonzero(seen)
    return (np.array([x.mean(), y.mean()]) + 0.5) / seen.shape[0]


def test_the_red_cube_is_where_the_view_says(simulators):
    sim, found = simulators("cube"), 0
    for seed in range(6):
        sim.start(np.random.default_rng([1, seed]))  # lying on the table, the arm above
        red, green, blue = np.moveaxis(sim.render(PX).astype(int), -1, 0)
        seen = (red > 110) & (green < 0.65 * red) & (blue < 0.75 * red) & (red > 1.3 * blue)
        if seen.sum() < 40:
            continue  # behind the arm
        block = cube.plan_view(sim.state()[None])[0, 0]
        assert np.linalg.norm(centroid(seen) - block) * PX < 3.0
        found += 1
    assert found >= 4


def test_the_hand_is_where_the_simulator_has_it(simulators):
    sim = simulators("cube")
    sim.start(np.random.default_rng(2))
    np.testing.assert_allclose(cube.hand(sim.state()), sim.info()["proprio/effector_pos"], atol=1e-6)


def test_the_finger_is_where_the_view_says(simulators):
    """Its orange has less blue than the arm's yellow, and the arm is bright where it bends."""
    sim = simulators("reacher")
    for joints in ((0.3, 1.2), (2.0, -1.5), (-1.0, 0.4)):
        sim.set_state(np.array([*joints, 0.0, 0.0]))
        drawn = sim.render(PX).astype(int)
        elbow, finger = reacher.plan_view(sim.state()[None])[0]
        orange = (drawn[..., 0] > 200) & (drawn[..., 2] < 0.42 * drawn[..., 0])
        assert np.linalg.norm(centroid(orange) - finger) * PX < 3.0
        x, y = (elbow * PX).astype(int)
        assert drawn[y, x].min() > 100  # bright: the arm, on a dark floor


@pytest.mark.parametrize("name", NAMES)
def test_every_task_has_a_view_inside_the_frame(name, simulators):
    task, sim = TASKS[name], simulators(name)
    assert task.plan_view is not None
    sim.start(np.random.default_rng(3))
    states = np.stack([sim.state(), sim.state()])
    view = task.plan_view(states)
    assert view.shape[0] == 2
    assert view.shape[2] == 2
    assert ((view[:, 0] > 0) & (view[:, 0] < 1)).all()
