"""Bundles go to the Hugging Face hub and come back the same; the hub is a fake on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from control.fake_hub import FakeHub

import leplanner as lp
from leplanner.zoo import shipped

PUSH_AND_FETCH = """
import sys, warnings
import leplanner as lp
planner = lp.load("tworoom", engine="eager")
planner.push_to_hub("me/rooms", commit_message="first")
again = lp.load("me/rooms", engine="eager")
assert again.digest == planner.digest
first = again.folder.name
planner.model.eta.add_(1.0)  # other weights: the card and the results of the old ones do not go along
planner.push_to_hub("me/rooms", commit_message="second")
assert lp.load("me/rooms", engine="eager").digest == planner.digest
assert lp.load("me/rooms", engine="eager", revision=first).digest == again.digest
assert lp.LoadedPlanner.from_pretrained("me/rooms", revision=first, engine="eager").digest == again.digest
for wrong, revision in (("me/nobody", None), ("me/rooms", "never")):
    try:
        lp.load(wrong, revision=revision)
    except ValueError as error:
        print("refused:", str(error)[:60])
"""


@pytest.fixture
def hub():
    hub = FakeHub()
    yield hub
    hub.close()


def test_a_bundle_goes_to_the_hub_and_comes_back(hub, tmp_path):
    variables = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_test", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PUSH_AND_FETCH],
        env={**os.environ, **variables, "HF_HUB_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused: No bundle me/") == 2
    assert hub.unknown == []
    commits = list(hub.repos["me/rooms"].values())
    assert any({"manifest.json", "evaluation.json", "README.md", "config.json"} <= set(files) for files in commits)


def test_the_card_tells_the_hub_what_was_measured():
    for name, folder in shipped().items():
        head = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
        assert (head["library_name"], head["pipeline_tag"]) == ("leplanner", "robotics")
        assert name in head["tags"]
        results = head["model-index"][0]["results"][0]
        assert results["dataset"]["revision"] == json.loads((folder / "evaluation.json").read_text())["manifest"]
        measured = json.loads((folder / "evaluation.json").read_text())["methods"][0]["rates"]["any"]["value"]
        assert results["metrics"][0]["value"] == pytest.approx(measured, abs=1e-4)


def test_a_folder_has_no_revision(tmp_path):
    with pytest.raises(ValueError, match="leave revision out"):
        lp.load(shipped()["tworoom"], revision="main")
    planner = lp.load("tworoom", engine="eager")
    planner.save_pretrained(tmp_path)
    assert lp.LoadedPlanner.from_pretrained(str(tmp_path), engine="eager").digest == planner.digest
    assert (tmp_path / "README.md").read_bytes() == (shipped()["tworoom"] / "README.md").read_bytes()
