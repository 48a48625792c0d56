"""`leplanner run`, films and pages: one command from nothing to a measured bundle."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import leplanner as lp
from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.evaluation.films import Film, load_film
from leplanner.report.page import animation, verdict, write_page


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    base = tmp_path_factory.mktemp("run")
    words = ["run", "tworoom", "--scale", "tiny", "--trials", "3", "--search-trials", "0", "--out", str(base)]
    assert main(words) == 0
    return base, words


def test_run_makes_a_bundle_with_its_card(finished):
    base, _ = finished
    assert {path.name for path in (base / "bundle").iterdir()} == {
        *("config.json", "world.safetensors", "planner.safetensors", "density.safetensors"),
        *("README.md", "manifest.json", "evaluation.json", "easy.json"),
    }
    planner = lp.load(base / "bundle")
    assert planner.digest == lp.load(base / "planner").digest
    card = (base / "bundle" / "README.md").read_text()
    summary = read_json(base / "bundle" / "evaluation.json")
    assert summary["manifest"] in card
    assert "48 episodes of 50 actions" in card
    ours = [method for method in summary["methods"] if method["method"] == "leplanner"]
    for method in ours:
        assert f"| LePlanner | m = {method['replan']} | 3 | {100 * method['any_time']['value']:.1f} (" in card


def test_run_again_skips_every_stage(finished, capsys):
    base, words = finished
    weights = {
        path: path.stat().st_mtime_ns for path in base.rglob("*") if path.suffix in (".safetensors", ".npy", ".h5")
    }
    kept = {path: stamp for path, stamp in weights.items() if path.parent.name != "bundle"}
    assert main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "minutes, over all calls" in capsys.readouterr().out


def test_films_show_what_the_rows_say(finished):
    base, _ = finished
    folder = base / "evaluation" / "nontrivial-25-42"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert len(list((folder / "films").iterdir())) == len(rows)
    for row in rows:
        film = load_film(folder / "films" / f"{row['method']}-m{row['replan']}-{row['trial']:04d}.npz")
        assert film.frames.shape == (26, 160, 160, 3)
        assert film.steps[-1] == 50
        assert film.error[-1] == pytest.approx(row["final_error"])
        assert bool(film.reached[-1]) == row["success_final"]
        assert row["success_any"] or not film.reached[1:].any()


def test_the_page_has_every_number_and_film(finished):
    base, _ = finished
    page = (base / "report.html").read_text()
    summary = read_json(base / "bundle" / "evaluation.json")
    for method in summary["methods"]:
        assert f"{100 * method['any_time']['value']:.1f} (" in page
    assert page.count("data:image/webp") == 3 * len(summary["methods"])
    assert page.count("data:image/png") == 3
    assert not re.search(r'(src|href)="(?!data:|#)', page)  # nothing from elsewhere
    with pytest.raises(ValueError, match=r"summary\.json"):
        write_page([base], base / "nothing.html")


def test_a_border_is_drawn_on_copies_and_says_when_the_goal_is_reached():
    frames = np.zeros((3, 16, 16, 3), np.uint8)
    film = Film(frames, frames[0], np.array([0, 2, 4]), np.array([False, True, False]), np.array([9.0, 1.0, 5.0]))
    assert animation(film).startswith("data:image/webp;base64,")
    assert frames.sum() == 0
    assert verdict(film, "px") == "reached by step 2, left again, 5 px away at the end"


def test_a_page_needs_no_torch():
    code = "import sys, leplanner.report.page, leplanner.report.card\nprint('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "False"
