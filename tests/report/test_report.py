"""The page: opened in a real browser, its numbers are those on disk; overlays never reach an encoder."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from leplanner.artifacts import read_json, read_lines
from leplanner.control.methods import METHODS, MethodInputs, capability_table, methods_of
from leplanner.evaluation.manifest import draw_manifest, load_manifest, save_manifest
from leplanner.evaluation.runner import EvaluationConfig, evaluate, run_trial
from leplanner.evaluation.summary import plain, summarize
from leplanner.evaluation.videos import load_video, save_video
from leplanner.execution.executor import make_executor
from leplanner.planner.planner import save_bundle
from leplanner.report.browser import browsable, outcome
from leplanner.report.page import write_page
from leplanner.report.pictures import TARGET, framed, outlined, sprite
from leplanner.report.tables import counted_trials, read_evaluation
from leplanner.tasks import TASKS

TRIALS, VIDEOS = 6, 2


@pytest.fixture(scope="module")
def evaluated(tiny_planner, tworoom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated")
    save_bundle(tiny_planner, folder / "bundle")
    spec = tiny_planner.world.spec
    sizes = {"block": spec.actions.block, "context": spec.context}
    manifest = draw_manifest(TASKS["tworoom"], tworoom, TRIALS, 1, "official", **sizes)
    save_manifest(manifest, folder / "manifest.json")
    config = EvaluationConfig(("leplanner", "replay", "no-op"), (1,), seed=1, videos=VIDEOS)
    executor = make_executor(workers=2)
    rows = evaluate(folder / "bundle", folder / "manifest.json", config, folder / "rows.jsonl", executor=executor)
    summary = plain(summarize(rows, "leplanner"), "tworoom", "leplanner", manifest.digest, config.settings, rows)
    (folder / "summary.json").write_text(json.dumps(summary))
    for path in (folder / "videos").glob("leplanner-*"):
        trace = load_video(path).trace
        (folder / "imagined").mkdir(exist_ok=True)
        frames = np.zeros((*trace.imagined.shape[:2], 32, 32, 3), np.uint8)
        frames += (40 * np.arange(frames.shape[1], dtype=np.uint8) + 20).reshape(1, -1, 1, 1, 1)
        np.savez(folder / "imagined" / path.name, frames=frames)
    return folder


@pytest.fixture(scope="module")
def opened(evaluated):
    """The page in Chromium, and what its console said."""
    chromium = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if chromium is None:
        pytest.skip("no Chromium here: sh scripts/browser.sh")
    from playwright.sync_api import sync_playwright

    page_file = write_page([evaluated], evaluated / "report.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page, said = browser.new_page(viewport={"width": 1100, "height": 800}), []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto(page_file.as_uri())
        yield page, said
        browser.close()


def test_it_opens_in_a_browser_without_a_word(opened):
    page, said = opened
    assert page.locator("h2").first.inner_text() == "In short"
    assert said == []


def test_the_numbers_on_the_page_are_those_of_the_rows(opened, evaluated):
    page, _ = opened
    rows = read_lines(evaluated / "rows.jsonl")
    for name, title in (("leplanner", "LePlanner"), ("replay", "replay of the data"), ("no-op", "no-op")):
        won = [row["outcome"]["any"] for row in rows if row["method"] == name]
        held = [row["outcome"]["held"] for row in rows if row["method"] == name]
        cells = page.locator("#s1 table tbody tr").filter(has=page.get_by_text(title, exact=True)).locator("td")
        assert cells.nth(2).inner_text() == str(len(won))
        assert cells.nth(3).inner_text().split()[0] == f"{100 * np.mean(won):.1f}"
        assert cells.nth(5).inner_text().split()[0] == f"{100 * np.mean(held):.1f}"


def test_filters_choose_rows(opened, evaluated):
    page, _ = opened
    rows = read_lines(evaluated / "rows.jsonl")
    shown = page.locator("#rows tbody tr")
    assert shown.count() == len(rows)
    page.select_option("#f-method", label="replay of the data, m = 1")
    assert shown.count() == TRIALS
    page.select_option("#f-method", "")
    page.select_option("#f-outcome", "missed")
    missed = [row for row in rows if not row["outcome"]["any"]]
    assert shown.count() == len(missed)
    assert page.locator("#count").inner_text() == f"{len(missed)} trials, 0 reached"
    page.select_option("#f-outcome", "")
    page.select_option("#f-video", "1")
    assert shown.count() == VIDEOS * 3
    page.select_option("#f-video", "")


def test_a_trial_plays_with_the_keyboard(opened):
    page, said = opened
    page.select_option("#f-video", "1")
    page.locator("#rows button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("Number(document.getElementById('time').value) >= 3")
    page.keyboard.press("Space")  # the focus is on pause
    stopped = page.locator("#time").input_value()
    page.wait_for_timeout(400)
    assert page.locator("#time").input_value() == stopped
    page.locator("#time").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#time").input_value() == str(int(stopped) + 1)
    assert page.locator("#p-step").inner_text().startswith(f"step {2 * (int(stopped) + 1)}, ")
    for canvas, colors in (("p-real", 3), ("p-curve", 4), ("p-imagined", 5)):
        drawn = page.evaluate(
            "id => { const c = document.getElementById(id);"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, s = new Set();"
            "for (let i = 0; i < d.length; i += 4) s.add(d.slice(i, i + 4).join()); return s.size; }",
            canvas,
        )
        assert drawn >= colors, canvas
    page.select_option("#f-video", "")
    assert said == []


def test_it_fits_a_phone(opened):
    page, _ = opened
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1100, "height": 800})


def test_a_long_video_fits_into_one_picture():
    frames = np.zeros((300, 160, 160, 3), np.uint8)  # beneath one another they would be too high for WebP
    frames[213] = 255
    uri = sprite(frames, 8)
    import base64

    import imageio.v3 as imageio

    picture = imageio.imread(base64.b64decode(uri.split(",")[1]), extension=".webp")
    assert picture.shape[:2] == (38 * 160, 8 * 160)
    row, column = divmod(213, 8)
    assert picture[row * 160 + 80, column * 160 + 80].min() > 250
    assert picture.mean() < 2


def test_the_browser_lists_every_row(evaluated):
    listed = browsable(evaluated, read_evaluation(evaluated))
    rows = read_lines(evaluated / "rows.jsonl")
    assert len(listed) == len(rows) == 3 * TRIALS
    assert sum(row["video"] is not None for row in listed) == 3 * VIDEOS
    assert counted_trials(evaluated, TRIALS) == list(range(TRIALS))
    assert outcome({"outcome": {"any": True, "held": False}}) == "left"


def test_a_trial_that_raised_is_left_out_and_the_last_is_not(evaluated, tmp_path):
    shutil.copytree(evaluated, tmp_path / "raised")
    rows, summary = read_lines(evaluated / "rows.jsonl"), read_json(evaluated / "summary.json")
    rows = [row | {"error": "ValueError: no"} if (row["method"], row["trial"]) == ("no-op", 1) else row for row in rows]
    (tmp_path / "raised" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for method in summary["methods"]:
        method["trials"] = TRIALS - 1
    (tmp_path / "raised" / "summary.json").write_text(json.dumps(summary))
    listed = browsable(tmp_path / "raised", read_evaluation(tmp_path / "raised"))
    assert [row["trial"] for row in listed] == 3 * [trial for trial in range(TRIALS) if trial != 1]


def test_a_page_of_methods_that_imagine_nothing_has_no_cost_figure(evaluated, tmp_path):
    shutil.copytree(evaluated, tmp_path / "floors")
    summary = read_json(evaluated / "summary.json")
    summary |= {"methods": [m | {"differences": {}} for m in summary["methods"][1:]], "reference": "replay"}
    (tmp_path / "floors" / "summary.json").write_text(json.dumps(summary))
    page = write_page([tmp_path / "floors"], tmp_path / "page.html").read_text()
    assert "Success with 95 % Wilson intervals" in page
    assert "What a decision costs" not in page


def test_recording_changes_nothing_that_a_method_sees(tiny_planner, evaluated, simulators, monkeypatch):
    """The frames that reach the encoder are the same bytes, recorded or not, and none carries the target's color."""
    manifest = load_manifest(evaluated / "manifest.json")
    seen: list[bytes] = []
    encode = tiny_planner.encode

    def watched(frames):
        array = np.asarray(frames)
        assert not (array == TARGET).all(axis=-1).any()
        seen.append(array.tobytes())
        return encode(frames)

    monkeypatch.setattr(tiny_planner, "encode", watched)
    trial = manifest.trials[0]
    policy = METHODS.get("leplanner").make(MethodInputs(tiny_planner, manifest.budget))(trial)
    looks = []
    for recorded in (False, True):
        seen.clear()
        arguments = (TASKS["tworoom"], simulators("tworoom"), tiny_planner, policy, trial, manifest, 1)
        result, video = run_trial(*arguments, EvaluationConfig(), recorded)
        looks.append((list(seen), result["outcome"]))
        assert (video is not None) == recorded
    assert looks[0] == looks[1]
    assert looks[0][0]  # the encoder was watched


