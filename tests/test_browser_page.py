"""TwoRoom in a visitor's browser: a real one opens the page, sets goals, disturbs the dot, and agrees with Python."""

from __future__ import annotations

import functools
import http.server
import json
import runpy
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import leplanner as lp
from leplanner.core.problem import PlanProblem
from leplanner.planner.engines import random_problem

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "docs" / "browser"
sys.path.insert(0, str(ROOT / "examples"))
from two_rooms import TwoRooms  # noqa: E402

pytestmark = pytest.mark.timeout(300)
PATIENCE_MS = 120_000
PLACES = [[21.0, 21.0], [62.3, 110.7], [99.5, 150.0], [112.0, 49.0], [104.25, 60.1], [124.5, 203.0], [202.9, 30.4]]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def serve():
    """A folder's address; a port of this machine's own."""
    servers = []

    def start(folder: Path) -> str:
        handler = functools.partial(QuietHandler, directory=str(folder))
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def opened(browser, serve):
    """The page once its planner is loaded, what its console said, and the requests it made."""
    if not (SOURCE / "built" / "facts.json").exists():
        pytest.skip("the page is not built: python scripts/browser_page.py, which needs npm")
    page, said, requests = browser.new_page(viewport={"width": 1100, "height": 900}, has_touch=True), [], []
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = serve(SOURCE)
    page.goto(f"{address}/index.html")
    page.wait_for_selector("body.ready")
    assert f"{address}/built/plan.onnx" in requests  # those of the planner's thread are seen, too
    assert [url for url in requests if not url.startswith((address, "data:,"))] == []
    requests.clear()
    return page, said, requests


@pytest.fixture
def page(opened):
    """Nobody complains and nothing is fetched or sent, whatever a test does."""
    yield opened[0]
    assert opened[1:] == ([], [])


@pytest.fixture(scope="module")
def planner():
    return lp.load("tworoom")


def within(page, script: str, argument=None):
    """Evaluates with the page's own modules."""
    modules = "const page = await import('./page.js'), { Controller } = await import('./controller.js');"
    modules += "const { TwoRooms, draw } = await import('./two_rooms.js');"
    return page.evaluate(f"async (given) => {{ {modules} {script} }}", argument)


def on_screen(page, place) -> tuple[float, float]:
    """Where a place of the floor plan is drawn: all but 8 px at each side is shown."""
    box = page.locator("#scene").bounding_box()
    return tuple(box[side] + (p - 8) * box["width"] / 208 for side, p in zip("xy", place, strict=True))


def arrives(page) -> None:
    page.wait_for_function("document.getElementById('scene').dataset.arrived === 'true'")
    assert float(page.inner_text("#distance")) <= 16


def test_the_files_are_those_of_the_shipped_bundle(page, planner):
    facts = json.loads((SOURCE / "built" / "facts.json").read_text())
    assert facts["digest"] == planner.digest, "stale: python scripts/browser_page.py"
    assert page.inner_text("#digest") == planner.digest[:12]
    transitions = planner.transitions_per_plan + planner.model.config.horizon  # with reuse: one rollout more
    assert page.inner_text("[data-fact=transitions]") == str(transitions)
    assert facts["probe"]["error_px"] < 4


def test_pictures_are_those_of_the_simulator(page, simulators):
    frames = within(page, "return given.map((place) => [...draw(place, 64)]);", PLACES)
    for place, frame in zip(PLACES, frames, strict=True):
        drawn = np.reshape(frame, (64, 64, 3))
        np.testing.assert_array_equal(drawn, TwoRooms(place, 64).render())
        simulators("tworoom").set_state(np.array(place))
        assert abs(drawn - simulators("tworoom").render(64).astype(int)).max() <= 1


