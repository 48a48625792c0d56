"""The documentation: its examples run, its commands exist, its pages build."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import leplanner as lp
from leplanner.cli.main import VERBS
from leplanner.core.actions import ActionSpec
from leplanner.core.dynamics import mean_squared_distance
from leplanner.worlds import FAMILIES, World, WorldSpec

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_a_world_of_ones_own_is_planned_in():
    state, goal = runpy.run_path(str(ROOT / "examples" / "own_world.py"))["main"](steps=150)
    assert np.linalg.norm(state[:2] - goal[:2]) < 0.1


def test_the_quickstart_reaches_its_goal(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "quickstart.py"))
    assert np.linalg.norm(example["room"].state() - [170.0, 60.0]) < 16
    assert (ROOT / "examples" / "quickstart.py").read_text().split("planner = ")[1] in (ROOT / "README.md").read_text()


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_family_and_the_task_of_the_page_keep_their_contracts(monkeypatch):
    monkeypatch.setattr(FAMILIES, "_items", dict(FAMILIES._items))  # forgets them afterwards
    names = {"lp": lp, "np": np, "torch": torch, "nn": torch.nn, "dataclass": dataclass}
    names |= {"mean_squared_distance": mean_squared_distance}
    family_code, task_code = (block for block in python_blocks("own.md") if "lp." in block)
    exec(family_code, names)
    exec(task_code, names)
    family, task = lp.register_world(names["LINEAR"]), names["TASK"]
    actions = ActionSpec((0.0, 0.0), (1.0, 1.0), task.low, task.high, block=5)
    world = World.build(WorldSpec(family.name, task.name, family.network("tiny", 10, 32), actions))
    sim = task.simulate()
    policy = task.behavior(sim, np.random.default_rng(0))
    frames = []
    for _ in range(4):
        sim.step(policy.act())
        frames.append(sim.render(32))
    latents = world.encode(np.stack(frames)).reshape(2, 2, -1)
    blocks = torch.randn(2, 6, 10, generator=torch.Generator().manual_seed(0))
    lp.check_dynamics(world, latents, blocks[:, :1], blocks[:, 1:])
    losses = world.model.losses(latents, blocks[:, :1], family.objective("tiny"), torch.Generator(), lambda x: x)
    assert losses["loss"].isfinite()
    assert task.success(sim.state(), sim.state())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        assert link.startswith(("http://", "https://")) or (page.parent / link).exists(), link


def test_the_api_page_has_every_export():
    page = (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in lp.__all__ if not re.search(rf"\b{name}$|`lp.{name}`", page, re.MULTILINE)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_named_exists(page):
    for command in re.findall(r"^(?:\$ )?leplanner ([a-z]+)(?: ([a-z]+))?", page.read_text(), re.MULTILINE):
        assert command[0] in VERBS or " ".join(command) in VERBS, command


def test_the_pages_build_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "api" / "index.html").read_text()
    assert [name for name in ("Dynamics", "LatentSpec", "WorldFamily", "register_task") if name not in page] == []
    home = (tmp_path / "index.html").read_text()
    outside = re.findall(r'<(?:script|link)[^>]+(?:src|href)="(https?:[^"]+)"', home)
    assert not [link for link in outside if "leplanner" not in link]
