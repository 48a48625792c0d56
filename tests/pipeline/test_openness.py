"""Families and a task that only these tests know go through every stage, engine, export,
search, diagnosis and report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import leplanner as lp
from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.planner.checks import check_dynamics, check_planner
from leplanner.planner.engines import random_problem

TASK = "own_task:TASK"
SHAPES = {"linear": (8,), "tokens": (4, 8)}
CHOICE = {"linear": "own_families:LINEAR", "tokens": "own_families:TOKENS"}


@pytest.fixture(scope="module", params=SHAPES)
def run(request, tmp_path_factory, forgets_registrations) -> tuple[str, Path]:
    base = tmp_path_factory.mktemp(request.param)
    words = ["run", TASK, "--scale", "tiny", "--family", CHOICE[request.param], "--out", str(base)]
    assert main([*words, "--trials", "2", "--search-trials", "0", "--offset", "10", "--workers", "1"]) == 0
    return request.param, base


def options(family: str, base: Path) -> list[str]:
    return [TASK, "--scale", "tiny", "--family", CHOICE[family], "--base", str(base)]


def test_a_run_ends_with_a_measured_bundle(run):
    family, base = run
    planner = lp.load(base / "bundle")
    assert planner.world.spec.family == family
    assert planner.world.latent.shape == SHAPES[family]
    assert planner.world.spec.actions.high == (1.0, 2.0)
    summary = read_json(base / "bundle" / "evaluation.json")
    assert {row["method"] for row in summary["methods"]} >= {"leplanner", "gcidm", "random", "no-op", "replay"}
    assert f"--family {family}" in (base / "bundle" / "README.md").read_text()
    assert "report" in (base / "report.html").name


def test_its_world_and_its_planner_keep_the_contracts(run):
    _, base = run
    planner = lp.load(base / "bundle", engine="eager")
    problem = random_problem(planner.model, batch=3)
    plan = planner.plan(problem)
    check_dynamics(planner.world, problem.context, problem.past_blocks, plan.blocks)
    check_planner(planner, problem)
    expected = 3.0 * (plan.latents - problem.goal.unsqueeze(1)).square().flatten(2).mean(-1)
    assert torch.allclose(plan.distances, expected, rtol=1e-5)  # the family's own measure


def test_onnx_equals_eager_and_needs_no_torch_to_plan(run, tmp_path):
    _, base = run
    eager, onnx = (lp.load(base / "bundle", engine=engine) for engine in ("eager", "onnx"))
    problem = random_problem(eager.model, batch=3)
    assert torch.allclose(onnx.plan(problem).blocks, eager.plan(problem).blocks, atol=1e-4)
    size = eager.world.spec.frame_size
    frames = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), np.uint8)
    assert torch.allclose(onnx.encode(frames), eager.encode(frames), atol=1e-4)
    assert main(["export", str(base / "bundle"), "--out", str(tmp_path)]) == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "plan.onnx"))
    fed = {"context": problem.context, "past_blocks": problem.past_blocks, "goal": problem.goal}
    fed |= {"last_plan": eager.plan(problem).blocks, "executed": torch.tensor([5])}
    named = {value.name for value in session.get_inputs()}
    blocks = session.run(["blocks"], {name: value.numpy() for name, value in fed.items() if name in named})[0]
    assert np.allclose(blocks, eager.plan(problem).blocks.numpy(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, on compiling
@pytest.mark.timeout(900)
def test_compiled_equals_eager(run):
    _, base = run
    eager, compiled = (lp.load(base / "bundle", engine=engine) for engine in ("eager", "compiled"))
    problem = random_problem(eager.model, batch=2)
    assert torch.allclose(compiled.plan(problem).blocks, eager.plan(problem).blocks, atol=1e-2)


def test_search_runs_in_it(run, tmp_path):
    family, base = run
    words = ["evaluate", *options(family, base), "--methods", "leplanner,cem", "--samples", "20", "--rounds", "1"]
    words += ["--trials", "1", "--offset", "10", "--replan", "2", "--workers", "1", "--out", str(tmp_path)]
    assert main([*words, "--protocol", "heldout"]) == 0
    rows = {row["method"]: row for row in read_json(tmp_path / "summary.json")["methods"]}
    assert rows["cem"]["transitions_per_plan"] == 20 * 5


def test_it_is_probed_decoded_diagnosed_and_reported(run, capsys):
    family, base = run
    capsys.readouterr()
    assert main(["world", "probe", str(base / "finetuned"), "--data", str(base / "data.h5"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["rmse"]) == {"state_0", "state_1"}
    bundle = ["--bundle", str(base / "bundle")]
    assert main(["decoder", *options(family, base), *bundle]) == 0
    words = ["diagnose", *options(family, base), *bundle, "--problems", "16", "--trials", "2", "--offset", "10"]
    assert main([*words, "--videos", str(base / "measured")]) == 0
    page = base / "all.html"
    assert main(["report", str(base / "measured"), str(base / "diagnostics"), "--out", str(page)]) == 0
    assert "When plans arrive" in page.read_text()