def test_overlays_are_drawn_on_copies(evaluated):
    video = load_video(next((evaluated / "videos").glob("leplanner-*")))
    before = {name: np.array(value) for name, value in vars(video).items() if name != "trace"}
    assert (outlined(video.frames, video.target) == TARGET).all(axis=-1).any(axis=(1, 2)).all()
    framed(video)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(video, name), value)


@pytest.mark.parametrize("name", list(TASKS))
def test_a_target_is_where_the_goal_shows_it(name, simulators):
    from leplanner.evaluation.capture import Camera

    task, sim = TASKS[name], simulators(name)
    sim.start(np.random.default_rng(4))
    goal = sim.state()
    target = Camera(task, sim, goal, 10).target
    assert 20 < target.sum() < 0.2 * target.size
    if task.plan_view is not None:
        x, y = (task.plan_view(goal[None])[0, 0] * 160).astype(int)  # where the goal shows the agent
        assert target[y, x]
        x, y = (task.plan_view(sim.state()[None])[0, 0] * 160).astype(int)  # where it was put away last
        assert max(x, y) >= 160 or not target[y, x]  # Cube's is put below the floor, outside of the picture


def test_videos_are_kept_whole(evaluated, tmp_path):
    path = next((evaluated / "videos").glob("leplanner-*"))
    video = load_video(path)
    assert video.trace.distances.shape == (10, 4, 5)
    assert video.trace.decided.tolist() == list(range(0, 50, 5))
    save_video(video, tmp_path / "again.npz")
    again = load_video(tmp_path / "again.npz")
    np.testing.assert_array_equal(again.trace.imagined, video.trace.imagined)
    np.savez(tmp_path / "old.npz", frames=video.frames)
    with pytest.raises(ValueError, match="another version"):
        load_video(tmp_path / "old.npz")
    assert load_video(next((evaluated / "videos").glob("no-op-*"))).trace.decided.size == 0


