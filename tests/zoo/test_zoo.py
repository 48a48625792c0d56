"""The shipped bundles: they load strictly, plan alike in any batch, and solve their easy trials."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import leplanner as lp
from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.control.methods import methods_of
from leplanner.core.problem import PlanProblem
from leplanner.evaluation.manifest import load_manifest
from leplanner.evaluation.runner import EvaluationConfig, evaluate
from leplanner.planner.engines import random_problem
from leplanner.tasks import TASKS
from leplanner.zoo import shipped

MB_A_TASK = 12
FAST = ("tworoom", "pusht")
OURS = methods_of("ours")
NAMES = tuple(TASKS)  # as shipped: other tests register tasks of their own


def test_every_task_has_a_bundle():
    assert set(shipped()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_is_whole_small_and_in_half_precision(name):
    folder = shipped()[name]
    planner = lp.load(name)  # strict: every tensor, its shape, and the digest
    assert planner.world.spec.task == name
    assert planner.density is not None
    assert sum(path.stat().st_size for path in folder.iterdir()) < MB_A_TASK * 1e6
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            kinds = {tensors.get_tensor(key).dtype for key in tensors.keys()}  # noqa: SIM118 - not a dictionary
        assert kinds <= {torch.float16, torch.int64}, path


@pytest.mark.parametrize("name", NAMES)
def test_its_card_says_what_was_measured(name):
    folder = shipped()[name]
    card, summary = (folder / "README.md").read_text(), read_json(folder / "evaluation.json")
    assert load_manifest(folder / "manifest.json").digest == summary["manifest"]
    assert summary["manifest"] in card
    assert f"leplanner run {name}" in card
    assert {m["method"] for m in summary["methods"]} >= {"leplanner", "random", "no-op", "replay"}
    measured = {m["weights"] for m in summary["methods"] if m["method"] == "leplanner"}
    assert measured == {lp.load(name).digest}
    for m in summary["methods"]:
        if m["method"] == "leplanner":
            rate = m["rates"]["any"]
            assert f"| LePlanner | m = {m['replan']} | {m['trials']} | {100 * rate['value']:.1f} (" in card


@pytest.mark.parametrize("name", NAMES)
def test_a_problem_gets_the_same_plan_in_any_batch(name):
    planner = lp.load(name)
    problem = random_problem(planner.model, batch=5)
    together = planner.plan(problem).blocks
    for i in range(5):
        row = slice(i, i + 1)
        alone = planner.plan(PlanProblem(problem.context[row], problem.past_blocks[row], problem.goal[row])).blocks
        assert torch.allclose(alone, together[row], atol=1e-4)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in NAMES])
def test_it_solves_its_easy_trials(name, tmp_path):
    config = EvaluationConfig(methods=OURS, replan=(1,))
    rows = evaluate(shipped()[name], shipped()[name] / "easy.json", config, tmp_path / "rows.jsonl")
    assert [row.error for row in rows] == [None] * 20
    for method in OURS:
        assert sum(row.outcome["any"] for row in rows if row.method == method) >= 8


def test_names_that_are_no_bundle_are_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"Known: cube, pusht, reacher, tworoom\. Make one with: leplanner run"):
        lp.load("walker")
    with pytest.raises(ValueError, match="Did you mean 'pusht'"):
        lp.load("pushtt")
    assert lp.load("TwoRoom").world.spec.task == "tworoom"
    (tmp_path / "cube").mkdir()
    assert lp.load("cube").world.spec.task == "cube"  # the shipped one
    with pytest.raises(ValueError, match=r"no config\.json"):
        lp.load("./cube")


def test_the_zoo_is_listed(capsys):
    assert main(["zoo"]) == 0
    shown = capsys.readouterr().out
    assert all(f'lp.load("{name}")' in shown for name in NAMES)


@pytest.mark.slow
def test_the_demo_records_every_task(tmp_path, capsys):
    assert main(["demo", "--trials", "1", "--samples", "20", "--rounds", "2", "--out", str(tmp_path)]) == 0
    assert f"report: {tmp_path / 'report.html'}" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    videos = 2 * len(NAMES)  # of two methods
    assert page.count("data:image/webp") == 2 * videos  # each as an animation, and as frames to play one by one


@pytest.mark.slow
def test_a_wheel_brings_the_bundles(tmp_path):
    root = Path(__file__).parents[2]
    left_out = shutil.ignore_patterns(".*", "runs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(root, tmp_path / "source", ignore=left_out)  # what a killed build left behind would break this one
    command = [sys.executable, "-m", "pip", "wheel", str(tmp_path / "source"), "--no-deps", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for task in NAMES:
        for file in shipped()[task].iterdir():
            assert f"leplanner/zoo/{task}/{file.name}" in names
    assert "leplanner/report/page.html.j2" in names
