"""Which trials an evaluation uses: the bundle's own, those that were frozen before, or more of the same draw."""

from __future__ import annotations

import dataclasses
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.data.collect import CollectConfig, collect
from leplanner.evaluation.manifest import draw_manifest, load_manifest, save_manifest
from leplanner.evaluation.runner import read_rows
from leplanner.planner.planner import save_bundle
from leplanner.tasks import TASKS

TWOROOM = TASKS["tworoom"]


@pytest.fixture(scope="module")
def manifest(tworoom):
    return draw_manifest(TWOROOM, tworoom, 2, seed=1, block=5, context=3, simulator=TWOROOM.simulate)


@pytest.fixture(scope="module")
def bundle(tiny_planner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    save_bundle(tiny_planner, folder)
    return folder


def stable(rows):
    """Rows without what depends on the machine and the moment."""
    passing = ("encode_ms", "plan_ms", "environment_ms", "seconds", "fingerprint")
    return [{k: v for k, v in dataclasses.asdict(row).items() if k not in passing} for row in rows]


def test_a_bundle_brings_its_own_trials(
    tiny_planner, manifest, tworoom_file, tmp_path, capsys, monkeypatch, in_process
):
    """A local dataset does not change them, unless it is named."""
    monkeypatch.chdir(tmp_path)
    save_bundle(tiny_planner, tmp_path / "bundle")
    save_manifest(manifest, tmp_path / "bundle" / "manifest.json")
    command = ["evaluate", "tworoom", "--bundle", "bundle", "--methods", "No-Op", "--trials", "2", "--json"]
    assert main([*command, "--seed", "2"]) == 1  # other trials need a dataset
    assert "There is no dataset at runs/tworoom/data.h5" in capsys.readouterr().err
    other = collect(
        TWOROOM, CollectConfig(episodes=20, steps=40, size=32, seed=4), Path("runs/tworoom/data.h5"), in_process
    )
    assert main([*command, "--seed", "1", "--out", "out"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["manifest"] == manifest.digest
    assert f"2 of 2 trials of manifest {manifest.digest[:12]}, which bundle was measured on" in shown.err
    assert main([*command, "--seed", "1", "--trials", "3", "--out", "more"]) == 1
    assert "3 trials were requested; bundle brings 2" in capsys.readouterr().err
    assert main([*command, "--seed", "1", "--out", "named", "--data", str(other)]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["manifest"] != manifest.digest
    assert "drawn from runs/tworoom/data.h5" in shown.err
    assert main([*command, "--seed", "1", "--out", "named"]) == 0  # as frozen there, and said so
    assert "frozen in named/manifest.json; bundle was measured on others" in capsys.readouterr().err
    assert main([*command, "--seed", "1", "--out", "named", "--data", str(tworoom_file)]) == 1
    assert "was drawn from data" in capsys.readouterr().err


def test_an_evaluation_grows_into_the_one_that_had_all_trials(bundle, tworoom_file, tmp_path, in_process):
    """Rows and videos of the first trials stay as they were, also where the process was killed in between."""
    command = [
        "evaluate",
        "tworoom",
        "--bundle",
        str(bundle),
        "--data",
        str(tworoom_file),
        "--methods",
        "leplanner,random",
    ]
    command += ["--replan", "5", "--protocol", "heldout", "--offset", "10", "--videos", "1"]
    small, whole = tmp_path / "grown", tmp_path / "whole"
    assert main([*command, "--trials", "2", "--out", str(small)]) == 0
    first, video = read_rows(small / "rows.jsonl"), next((small / "videos").glob("leplanner-*"))
    recorded = video.stat().st_mtime_ns
    assert main([*command, "--trials", "4", "--out", str(whole)]) == 0
    shutil.copy(whole / "manifest.json", small / "manifest.grown.json")  # a killed process had got so far
    assert main([*command, "--trials", "3", "--out", str(small)]) == 0
    assert not (small / "manifest.grown.json").exists()
    assert main([*command, "--trials", "4", "--out", str(small)]) == 0
    assert (small / "manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()
    grown, drawn = (load_manifest(folder / "manifest.json") for folder in (small, whole))
    rows = {(row.method, row.trial): row for row in read_rows(small / "rows.jsonl")}
    assert len(rows) == 8
    for row in first:  # not run again: its milliseconds are the same
        assert rows[row.method, row.trial] == replace(row, manifest=grown.digest)
    expected = {(row.method, row.trial): row for row in read_rows(whole / "rows.jsonl")}
    assert stable(rows[key] for key in expected) == stable(expected.values())
    videos = [{path.name for path in (folder / "videos").iterdir()} for folder in (small, whole)]
    assert videos[0] == videos[1]
    assert {path.stat().st_mtime_ns for path in (small / "videos").glob("leplanner-*")} == {recorded}
    assert drawn.digest == read_json(small / "summary.json")["manifest"]


def test_trials_of_other_data_do_not_grow(bundle, manifest, tworoom_file, tmp_path, capsys):
    save_manifest(replace(manifest, data_digest="0" * 64), tmp_path / "manifest.json")
    before = (tmp_path / "manifest.json").read_bytes()
    command = ["evaluate", "tworoom", "--bundle", str(bundle), "--methods", "no-op", "--seed", "1"]
    command += ["--trials", "3", "--out", str(tmp_path)]
    assert main([*command, "--data", str(tworoom_file)]) == 1
    assert "which are not the first of" in capsys.readouterr().err
    assert main([*command, "--base", str(tmp_path / "empty")]) == 1
    assert "no dataset at" in capsys.readouterr().err
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_draws_that_do_not_continue_one_another_are_not_mixed(bundle, tworoom_file, tmp_path, capsys):
    """Three official trials are not the first three of four."""
    command = ["evaluate", "tworoom", "--bundle", str(bundle), "--methods", "no-op", "--protocol", "official"]
    command += ["--data", str(tworoom_file), "--out", str(tmp_path)]
    assert main([*command, "--trials", "4"]) == 0
    before = (tmp_path / "manifest.json").read_bytes()
    for other in ("3", "5"):
        assert main([*command, "--trials", other]) == 1
        assert "Ask for --trials 4, all that were drawn together, or choose another --out" in capsys.readouterr().err
    assert (tmp_path / "manifest.json").read_bytes() == before
    shutil.copytree(bundle, tmp_path / "brings")
    shutil.copy(tmp_path / "manifest.json", tmp_path / "brings" / "manifest.json")
    command = ["evaluate", "tworoom", "--bundle", str(tmp_path / "brings"), "--protocol", "official", "--trials", "3"]
    assert main([*command, "--methods", "no-op", "--out", str(tmp_path / "new")]) == 1
    assert "brings 4. Ask for --trials 4" in capsys.readouterr().err
