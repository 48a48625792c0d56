"""Sessions without a page: goals by click, arrival, shoves, pictures, an opponent, and any number of refinements."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from own_task import TASK as DOT

import leplanner as lp
from leplanner.core.dynamics import imagination
from leplanner.diagnostics.imagined import deeper_plans
from leplanner.planner.engines import random_problem
from leplanner.play.bundle import PlayBundle, open_bundle, with_refinements
from leplanner.play.lane import HOLD_STEPS
from leplanner.play.overlay import GOAL, draw_overlay, outline
from leplanner.play.player import Closed, Player, Visitors
from leplanner.play.session import PICTURE_PX, Session
from leplanner.tasks import TASKS, cube, pusht, reacher, tworoom

NAMES = ("tworoom", "pusht", "reacher", "cube")
BUDGET = 100
EASY = {  # a start that is drawn, a click and the slider: things a few centimeters or a push away
    "tworoom": (0, (0.75, 0.6), 0.0),
    "pusht": (1, None, 0.0),
    "reacher": (0, (0.62, 0.4), 0.0),
    "cube": (0, None, 15.0),
}


@pytest.fixture(scope="module")
def bundles():
    opened: dict[str, PlayBundle] = {}

    def get(name: str) -> PlayBundle:
        if name not in opened:
            opened[name] = open_bundle(name)
        return opened[name]

    return get


@pytest.fixture
def session(bundles):
    created: list[Session] = []

    def make(name: str, seed: int = 0) -> Session:
        created.append(Session(bundles(name), seed))
        return created[-1]

    yield make
    for one in created:
        one.close()


def easy_click(name: str, state: np.ndarray) -> tuple[np.ndarray, float]:
    _, click, value = EASY[name]
    if click is not None:
        return np.array(click), value
    if name == "pusht":  # a push of 60 px away from the disc
        center = pusht.block_center(state)
        ahead = (center - state[:2]) / np.linalg.norm(center - state[:2])
        return (center + 60 * ahead) / 512, value
    return cube.CAMERA.project(state[cube.BLOCK] * [1, 1, 0] + [0.0, 0.05, cube.LYING_M]), value


@pytest.mark.parametrize("name", NAMES)
def test_a_goal_is_set_by_a_click_and_the_controller_arrives(name, session):
    playing = session(name, EASY[name][0])
    click, value = easy_click(name, playing.start)
    playing.set_goal(click, value)
    task, before = playing.task, playing.ours.numbers
    assert before.step == 0
    assert before.decision_ms is None
    assert not task.success(playing.start, playing.goal)
    while playing.ours.numbers.step < BUDGET and not playing.ours.numbers.held:
        playing.step()
    after = playing.ours.numbers
    assert after.held
    assert after.first_reached is not None
    assert after.first_reached <= after.step - HOLD_STEPS + 1
    assert after.distance < before.distance
    assert after.decision_ms > 0
    assert after.transitions in (20, 25)  # the first plan, and later ones with plan reuse
    assert bool(task.success(playing.ours.sim.state(), playing.goal))  # by the simulator, not by our count


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_drawn_over_the_scene_and_a_shove_moves_things(name, session):
    playing = session(name, 3)
    playing.step()
    plan, task = playing.ours.plan, playing.task
    points = task.plan_view(playing.start[None]).shape[1]
    horizon = playing.bundle.planner.model.config.horizon
    assert plan.shape == (1 + horizon, points, 2)
    np.testing.assert_allclose(plan[0], task.plan_view(playing.start[None])[0])  # it begins where things are
    assert ((plan > -0.2) & (plan < 1.2)).all()
    inside = ((plan > 0) & (plan < 1)).all(axis=-1)
    assert inside[:, 0].mean() > 0.5
    (shown,) = playing.show()
    assert shown.picture.shape == (PICTURE_PX, PICTURE_PX, 3)
    scene = playing.ours.sim.render(PICTURE_PX)
    drawn = (shown.picture != scene).any(axis=-1)
    assert 100 < drawn.sum() < 0.2 * drawn.size
    assert (shown.picture[playing.edge] == GOAL).all(axis=-1).mean() > 0.3  # the rest lies under the plan
    before = playing.ours.sim.state()
    playing.push()
    assert not np.allclose(playing.ours.sim.state(), before, atol=1e-3)
    playing.step(3)
    assert playing.ours.numbers.step == 4
    assert np.isfinite(playing.ours.sim.state()).all()


@pytest.mark.parametrize("name", NAMES)
def test_every_shove_moves_things_within_the_scene(name, simulators):
    """From states in which the disc touches the T, or the cube is held, too."""
    task, sim = TASKS[name], simulators(name)
    rng = np.random.default_rng(8)
    sim.start(rng)
    behavior = task.behavior(sim, rng)
    for _ in range(40):
        sim.step(behavior.act(None))
        kicked = task.kick(sim.state(), rng)
        assert np.abs(kicked - sim.state()).max() > 1e-3
        view = task.plan_view(kicked[None])[0, 0]
        assert ((view > -0.05) & (view < 1.05)).all()


def test_a_plan_is_drawn_where_it_leads():
    plan = np.array([[[0.1, 0.5]], [[0.5, 0.5]], [[0.9, 0.5]]])
    frame = np.full((200, 200, 3), 255, np.uint8)
    drawn = draw_overlay(frame, plan, np.zeros((200, 200), bool)).astype(int)
    ink = 255 - drawn.min(axis=-1)
    assert ink[100, 60] > ink[100, 140] > 40  # the later block is fainter
    assert ink[80].max() == 0
    disc = np.hypot(*(np.mgrid[:60, :60] - 30)) < 12
    edge = outline(disc)
    assert edge[30, 30 + 12]
    assert not edge[30, 30]
    assert not edge[0, 0]


def test_an_opponent_starts_at_the_same_place_for_the_same_goal(session):
    playing = session("tworoom", 4)
    playing.prepare(opponent=True)
    ours, theirs = playing.lanes
    np.testing.assert_array_equal(ours.sim.state(), theirs.sim.state())
    np.testing.assert_array_equal(ours.goal, theirs.goal)
    playing.step(5)
    assert [lane.numbers.step for lane in playing.lanes] == [5, 5]
    assert theirs.numbers.transitions == 100 * 10 * 5  # the budget that its title states
    assert theirs.title == "CEM 100 x 10"
    assert theirs.plan is not None
    seen = [lane.sim.state() for lane in playing.lanes]
    playing.push()
    moved = [lane.sim.state() - before for lane, before in zip(playing.lanes, seen, strict=True)]
    np.testing.assert_allclose(moved[0], moved[1], atol=20.0)
    playing.prepare(opponent=False)
    assert len(playing.show()) == 1


@pytest.mark.parametrize("refinements", [0, 2, 3, 6])
def test_refinements_beyond_the_trained_depth_go_on_with_the_last_step_size(refinements):
    planner = lp.load("tworoom", engine="eager")
    problem = random_problem(planner.model, batch=3)
    other = with_refinements(planner, refinements)
    with torch.no_grad():
        imagine = imagination(planner.dynamics, problem)
        expected = deeper_plans(planner.model, problem, imagine, refinements)[refinements]
    assert torch.allclose(other.plan(problem).blocks, expected.blocks, atol=1e-5)
    assert other.transitions_per_plan == (refinements + 1) * 5


def test_settings_reach_the_controller(session):
    playing = session("tworoom", 5)
    playing.prepare(refinements=1, execute=2)
    playing.step(10)
    assert playing.ours.numbers.transitions == 2 * 5
    assert len(playing.ours.controller.decisions) == 1  # ten actions are two blocks
    with pytest.raises(ValueError, match="m must be between 1 and 5"):
        playing.prepare(execute=6)


def test_a_shove_before_the_start_is_where_it_starts(session):
    playing = session("tworoom", 5)
    playing.push()
    pushed = playing.ours.sim.state()
    playing.prepare()
    np.testing.assert_array_equal(playing.ours.sim.state(), pushed)


def test_far_goals_are_told(session):
    playing = session("tworoom", 6)
    playing.start, playing.goal = np.array([30.0, 190.0]), np.array([190.0, 190.0])
    assert "may not arrive" in playing.far
    playing.goal = np.array([40.0, 180.0])
    assert playing.far is None


def test_a_source_that_is_no_bundle_is_told():
    with pytest.raises(ValueError, match="No bundle nowhere"):
        open_bundle("nowhere")


def test_impossible_goals_say_why():
    with pytest.raises(ValueError, match="wall is there"):
        tworoom.goal_at(np.array([50.0, 50.0]), np.array([0.5, 0.8]), 0.0)
    with pytest.raises(ValueError, match="over the edge"):
        pusht.goal_at(np.array([100.0, 100, 256, 256, 0, 0, 0]), np.array([0.02, 0.5]), 0.0)
    with pytest.raises(ValueError, match="Click nearer"):
        reacher.goal_at(np.zeros(4), np.array([0.98, 0.98]), 0.0)
    with pytest.raises(ValueError, match="Click farther out"):
        reacher.goal_at(np.zeros(4), np.array([0.5, 0.5]), 0.0)
    with pytest.raises(ValueError, match="Click nearer the middle"):
        cube.goal_at(np.zeros(41), np.array([0.05, 0.95]), 0.0)


def test_a_reacher_click_is_where_its_fingertip_ends(rng):
    for _ in range(20):
        place = reacher.fingertip(np.concatenate([reacher.random_joints(rng), np.zeros(2)]))
        click = reacher.CAMERA.project(np.array([*place, reacher.ARM_M]))
        for now in (np.array([0.0, 1.0, 0, 0]), np.array([2.0, -1.0, 0, 0])):
            goal = reacher.goal_at(now, click, 0.0)
            np.testing.assert_allclose(reacher.fingertip(goal), place, atol=1e-9)
        for arm in reacher.arms_to(place):  # either elbow
            np.testing.assert_allclose(reacher.fingertip(arm), place, atol=1e-9)


def test_a_cube_goal_is_in_the_hand_or_under_it(simulators):
    sim = simulators("cube")
    sim.start(np.random.default_rng(7))
    state, click = sim.state(), np.array([0.55, 0.7])
    for height_cm, above in ((15.0, 0.0), (0.0, cube.LET_GO_M)):
        goal = cube.goal_at(state, click, height_cm)
        assert goal[cube.BLOCK][2] == pytest.approx(cube.LYING_M + height_cm / 100)
        np.testing.assert_allclose(cube.hand(goal), goal[cube.BLOCK] + [0, 0, above], atol=2e-3)
        under = goal[cube.BLOCK] * [1, 1, 0] + [0, 0, cube.LYING_M]
        np.testing.assert_allclose(cube.CAMERA.project(under), click, atol=1e-9)
        sides = (cube._yaw(goal) - cube._hand_pose(goal)[1]) % (np.pi / 2)
        assert min(sides, np.pi / 2 - sides) < 0.01


def test_a_pusht_goal_has_its_center_at_the_click():
    state = np.array([100.0, 100.0, 256.0, 256.0, 0.4, 0.0, 0.0])
    goal = pusht.goal_at(state, np.array([0.6, 0.5]), 30.0)
    np.testing.assert_allclose(pusht.block_center(goal), [0.6 * 512, 256.0], atol=1e-9)
    assert goal[4] == pytest.approx(0.4 + np.pi / 6)
    assert np.linalg.norm(goal[:2] - pusht.block_center(goal)) == pytest.approx(pusht.BEHIND_PX)


def test_a_task_of_ones_own_plays_with_goals_from_its_episodes(bundles):
    """No plan view, no click, no kick: scenes, random shoves and numbers remain."""
    bare = dataclasses.replace(TASKS["tworoom"], plan_view=None, goal_click=None, kick=None, away=None)
    shipped = bundles("tworoom")
    playing = Session(PlayBundle(bare, shipped.planner, None, None), seed=0)
    with pytest.raises(ValueError, match="no goals by click"):
        playing.set_goal(np.array([0.5, 0.5]))
    playing.step(2)
    before = playing.ours.sim.state()
    playing.push()
    assert not np.allclose(before, playing.ours.sim.state())
    assert playing.far is None
    assert playing.ours.plan is None
    assert playing.show()[0].picture.shape == (PICTURE_PX, PICTURE_PX, 3)
    playing.close()
    assert (DOT.goal_click, DOT.kick) == (None, None)


def test_a_player_has_one_thread_and_closes_twice(bundles):
    import threading

    player = Player(bundles("reacher"), seed=0)  # MuJoCo would not draw from another thread
    names = {player.call(lambda session: threading.current_thread().name) for _ in range(3)}
    assert len(names) == 1
    assert names != {threading.current_thread().name}
    assert player.call(lambda session: session.show()[0].picture).std() > 0
    player.close()
    player.close()
    with pytest.raises(Closed):
        player.call(Session.push)


def test_a_visitor_has_one_player_at_a_time(bundles):
    visitors = Visitors()
    first, second = (Player(bundles("tworoom"), seed) for seed in range(2))
    visitors.seat("tab", first)
    visitors.seat("tab", second)
    assert len(visitors) == 1
    with pytest.raises(Closed):
        first.call(Session.push)
    second.call(Session.push)
    visitors.close()
    visitors.leave("tab")
    assert len(visitors) == 0
    with pytest.raises(Closed):
        second.call(Session.push)