def test_the_capability_table_is_the_papers():
    """Its Table 1, without TD-MPC2, which is not among our methods."""
    printed = {
        "CEM / MPPI / iCEM": "no yes yes yes yes no",
        "Gradient optimization": "no yes yes yes yes no",
        "GCBC / GCIQL / GCIVL": "yes no no yes yes yes",
        "GC-IDM": "yes no no no yes yes",
        "LePlanner": "yes partly yes yes yes yes",
    }
    assert {one.group: " ".join(one.marks) for one in capability_table()} == printed
    described = {method.name: method.properties for method in METHODS.values() if method.properties is not None}
    assert set(described) == set(METHODS) - {"random", "no-op", "replay"}
    assert {name for name, one in described.items() if one.no_online_search == "no"} == set(methods_of("search"))


def test_commands_and_versions_stand_on_the_page(evaluated, tmp_path):
    summary = read_json(evaluated / "summary.json") | {"command": "leplanner evaluate tworoom <b>"}
    for name in ("manifest.json", "rows.jsonl"):
        shutil.copyfile(evaluated / name, tmp_path / name)
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    page = write_page([tmp_path], tmp_path / "page.html").read_text()
    assert "leplanner evaluate tworoom &lt;b&gt;" in page
    assert summary["manifest"] in page
