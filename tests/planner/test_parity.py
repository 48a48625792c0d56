"""Shipped bundles plan as they did before the package was rearranged, and bundles of the first format still load."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import leplanner as lp
from leplanner.planner.engines import random_problem
from leplanner.planner.planner import load_bundle
from leplanner.zoo import shipped

FORMAT_1 = Path(__file__).parents[1] / "data" / "format1"
# the first block of the plan for the first of 20 random problems, recorded in version 0.1.0
# fmt: off
FIRST_BLOCKS = {
    "tworoom": [
        1.425289, -1.452353, 1.181152, -1.407985, -0.645717, -1.150808, -0.531863, -1.231386, 1.574967, 0.310790,
    ],
    "pusht": [
        -2.207046, -1.544057, -2.398533, 1.774244, -2.309015, 2.110368, -0.813657, 1.816318, 1.360960, 1.751109,
    ],
    "reacher": [
        2.954683, 2.398053, 2.951000, 2.823552, 2.938364, 2.786917, 2.925159, 2.807933, 2.891573, 2.799963,
    ],
    "cube": [
        -0.320591, -0.384980, 1.002532, -0.739061, 0.901269, -0.148650, -0.620630, 0.592940, -0.482017, 0.371655,
        -1.109483, -0.520576, -0.302611, -1.080644, 0.741238, -0.753999, -0.755954, 0.046770, -1.234264, -0.219034,
        -0.882815, -0.638127, -0.396549, -1.280836, -0.466049,
    ],
}
# fmt: on


@pytest.mark.parametrize("engine", ["eager", "onnx"])
@pytest.mark.parametrize("task", FIRST_BLOCKS)
def test_shipped_bundles_plan_as_they_were_recorded(task, engine):
    planner = lp.load(task, engine=engine)
    plan = planner.plan(random_problem(planner.model, batch=20))
    np.testing.assert_allclose(plan.blocks[0, 0], FIRST_BLOCKS[task], atol=1e-5, rtol=0)


@pytest.fixture(params=list(FIRST_BLOCKS))
def old_bundle(request, tmp_path) -> Path:
    """A shipped bundle's weights with their config of format 1."""
    for weights in shipped()[request.param].glob("*.safetensors"):
        shutil.copyfile(weights, tmp_path / weights.name)
    shutil.copyfile(FORMAT_1 / f"{request.param}.json", tmp_path / "config.json")
    return tmp_path


def test_a_bundle_of_format_1_loads_and_plans_the_same(old_bundle):
    old = load_bundle(old_bundle, engine="eager")
    new = lp.load(old.world.spec.task, engine="eager")
    problem = random_problem(new.model, batch=20)
    for name in ("blocks", "latents", "distances"):
        assert torch.equal(getattr(old.plan(problem), name), getattr(new.plan(problem), name))
    assert (old.world.spec, old.model.config, old.digest) == (new.world.spec, new.model.config, new.digest)


@pytest.mark.parametrize("part", ["world", "planner", "density"])
def test_a_flipped_weight_of_format_1_is_refused(old_bundle, part):
    path = old_bundle / f"{part}.safetensors"
    weights = load_file(path)
    name = max(weights, key=lambda name: weights[name].numel())
    weights[name].view(-1)[7] *= -1
    assert weights[name].view(-1)[7] != 0
    save_file(weights, path)
    with pytest.raises(ValueError, match="do not match the digest"):
        load_bundle(old_bundle)
