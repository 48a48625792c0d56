"""The general path to ONNX: torch traces a world that lays out nothing itself, and the graphs equal the plain model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from linear_world import LinearWorld, draw, make_model, problem_of

import leplanner as lp
from leplanner.planner.engines import random_problem
from leplanner.planner.engines.onnx_models import plan_model
from leplanner.planner.export import export_onnx
from leplanner.planner.model import LePlanner
from leplanner.planner.planner import Planner
from leplanner.worlds.base import World

TOLERANCE = 1e-4


class BareWorld(World):
    """A world whose network offers no capability."""

    def __getattr__(self, name):
        raise AttributeError(name)


def bare_planner(engine: str, refinements: int | None = None) -> Planner:
    shipped = lp.load("tworoom")
    world, model = BareWorld(shipped.world.model, shipped.world.spec), shipped.model
    if refinements is not None:
        config = replace(model.config, refinements=refinements)
        other = LePlanner(config, model.latent, model.context, model.actions)
        weights = {name: weight for name, weight in model.state_dict().items() if name != "eta"}
        other.load_state_dict(weights | {"eta": model.eta[:refinements]})
        model = other
    return Planner(world, model, engine=engine)


@pytest.fixture(scope="module")
def traced() -> Planner:
    return bare_planner("onnx")


def assert_close(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, atol=TOLERANCE, rtol=TOLERANCE)


def assert_same_plan(actual, expected) -> None:
    for name in ("blocks", "latents", "distances"):
        assert_close(getattr(actual, name), getattr(expected, name))


@pytest.mark.parametrize("batch", [1, 3])
def test_a_traced_world_plans_imagines_and_encodes_as_the_plain_model_does(traced, batch, rng):
    eager = bare_planner("eager")
    problem = random_problem(eager.model, batch=batch)
    expected = eager.plan(problem)
    assert_same_plan(traced.plan(problem), expected)
    blocks = expected.blocks.flip(1)
    assert_close(traced.imagine(problem, blocks), eager.imagine(problem, blocks))
    frames = rng.integers(0, 256, (batch, 64, 64, 3), dtype=np.uint8)
    assert_close(traced.encode(frames), eager.encode(frames))


def test_auto_traces_a_world_that_lays_out_nothing():
    report = bare_planner("auto").engine_report()
    assert (report.engine, report.precision) == ("onnx", "fp32")


def test_a_planner_without_refinements_is_traced_too():
    eager, traced = (bare_planner(engine, refinements=0) for engine in ("eager", "onnx"))
    problem = random_problem(eager.model, batch=3)
    assert len(eager.plan(problem, record="trace").plans) == 1
    assert_same_plan(traced.plan(problem), eager.plan(problem))


def test_every_weight_is_stored_once(traced, tmp_path):
    network = traced.world.model
    encoder = sum(part.numel() for module in network.encoder_parts().values() for part in module.parameters())
    total = sum(part.numel() for module in (network, traced.model) for part in module.parameters())
    for path, weights in zip(export_onnx(traced, tmp_path), (encoder, total - encoder), strict=True):
        stored = sum(np.prod(tensor.dims) for tensor in onnx.load(path).graph.initializer)
        assert weights <= stored < 1.05 * weights, path.name
        assert path.stat().st_size < 1.5 * 4 * weights, path.name  # with 14,000 nodes of names and shapes


def test_a_fixed_batch_is_traced_as_one():
    model, problem = make_model(), problem_of(draw(np.random.default_rng(0), 2))
    graph = plan_model(LinearWorld(), model, 2, {})
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    assert {value.name: value.shape for value in session.get_inputs()} == {
        "context": [2, 3, 4],
        "past_blocks": [2, 2, 2],
        "goal": [2, 4],
    }
    inputs = {name: getattr(problem, name).numpy() for name in ("context", "past_blocks", "goal")}
    blocks = session.run(["blocks"], inputs)[0]
    np.testing.assert_allclose(blocks, Planner(LinearWorld(), model).plan(problem).blocks, atol=TOLERANCE)


def test_a_rollout_that_depends_on_values_is_refused():
    """Tracing follows one branch and forgets the other."""

    class Moody(LinearWorld):
        def rollout(self, context, past_blocks, plan):
            latents = super().rollout(context, past_blocks, plan)
            return latents if float(context.sum()) > self.least else -latents

    problem = problem_of(draw(np.random.default_rng(0), 3))
    for least in (-1e9, 0.0):  # always the same branch; sometimes the other
        world = Moody()
        world.least = least
        planner = Planner(world, make_model(), engine="onnx")
        if least:
            planner.plan(problem)
            continue
        with pytest.raises(ValueError, match='Use engine="eager" or "compiled"'):
            planner.plan(problem)


def test_a_rollout_that_torch_cannot_export_is_refused():
    class Foreign(LinearWorld):
        def rollout(self, context, past_blocks, plan):
            latents = super().rollout(context, past_blocks, plan)
            return latents + torch.special.bessel_j0(latents)

    with pytest.raises(ValueError, match="could not export this planner to ONNX"):
        Planner(Foreign(), make_model(), engine="onnx").plan(problem_of(draw(np.random.default_rng(0), 3)))