def test_the_dot_moves_as_in_python(page, rng):
    for start in PLACES:
        actions = rng.uniform(-1.3, 1.3, (40, 2))
        room = TwoRooms(start, 64)
        expected = [(room.step(action), room.position)[1] for action in actions]
        script = "const room = new TwoRooms(given[0], 64);"
        script += "return given[1].map((action) => (room.step(action), room.position));"
        actual = within(page, script, [start, actions.tolist()])
        np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_plans_are_those_of_python(page, planner):
    latents = planner.encode(np.stack([TwoRooms(place, 64).render() for place in PLACES[:4]]))
    script = "const goal = (await page.controller.planner.encode(draw(given[2], 64))).latent;"
    script += "const plan = await page.controller.planner.plan(given[0], given[1], goal, new Float32Array(50), 5);"
    script += "return [plan.blocks, plan.latents, plan.distances].map((values) => [...values]);"
    noise = random_problem(planner.model)
    for context, goal in ((latents[None, :3], PLACES[3]), (noise.context, PLACES[6])):
        target = planner.encode(TwoRooms(goal, 64).render()[None])
        plan = planner.plan(PlanProblem(context, noise.past_blocks, target))
        tensors = (plan.blocks, plan.latents, plan.distances)
        given = [context[0].tolist(), noise.past_blocks[0].tolist(), goal]
        for actual, tensor in zip(within(page, script, given), tensors, strict=True):
            torch.testing.assert_close(torch.tensor(actual), tensor.flatten(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("execute", [1, 3])
def test_whole_trajectories_are_those_of_python(page, planner, execute):
    start, goal, steps = [70.0, 75.0], [150.0, 80.0], 30
    room = TwoRooms(start, 64)
    controller = planner.controller(TwoRooms(goal, 64).render(), execute=execute)
    expected = []
    for _ in range(steps):
        room.step(controller.act(room.render()))
        expected.append(room.position)
    script = "const [start, goal, steps, execute] = given, room = new TwoRooms(start, 64), places = [];"
    script += "const controller = new Controller(page.controller.planner, execute);"
    script += "await controller.setGoal(draw(goal, 64));"
    script += "for (let i = 0; i < steps; i++) { room.step(await controller.act(() => room.render()));"
    script += "places.push(room.position); } return places;"
    actual = within(page, script, [start, goal, steps, execute])
    np.testing.assert_allclose(actual, expected, atol=0.05)
    assert np.linalg.norm(actual[-1] - np.array(goal)) < 8


def test_a_click_sets_the_goal_and_the_dot_arrives(page):
    arrives(page)  # at the goal that the page starts with, behind the wall
    page.mouse.click(*on_screen(page, [70.0, 80.0]))
    np.testing.assert_allclose(within(page, "return page.state.goal;"), [70.0, 80.0], atol=1.0)
    assert float(page.inner_text("#distance")) > 50
    arrives(page)
    assert page.inner_text("#status").startswith("Arrived after ")
    assert int(page.inner_text("#actions")) >= 5 * int(page.inner_text("#actions-note").split()[0]) - 5 > 0
    assert float(page.inner_text("#ms")) > 0
    drawn = "id => new Set(document.getElementById(id).getContext('2d').getImageData(0, 0, 64, 64).data).size"
    assert page.evaluate(drawn, "frame") > 3
    assert page.evaluate(drawn, "goal-frame") > 3


def test_a_disturbed_dot_comes_back(page):
    arrives(page)
    page.mouse.move(*on_screen(page, within(page, "return page.room.position;")))
    page.mouse.down()
    page.mouse.move(*on_screen(page, [60.0, 150.0]), steps=5)
    assert page.inner_text("#status") == "You hold the dot; the controller waits."
    page.wait_for_timeout(200)
    np.testing.assert_allclose(within(page, "return page.room.position;"), [60.0, 150.0], atol=1.0)
    page.mouse.up()
    arrives(page)


def test_everything_can_be_done_with_the_keyboard(page):
    page.locator("#scene").focus()
    page.keyboard.press("Space")
    assert page.inner_text("#status") == "Paused."
    before = within(page, "return [page.state.goal, page.room.position];")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowLeft")
    page.wait_for_timeout(200)  # paused: only the keys moved anything
    after = within(page, "return [page.state.goal, page.room.position];")
    np.testing.assert_allclose(np.subtract(after, before), [[0, 6], [-6, 0]], atol=1e-6)
    for _ in range(8):  # through the wall, to its other side
        page.keyboard.press("ArrowRight")
    assert within(page, "return page.state.goal;")[0] > 118
    page.locator("#interval input").first.focus()
    page.keyboard.press("ArrowRight")
    assert within(page, "return page.controller.execute;") == 2
    page.locator("#pause").press("Enter")
    arrives(page)


def test_it_fits_a_phone_and_follows_a_finger(page):
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.touchscreen.tap(*on_screen(page, [160.0, 60.0]))
    np.testing.assert_allclose(within(page, "return page.state.goal;"), [160.0, 60.0], atol=1.0)
    arrives(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]")


def test_without_npm_the_page_says_how_to_build_it(browser, serve, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PATH", "")
    shutil.copytree(SOURCE, tmp_path / "browser", ignore=shutil.ignore_patterns("built"))
    build = runpy.run_path(str(ROOT / "scripts" / "browser_page.py"))["build"]
    assert build(tmp_path / "browser" / "built") == "npm is not installed"
    outer = (
        "<body data-md-color-scheme=slate><iframe src=browser/index.html style='width: 300px; height: 9px'></iframe>"
    )
    (tmp_path / "index.html").write_text(outer)
    page = browser.new_page()
    page.goto(serve(tmp_path))
    inner = page.frame_locator("iframe")
    inner.get_by_text("make docs").wait_for()
    assert not inner.locator("#scene").is_visible()
    # inside the documentation it takes on its colors, and the height that it needs
    assert inner.locator("html").get_attribute("data-theme") == "dark"
    page.wait_for_function("document.querySelector('iframe').clientHeight > 150")
    page.evaluate("document.body.dataset.mdColorScheme = 'default'")
    inner.locator("html[data-theme=light]").wait_for()
    page.close()
