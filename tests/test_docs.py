"""The documentation: its examples run, its commands exist, its pages build."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from leplanner.cli.main import verbs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_a_world_of_ones_own_is_planned_in():
    state, goal = runpy.run_path(str(ROOT / "examples" / "own_world.py"))["main"](steps=150)
    assert np.linalg.norm(state[:2] - goal[:2]) < 0.1


def test_the_quickstart_reaches_its_goal(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "quickstart.py"))
    assert np.linalg.norm(example["room"].state() - [170.0, 60.0]) < 16
    assert (ROOT / "examples" / "quickstart.py").read_text().split("planner = ")[1] in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_named_exists(page):
    known = verbs()
    for command in re.findall(r"^(?:\$ )?leplanner ([a-z]+)(?: ([a-z]+))?", page.read_text(), re.MULTILINE):
        assert command[0] in known, command
        if isinstance(known[command[0]], dict):
            assert command[1] in known[command[0]], command


def test_the_pages_build_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Dynamics" in (tmp_path / "api" / "index.html").read_text()
    outside = [
        link
        for link in re.findall(
            r'<(?:script|link)[^>]+(?:src|href)="(https?:[^"]+)"', (tmp_path / "index.html").read_text()
        )
    ]
    assert not [link for link in outside if "leplanner" not in link]
