"""Figures show what is in their tables, and the same table gives the same file."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from leplanner.cli.main import main
from leplanner.evaluation.videos import PlanTraceLog, Video
from leplanner.report import figures, picture_figures
from leplanner.report.page import write_page
from leplanner.report.tables import read_evaluation
from leplanner.tasks import TASKS
from leplanner.zoo import shipped

IMAGINED = {
    "task": "pusht",
    "bundle": "b" * 64,
    "data": "d" * 64,
    "problems": 16,
    "trained_depth": 3,
    "start": 2.0,
    "profile": [[0.02, 0.02, 0.02, 0.02, 0.02], None, [1.0, 0.5, 0.1, 0.1, 0.1], None, None],
    "magnitudes": [0.7, 0.6, 0.5, 0.4, 0.4],
    "depth": [{"k": k, "terminal": 0.1 / (k + 1), "arrival": 0.2 / (k + 1)} for k in range(6)],
}
EXECUTED = {
    "bundle": "b" * 64,
    "decoder": {"ratio": 7.0, "psnr": 30.0, "ssim": 0.9},
    "manifest": "m" * 64,
    "trials": 2,
    "distances": [[0.8, 0.4, 0.2], [0.5, 0.3, 0.1]],
    "fit": {"c": 0.5, "b": 0.02, "fixed_point": 0.04},
    "drift": [0.01, 0.02, 0.03, 0.04, 0.05],
    "drift_of_copying": [0.1, 0.2, 0.3, 0.4, 0.5],
    "data_drift": [0.01, 0.01, 0.01, 0.01, 0.01],
    "data_drift_of_copying": [0.1, 0.2, 0.2, 0.5, 1.0],
}


@pytest.fixture
def evaluated(tmp_path):
    """A folder such as `leplanner evaluate` leaves, from a shipped bundle."""
    folder = tmp_path / "evaluation"
    folder.mkdir()
    bundle = shipped()["pusht"]
    shutil.copyfile(bundle / "evaluation.json", folder / "summary.json")
    shutil.copyfile(bundle / "manifest.json", folder / "manifest.json")
    return folder


@pytest.fixture
def diagnosed(tmp_path):
    folder = tmp_path / "diagnostics"
    folder.mkdir()
    (folder / "imagined.json").write_text(json.dumps(IMAGINED))
    (folder / "closed_loop.json").write_text(json.dumps(EXECUTED))
    return folder


def lines(figure) -> list[list[float]]:
    return [[float(value) for value in line.get_ydata()] for line in figure.axes[0].lines]


def test_success_shows_every_rate(evaluated):
    evaluation = read_evaluation(evaluated)
    figure = figures.success(evaluation, "PushT")
    drawn = [line.get_xdata()[0] for line in figure.axes[0].lines if len(line.get_xdata())]
    expected = [100 * row.rates[name]["value"] for row in evaluation.methods for name in ("any", "held")]
    assert drawn == pytest.approx(expected)
    assert len(figure.axes[0].get_yticklabels()) == len(evaluation.methods)


def test_profiles_are_shares_of_the_start():
    first, dot, _, third, third_dot, third_ring = lines(figures.arrival_profiles(IMAGINED, "PushT"))
    assert first == pytest.approx([1.0] * 5)
    assert dot == pytest.approx([1.0])
    assert third == pytest.approx([50, 25, 5, 5, 5])
    assert third_dot == pytest.approx([5.0])
    assert third_ring == pytest.approx([5.0])  # the minimum


def test_depth_shades_what_was_not_trained():
    figure = figures.refinement_depth(IMAGINED, "PushT")
    assert lines(figure)[0] == pytest.approx([row["terminal"] for row in IMAGINED["depth"]])
    assert len(figure.axes[0].patches) == 1
    trained = IMAGINED | {"depth": IMAGINED["depth"][:4]}
    assert not figures.refinement_depth(trained, "PushT").axes[0].patches


def test_the_closed_loop_meets_the_diagonal_at_its_fixed_point():
    points, _, fitted, settled = lines(figures.closed_loop(EXECUTED, "PushT"))
    assert points == [0.4, 0.2, 0.3, 0.1]
    assert fitted[0] == 0.02
    assert settled == [0.04]
    endless = EXECUTED | {"fit": {"c": 1.2, "b": 0.1, "fixed_point": None}}
    assert len(lines(figures.closed_loop(endless, "PushT"))) == 3


def test_drift_is_a_share_of_copying():
    ours, data = lines(figures.drift(EXECUTED, "PushT"))
    assert ours == pytest.approx([10.0] * 5)
    assert data == pytest.approx([10, 5, 5, 2, 1])


def test_the_same_table_gives_the_same_file():
    one, two = (figures.rendered(figures.drift(EXECUTED, "PushT"), "svg") for _ in range(2))
    assert one == two


def test_a_page_of_both(evaluated, diagnosed, tmp_path, capsys):
    page, kept = tmp_path / "page.html", tmp_path / "figures"
    assert main(["report", str(evaluated), str(diagnosed), "--out", str(page), "--figures", str(kept)]) == 0
    text = page.read_text()
    assert text.count('<figure class="plot">') == 6
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "16 held-out problems" in text
    assert "decoder: 7.0 times nearer" in text
    assert len(list(kept.glob("*.svg"))) == len(list(kept.glob("*.png"))) == 6


def test_reach_has_a_line_for_each_method_over_the_offsets(evaluated):
    near = read_evaluation(evaluated)
    far = dataclasses.replace(near, offset=75)
    figure = figures.reach([far, near], "PushT")
    drawn = figure.axes[0].containers
    assert len(drawn) == len(near.methods)
    for container, row in zip(drawn, near.methods, strict=True):
        assert list(container.lines[0].get_xdata()) == [near.offset, 75]
        assert list(container.lines[0].get_ydata()) == pytest.approx([100 * row.rates["any"]["value"]] * 2)
    alone = dataclasses.replace(far, methods=near.methods[:1])
    assert len(figures.reach([alone, near], "PushT").axes[0].containers) == 1


def test_panels_show_their_frames_and_numbers():
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (5, 8, 8, 3), dtype=np.uint8)
    panel = {"actual": frames, "reencoded": frames + 1, "imagined": frames + 2, "goal": frames[0]}
    panel |= {"drift": np.arange(5) / 10, "terminal": frames[:4], "terminal_distance": np.array([4.0, 3.0, 2.0, 1.0])}
    axes = picture_figures.decoder_rollout(panel, "PushT").axes
    shown = [np.asarray(place.images[0].get_array()) for place in axes]
    np.testing.assert_array_equal(np.stack(shown), np.concatenate([frames, frames + 1, frames + 2]))
    assert [place.get_xlabel() for place in axes[-5:]] == ["0.000", "0.100", "0.200", "0.300", "0.400"]
    axes = picture_figures.decoder_refinement(panel, "PushT").axes
    assert [place.get_xlabel() for place in axes[:4]] == ["4.0000", "3.0000", "2.0000", "1.0000"]
    np.testing.assert_array_equal(np.asarray(axes[-1].images[0].get_array()), frames[0])


def test_the_trajectory_over_the_floor_plan_is_where_the_dot_was():
    states = np.stack([np.linspace(20, 200, 11), np.linspace(50, 90, 11)], axis=1)
    target = np.zeros((160, 160), bool)
    target[60:70, 140:150] = True
    frames = np.zeros((6, 160, 160, 3), np.uint8)
    trace = PlanTraceLog(np.array([0, 5]), np.zeros((2, 4, 5)), np.zeros((2, 5, 8)))
    seen = (frames, np.arange(0, 11, 2), frames[0], target)
    video = Video(*seen, np.zeros(11, bool), np.arange(11.0), states, trace)
    place = picture_figures.trajectory(video, TASKS["tworoom"], "TwoRoom").axes[0]
    path, replans = place.lines
    np.testing.assert_allclose(np.stack(path.get_data(), axis=1), states * 160 / 224)
    np.testing.assert_allclose(np.stack(replans.get_data(), axis=1), states[[0, 5]] * 160 / 224)
    strips = picture_figures.episode_strips([("trial 0", video)], "px", "TwoRoom")
    assert strips.axes[-1].get_xlabel() == "10 px off"
    assert [place.get_xlabel() for place in strips.axes[:2]] == ["step 0", "step 0"]
    assert frames.sum() == 0  # outlines are drawn on copies


def test_tables_of_two_bundles_are_not_shown_as_one(diagnosed, tmp_path):
    (diagnosed / "closed_loop.json").write_text(json.dumps(EXECUTED | {"bundle": "c" * 64}))
    with pytest.raises(ValueError, match="two bundles"):
        write_page([diagnosed], tmp_path / "page.html")
