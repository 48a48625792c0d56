"""Engines compute the plan of the plain model; exported files need no torch."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from linear_world import LinearWorld, draw, make_model, problem_of

import leplanner as lp
from leplanner.bench.plan import random_planner, ratios
from leplanner.cli.main import main
from leplanner.control.policy import PlannerPolicy, Request, TransitionCounter
from leplanner.core.latent import LatentSpec
from leplanner.evaluation.limits import Machine, PlanWork, plan_work
from leplanner.pipeline.presets import get_preset
from leplanner.planner.engines import ENGINES, EngineKind, EngineReport, pick_engine, random_problem
from leplanner.planner.engines.eager import EagerEngine
from leplanner.planner.model import LePlanner
from leplanner.planner.planner import Planner
from leplanner.tasks import TASKS
from leplanner.zoo import shipped

EXAMPLES = Path(__file__).parents[2] / "examples"
PUSHT = TASKS["pusht"]


def livened(scale: str) -> Planner:
    """Random weights, with those that start at zero moved: what hides there would never be missed."""
    planner = random_planner(PUSHT, scale)
    generator = torch.Generator().manual_seed(1)
    for module in (*planner.world.model.modules(), *planner.model.modules()):
        if isinstance(module, torch.nn.LayerNorm | torch.nn.GroupNorm | torch.nn.BatchNorm1d):
            for part in module.parameters():
                part.add_(0.1 * torch.randn(part.shape, generator=generator))
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape, generator=generator))  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 2.0, generator=generator)  # type: ignore[union-attr]
    for layer in planner.world.model.predictor.transformer.layers:  # type: ignore[union-attr]
        for part in layer.adaLN_modulation[1].parameters():
            part.copy_(0.1 * torch.randn(part.shape, generator=generator))
    planner.model.delta_head.bias.copy_(0.1 * torch.randn(planner.model.config.width, generator=generator))
    planner.model.eta.copy_(torch.tensor([0.5, -0.3, 0.1]))
    return planner


@pytest.fixture(scope="module", params=["compact", "paper"])
def planner(request) -> Planner:
    return livened(request.param)


def assert_same_plans(planner: Planner, engine: str, batch: int) -> None:
    problem = random_problem(planner.model, batch=batch)
    expected = Planner(planner.world, planner.model, engine="eager").plan(problem)
    other = Planner(planner.world, planner.model, engine=engine)
    actual = other.plan(problem)
    report = other.engine_report()
    assert report.engine == engine
    tolerance = 2e-5 if report.precision == "fp32" else 1e-2
    for name in ("blocks", "latents", "distances"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), atol=tolerance, rtol=tolerance)
    blocks = expected.blocks.flip(1)
    imagined = other.imagine(problem, blocks)
    rolled = planner.world.rollout(problem.context, problem.past_blocks, blocks)
    torch.testing.assert_close(imagined, rolled, atol=tolerance, rtol=tolerance)
    with pytest.raises(ValueError, match="Blocks to imagine"):
        other.imagine(problem, blocks[:, 1:])


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_onnx_plans_as_the_plain_model_does(planner, batch):
    assert_same_plans(planner, "onnx", batch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("batch", [1, 7, 50])
def test_compiled_plans_as_the_plain_model_does(planner, batch):
    assert_same_plans(planner, "compiled", batch)


def test_onnx_encodes_as_the_plain_model_does(planner, rng):
    size = planner.world.spec.frame_size
    frames = rng.integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    encoded = Planner(planner.world, planner.model, engine="onnx").encode(frames)
    torch.testing.assert_close(encoded, planner.world.encode(frames), atol=2e-5, rtol=2e-5)


def test_what_an_engine_is_chosen_for():
    planner = random_planner(PUSHT, "tiny")
    assert planner.engine_report().engine == "onnx"
    assert "CPU" in planner.engine_report().reason
    assert pick_engine("eager", planner.world, planner.model) == ("eager", "requested")
    with pytest.raises(ValueError, match=r"Unknown engine 'fast'\. Known: auto, onnx, compiled, eager"):
        Planner(planner.world, planner.model, engine="fast")
    assert Planner(planner.world, planner.model, engine="Eager").engine_report().engine == "eager"


def test_a_world_that_offers_nothing_is_planned_in_by_the_plain_model():
    report = Planner(LinearWorld(), make_model()).engine_report()
    assert (report.engine, report.precision) == ("eager", "fp32")
    assert "LinearWorld" in report.reason
    assert "plain model" in report.reason


def test_a_world_that_offers_nothing_is_traced_where_that_is_requested():
    torch.manual_seed(0)
    model, problem = make_model(), problem_of(draw(np.random.default_rng(0), 6))
    eager, traced = (Planner(LinearWorld(), model, engine=engine) for engine in ("eager", "onnx"))
    for name in ("blocks", "latents", "distances"):
        actual, expected = (getattr(planner.plan(problem), name) for planner in (traced, eager))
        torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)

    class Traceable(LinearWorld):
        traceable = True

    assert Planner(Traceable(), model).engine_report().engine == "onnx"


def test_an_engine_of_another_package_is_used_when_requested_by_name(monkeypatch):
    class Reversed(EagerEngine):
        precision = "fp64"

        def plan(self, problem):
            plan = super().plan(problem)
            return replace(plan, blocks=plan.blocks.flip(1))

    def missing(dynamics, model):
        return None if model.config.width == 48 else "it needs a planner of width 48"

    ENGINES.names()  # complete
    monkeypatch.setattr(ENGINES, "_items", dict(ENGINES._items))
    ENGINES.register(EngineKind("reversed", Reversed, missing, suits=lambda dynamics, device: None))
    model, problem = make_model(), problem_of(draw(np.random.default_rng(0), 2))
    planner = Planner(LinearWorld(), model, engine="reversed")
    assert planner.engine_report() == EngineReport("reversed", "fp64", "requested")
    expected = Planner(LinearWorld(), model, engine="eager").plan(problem).blocks.flip(1)
    assert torch.equal(planner.plan(problem).blocks, expected)
    assert Planner(LinearWorld(), model).engine_report().engine == "eager"  # it suits nothing by itself
    narrow = LePlanner(replace(model.config, width=32), model.latent, 3, model.actions)
    with pytest.raises(ValueError, match="needs a planner of width 48"):
        Planner(LinearWorld(), narrow, engine="reversed")


def test_without_onnx_runtime_the_plain_model_plans_and_says_so(monkeypatch):
    planner = random_planner(PUSHT, "tiny")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert pick_engine("auto", planner.world, planner.model)[0] == "eager"
    assert "leplanner[export]" in pick_engine("auto", planner.world, planner.model)[1]
    with pytest.raises(ValueError, match="not installed"):
        pick_engine("onnx", planner.world, planner.model)


def test_transitions_are_what_the_plain_model_imagines():
    planner = random_planner(PUSHT, "tiny")
    problem = random_problem(planner.model, batch=3)
    counter = TransitionCounter(planner.world)
    Planner(counter, planner.model).plan(problem)
    assert counter.transitions == 3 * planner.transitions_per_plan == 3 * 20
    policy = PlannerPolicy(planner)
    policy.decide(Request(problem, None, None, (0, 1, 2)))
    assert policy.transitions == 60


def test_changed_weights_are_planned_with():
    planner = random_planner(PUSHT, "tiny")
    problem = random_problem(planner.model)
    before = planner.plan(problem).blocks
    planner.model.action_head[3].weight.mul_(2.0)
    after = planner.plan(problem).blocks
    assert (after - before).abs().max() > 1e-3
    torch.testing.assert_close(after, planner.plan(problem, record="trace").final.blocks, atol=2e-5, rtol=2e-5)


def test_a_planner_that_has_planned_can_be_copied():
    planner = lp.load("tworoom")
    problem = random_problem(planner.model)
    frames = np.zeros((1, 64, 64, 3), np.uint8)
    latents, blocks = planner.encode(frames), planner.plan(problem).blocks
    again = copy.deepcopy(planner)
    torch.testing.assert_close(again.plan(problem).blocks, blocks)
    torch.testing.assert_close(again.encode(frames), latents)


def test_a_planner_for_another_world_is_refused():
    planner = random_planner(PUSHT, "tiny")
    config, actions = planner.model.config, planner.model.actions
    with pytest.raises(ValueError, match="context is 3, the planner's 2"):
        Planner(planner.world, LePlanner(config, planner.world.latent, 2, actions))
    with pytest.raises(ValueError, match="block_dim is 10, the planner's 8"):
        Planner(planner.world, LePlanner(config, planner.world.latent, 3, replace(actions, block=4)))
    with pytest.raises(ValueError, match=r"shape \(32,\), the planner's \(31,\)"):
        Planner(planner.world, LePlanner(config, LatentSpec((31,)), 3, actions))


def test_an_old_runtime_is_not_used(monkeypatch):
    planner = random_planner(PUSHT, "tiny")
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.22.1")
    name, reason = pick_engine("auto", planner.world, planner.model)
    assert name == "eager"
    assert "onnxruntime 1.22.1 is too old, 1.23 is needed" in reason


@pytest.mark.parametrize("threads", [1, 3])
def test_every_process_exports_the_same_bytes(threads, exported, tmp_path):
    script = f"import torch; torch.set_num_threads({threads}); from leplanner.cli.main import main; "
    script += f"main(['export', 'tworoom', '--out', {str(tmp_path)!r}])"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    for name in ("encoder.onnx", "plan.onnx"):
        assert (tmp_path / name).read_bytes() == (exported / name).read_bytes()


def test_a_loaded_bundle_encodes_and_plans_by_the_same_engine():
    fast, plain = lp.load("tworoom"), lp.load("tworoom", engine="eager")
    assert fast.engine_report().engine == "onnx"
    frame = np.full((64, 64, 3), 200, np.uint8)
    np.testing.assert_allclose(fast.encode(frame[None]), plain.encode(frame[None]), atol=1e-3)
    assert torch.equal(fast.world.encode(frame[None]), plain.encode(frame[None]))  # no engine changes the world
    actions = [planner.controller(frame).act(frame) for planner in (fast, plain)]
    np.testing.assert_allclose(*actions, atol=1e-3)
    for planner in (fast, plain):
        with pytest.raises(ValueError, match="uint8 of shape"):
            planner.encode(frame[None].astype(np.float32))
        with pytest.raises(ValueError, match="Resize"):
            planner.encode(frame[None, :32, :32])


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("onnx")
    assert main(["export", "tworoom", "--out", str(out)]) == 0
    return out


def fed(problem, last_plan: torch.Tensor, executed: int) -> dict[str, np.ndarray]:
    """What the exported plan takes."""
    inputs = {name: getattr(problem, name).numpy() for name in ("context", "past_blocks", "goal")}
    return inputs | {"last_plan": last_plan.numpy(), "executed": np.array([executed])}


def test_exported_files_say_what_a_loop_must_know(exported):
    session = onnxruntime.InferenceSession(exported / "plan.onnx")
    facts = {name: json.loads(value) for name, value in session.get_modelmeta().custom_metadata_map.items()}
    planner = lp.load("tworoom")
    actions = planner.world.spec.actions
    assert (facts["task"], facts["digest"], facts["block"]) == ("tworoom", planner.digest, actions.block)
    assert (facts["action_mean"], facts["action_std"]) == (list(actions.mean), list(actions.std))
    assert (facts["action_low"], facts["action_high"], facts["horizon"]) == ([-1.0, -1.0], [1.0, 1.0], 5)
    problem = random_problem(planner.model, batch=4)
    expected = lp.load("tworoom", engine="eager").plan(problem)
    assert facts["reuse"]
    inputs = fed(problem, expected.blocks, executed=5)
    np.testing.assert_allclose(session.run(["blocks"], inputs)[0], expected.blocks.numpy(), atol=2e-5)


def test_a_fixed_batch_is_fixed(tmp_path):
    main(["export", "tworoom", "--out", str(tmp_path), "--batch", "2"])
    session = onnxruntime.InferenceSession(tmp_path / "plan.onnx")
    assert session.get_inputs()[0].shape == [2, 3, 128]
    planner = lp.load("tworoom", engine="eager")
    problem = random_problem(planner.model, batch=2)
    expected = planner.plan(problem).blocks
    inputs = fed(problem, torch.zeros_like(expected), executed=5)
    np.testing.assert_allclose(session.run(["blocks"], inputs)[0], expected.numpy(), atol=2e-5)


def test_the_papers_controller_is_exported_without_the_last_plan(tmp_path):
    main(["export", "tworoom", "--out", str(tmp_path), "--no-reuse"])
    session = onnxruntime.InferenceSession(tmp_path / "plan.onnx")
    assert [value.name for value in session.get_inputs()] == ["context", "past_blocks", "goal"]
    assert session.get_modelmeta().custom_metadata_map["reuse"] == "false"


def test_control_without_torch(exported):
    """The example arrives and stays, in a process in which torch cannot be imported."""
    refuse = "import sys; sys.modules['torch'] = None; sys.path.insert(0, sys.argv[2]); import runpy; "
    refuse += "sys.argv = sys.argv[:2]; runpy.run_path(sys.path[0] + '/control_with_onnx.py', run_name='__main__')"
    command = [sys.executable, "-c", refuse, str(exported), str(EXAMPLES)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    distances = [float(line.split()[3]) for line in lines]
    assert len(distances) == 8
    assert max(distances[4:]) < 3.0 < distances[0]


def test_the_room_of_the_example_is_stable_worldmodels(simulators, monkeypatch, rng):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from two_rooms import TwoRooms

    theirs = simulators("tworoom")
    for x in (60.0, 160.0):
        start = np.array([x, 60.0])
        ours = TwoRooms(start, 64)
        theirs.set_state(start)
        for _ in range(30):
            action = rng.uniform(-1, 1, 2) + [0.5 if x < 112 else -0.5, -0.1]
            ours.step(action)
            theirs.step(action.astype(np.float32))
        np.testing.assert_allclose(ours.position, theirs.state(), atol=1e-3)
        assert abs(ours.render().astype(int) - theirs.render(64)).max() <= 1


def test_what_a_plan_must_cost():
    """By hand, at paper scale: the predictor's layers once a transition and once for each of
    two prefixes in one pass."""
    planner = random_planner(PUSHT, "paper")
    work = plan_work(planner)
    network = get_preset(PUSHT, "paper").network
    inner = network.heads * network.head_dim
    layer = 4 * (network.latent * 3 * inner + inner * network.latent + 2 * network.latent * network.mlp) / 1e6
    transitions = 20 * network.depth * layer
    assert transitions < work.weights_mb < 1.35 * transitions
    assert Machine(100.0, 20.0).least_ms(PlanWork(gflop=2.0, weights_mb=100.0)) == pytest.approx(20.0)
    assert Machine(100.0, 2.0).least_ms(PlanWork(gflop=2.0, weights_mb=100.0)) == pytest.approx(50.0)


def test_bench_plan_measures_in_one_run(capsys):
    arguments = "bench plan --scale tiny --beside fast-lewm --engines eager,onnx --rivals gradient,gcidm --batches 1,5"
    assert main([*arguments.split(), "--seconds", "0.2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    beside = [row for row in report["rows"] if row["family"] == "fast-lewm"]
    report["rows"] = [row for row in report["rows"] if row["family"] == "lewm"]
    assert {(row["method"], row["engine"], row["batch"]) for row in beside} == {
        (row["method"], row["engine"], row["batch"]) for row in report["rows"] if row["engine"] != "torch"
    }
    for engine in ("eager", "onnx"):
        ours, theirs = (next(row for row in rows if row["engine"] == engine) for rows in (beside, report["rows"]))
        ratio = report["ratios"][f"plan time over fast-lewm / over lewm, {engine}"]
        assert ratio == ours["plan_ms"] / theirs["plan_ms"]
    assert {(row["method"], row["engine"], row["batch"]) for row in report["rows"]} == {
        *(
            (method, engine, batch)
            for method in ("leplanner", "leplanner-reuse")
            for engine in ("eager", "onnx")
            for batch in (1, 5)
        ),
        ("gradient", "torch", 1),
        ("gcidm", "torch", 1),
        ("gcidm", "torch", 5),
    }
    assert {row["transitions"] for row in report["rows"] if row["method"] == "leplanner-reuse"} == {25}
    onnx = next(row for row in report["rows"] if (row["engine"], row["batch"]) == ("onnx", 1))
    assert onnx["repeats"] > 1  # making the session is not timed
    eager = next(row for row in report["rows"] if (row["engine"], row["batch"]) == ("eager", 1))
    assert report["ratios"]["our eager / our fastest"] == eager["plan_ms"] / min(eager["plan_ms"], onnx["plan_ms"])
    assert set(report["first_plan"]) == {"import_s", "load_s", "first_plan_s", "resident_mb", "peak_mb"}
    assert {(row["graph"], row["way"]) for row in report["export"]["rows"]} == {
        (graph, way) for graph in ("plan", "encoder") for way in ("by hand", "traced")
    }
    assert max(report["export"]["deviation"].values()) < 1e-4
    assert ratios([], Machine(1.0, 1.0), PlanWork(1.0, 1.0), 5) == {}


@pytest.mark.parametrize("wrong", ["--rivals nobody", "--engines warp", "--batches 1,x"])
def test_bench_plan_says_at_once_what_is_wrong(wrong, capsys):
    assert main(f"bench plan --scale tiny {wrong}".split()) != 0
    assert wrong.split()[1] in capsys.readouterr().err


@pytest.mark.parametrize("name", list(shipped()))
def test_every_shipped_bundle_is_exported_as_it_is(name, tmp_path, rng):
    assert main(["export", name, "--out", str(tmp_path)]) == 0
    encoder, plan = (onnxruntime.InferenceSession(tmp_path / f"{part}.onnx") for part in ("encoder", "plan"))
    planner = lp.load(name, engine="eager")
    size = planner.world.spec.frame_size
    frames = np.full((2, size, size, 3), 128, np.uint8) + rng.integers(0, 40, (2, size, size, 3), dtype=np.uint8)
    np.testing.assert_allclose(encoder.run(None, {"frames": frames})[0], planner.encode(frames), atol=1e-3)
    problem = random_problem(planner.model, batch=2)
    expected = planner.plan(problem).blocks
    inputs = fed(problem, expected, executed=5)
    np.testing.assert_allclose(plan.run(["blocks"], inputs)[0], expected.numpy(), atol=1e-4)
