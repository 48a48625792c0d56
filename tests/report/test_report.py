"""What the page is made of: rows, videos and overlays, which never reach an encoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from leplanner.artifacts import read_json, read_lines, write_json
from leplanner.control.methods import METHODS, MethodInputs, capability_table, methods_of
from leplanner.evaluation.manifest import load_manifest
from leplanner.evaluation.runner import EvaluationConfig, run_trial
from leplanner.evaluation.videos import load_video, save_video
from leplanner.report.browser import browsable, outcome
from leplanner.report.comparison import comparison_tables
from leplanner.report.page import write_page
from leplanner.report.pictures import TARGET, outlined, sprite
from leplanner.report.tables import counted_trials, read_evaluation, show_rate
from leplanner.tasks import TASKS
from leplanner.zoo import shipped

TRIALS, VIDEOS = 6, 2  # of `evaluated`


def listed_rows(folder) -> list[dict]:
    trials = browsable(folder, read_evaluation(folder))["trials"]
    return [row | {"trial": trial["trial"]} for trial in trials for row in trial["rows"]]


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
    listed = listed_rows(evaluated)
    rows = read_lines(evaluated / "rows.jsonl")
    assert len(listed) == len(rows) == 3 * TRIALS
    assert sum(row["video"] is not None for row in listed) == 3 * VIDEOS
    places = {"leplanner": 0, "replay": 1, "no-op": 2}
    outcomes = {(row["trial"], row["method"]): row["outcome"] for row in listed}
    assert outcomes == {(row["trial"], places[row["method"]]): outcome(row) for row in rows}
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
    kept = [trial for trial in range(TRIALS) if trial != 1]
    assert [row["trial"] for row in listed_rows(tmp_path / "raised")] == np.repeat(kept, 3).tolist()


def test_a_page_of_methods_that_imagine_nothing_has_no_cost_figure(evaluated, tmp_path):
    shutil.copytree(evaluated, tmp_path / "floors")
    summary = read_json(evaluated / "summary.json")
    summary |= {"methods": [m | {"differences": {}} for m in summary["methods"][1:]], "reference": "replay"}
    (tmp_path / "floors" / "summary.json").write_text(json.dumps(summary))
    page = write_page([tmp_path / "floors"], tmp_path / "page.html").read_text()
    assert "What a decision costs" not in page
    assert "transitions" not in page
    assert "Success with 95 % Wilson intervals" not in page  # of 6 trials


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
    """Its Table 1."""
    printed = {
        "CEM / MPPI / iCEM": "no yes yes yes yes no",
        "Gradient optimization": "no yes yes yes yes no",
        "GCBC / GCIQL / GCIVL": "yes no no yes yes yes",
        "GC-IDM": "yes no no no yes yes",
        "TD-MPC2": "yes yes yes yes no yes",
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


@pytest.mark.parametrize("key", ["strict", "earlier_strict"])
def test_results_from_before_clear_lewm_keep_their_figures_under_another_title(tmp_path, key):
    """As a bundle's earlier evaluation says it, and as the shipped ones do."""
    shipped_summary = read_json(shipped()["tworoom"] / "evaluation.json")
    for method in shipped_summary["methods"]:
        method["rates"][key] = method["rates"].pop("earlier_strict")
    write_json(tmp_path / "summary.json", shipped_summary)
    shutil.copy(shipped()["tworoom"] / "manifest.json", tmp_path / "manifest.json")
    evaluation = read_evaluation(tmp_path)
    assert evaluation.metrics["earlier_strict"] == "strict (earlier)"
    assert "strict" not in evaluation.metrics
    assert evaluation.methods[0].shown["earlier_strict"] == "99.5 (97-100)"


@pytest.mark.parametrize("key", ["strict", "earlier_strict"])
def test_so_do_comparisons(key):
    report = read_json(Path(__file__).parents[2] / "docs/results/families-tworoom.json")
    rows = [row for family in report["families"] for row in family["methods"]]
    for row in rows:  # as they were before there was `moderate`
        del row["rates"]["moderate"]
        row["rates"][key] = row["rates"].pop("strict")
    (success,) = [sheet for sheet in comparison_tables(report) if sheet.name == "Success"]
    assert success.figures == ("m", "n", "any time", "held 5 steps", "strict (earlier)")
    assert success.sections[0][0][-1] == show_rate(rows[0]["rates"][key])
