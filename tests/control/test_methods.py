"""What every registered method declares, and what every policy keeps: shapes, bounds, determinism, independent rows."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import CPU

from leplanner.baselines.learned import LEARNED, BaselineTrainConfig, train_baseline
from leplanner.bench.plan import random_planner
from leplanner.control.controller import Controller
from leplanner.control.methods import (
    METHODS,
    REQUIREMENTS,
    Method,
    MethodInputs,
    SearchBudget,
    capability_table,
    methods_of,
)
from leplanner.control.policy import Request
from leplanner.core.config import changed
from leplanner.core.dynamics import CAPABILITIES
from leplanner.planner.engines import random_problem
from leplanner.tasks import TASKS
from leplanner.worlds import FAMILIES

NAMES = METHODS.names()
DECIDES = [name for name in NAMES if METHODS.get(name).role in ("ours", "search", "learned")]
TRAINED = "gcidm"  # of the learned baselines, which all share a loop and a policy
RUN = [name for name in NAMES if name not in LEARNED or name == TRAINED]
BUDGET = 20


@pytest.fixture(scope="module")
def common_inputs(tiny_planner, tiny_world, tiny_cache, tmp_path_factory) -> MethodInputs:
    folder = tmp_path_factory.mktemp("baselines")
    config = changed(BaselineTrainConfig(), steps=5, batch=32, validate_every=5)
    train_baseline(TRAINED, tiny_world, tiny_cache, config, folder / TRAINED, CPU)
    return MethodInputs(tiny_planner, BUDGET, folder, SearchBudget(samples=20, rounds=2))


@pytest.fixture
def inputs(name, common_inputs) -> MethodInputs:
    """With a world that offers what the method needs: LeWM, or new weights of the first family that does."""
    method = METHODS.get(name)
    if method.suits(common_inputs.planner.world):
        return common_inputs
    planners = (random_planner(TASKS["tworoom"], "tiny", family) for family in FAMILIES)
    return replace(common_inputs, planner=next(planner for planner in planners if method.suits(planner.world)))


@pytest.fixture(scope="module")
def trial():
    return SimpleNamespace(actions=np.random.default_rng(0).uniform(-1, 1, (12, 2)).tolist())


def request_for(planner, rows: slice = slice(None)) -> Request:
    return Request(random_problem(planner.model, batch=3)[rows], BUDGET, None, (7, 8, 9)[rows])


def test_the_registry_holds_ours_searches_learned_floors_and_a_ceiling():
    roles = {role: set(methods_of(role)) for role in ("ours", "search", "learned", "floor", "ceiling")}
    assert roles["ours"] == {"leplanner", "leplanner-reuse"}
    assert roles["search"] == {"cem", "icem", "mppi", "gradient"}
    assert roles["learned"] == {"gcidm", "gcbc", "gcivl", "gciql", "tdmpc2"}
    assert (roles["floor"], roles["ceiling"]) == ({"random", "no-op"}, {"replay"})
    assert set().union(*roles.values()) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_declares_how_it_is_shown(name):
    method = METHODS.get(name)
    assert method.name == name
    assert method.title.strip()
    assert re.fullmatch(r"#[0-9A-Fa-f]{6}", method.color)
    assert method.role in ("ours", "search", "learned", "floor", "ceiling")
    assert ("30 x 3" in method.title_with("30 x 3, compiled")) == (method.role == "search")


@pytest.mark.parametrize("name", DECIDES)
def test_a_method_that_decides_by_itself_declares_its_capabilities(name):
    properties = METHODS.get(name).properties
    assert properties is not None
    assert len(properties.marks) == len(REQUIREMENTS)
    assert set(properties.marks) <= {"yes", "no", "partly"}
    assert properties in capability_table()


def test_floors_and_the_ceiling_have_no_row_in_the_capability_table():
    assert all(METHODS.get(name).properties is None for name in set(NAMES) - set(DECIDES))
    groups = [properties.group for properties in capability_table()]
    assert len(groups) == len(set(groups))


@pytest.mark.parametrize("name", RUN)
def test_a_policy_returns_finite_actions_in_the_box(name, inputs, trial):
    policy, actions = METHODS.get(name).make(inputs)(trial), inputs.planner.model.actions
    decided = policy.decide(request_for(inputs.planner))
    assert policy.name == name
    assert decided.ndim == 3
    assert (decided.shape[0], decided.shape[2]) == (3, actions.dim)
    assert decided.shape[1] >= (policy.stride or actions.block)
    assert np.isfinite(decided).all()
    assert (decided >= np.array(actions.low)).all()
    assert (decided <= np.array(actions.high)).all()


@pytest.mark.parametrize("name", RUN)
def test_a_policy_depends_on_its_problem_and_seed_alone(name, inputs, trial):
    policies = [METHODS.get(name).make(inputs)(trial) for _ in range(2)]
    decided, again = (policy.decide(request_for(inputs.planner)) for policy in policies)
    assert np.array_equal(decided, again)
    assert np.array_equal(policies[0].decide(request_for(inputs.planner)), decided)
    alone = policies[0].decide(request_for(inputs.planner, slice(1, 2)))
    np.testing.assert_allclose(alone[0], decided[1], atol=1e-4)


@pytest.mark.parametrize("name", RUN)
def test_a_policy_drives_a_controller_and_counts_what_it_imagines(name, inputs, trial):
    policy = METHODS.get(name).make(inputs)(trial)
    frames = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    controller = Controller(policy, inputs.planner.world, budget=BUDGET)
    controller.reset(frames[11])
    for frame in frames[:11]:
        action = controller.act(frame if controller.needs_frame else None)
        assert action.shape == (2,)
    imagines = METHODS.get(name).role in ("ours", "search") or name == "tdmpc2"
    assert all((decision.transitions > 0) == imagines for decision in controller.decisions)
    assert policy.transitions == sum(decision.transitions for decision in controller.decisions)


@pytest.mark.parametrize("name", RUN)
def test_the_weights_of_a_method_have_a_digest(name, inputs):
    method: Method = METHODS.get(name)
    assert re.fullmatch(r"[0-9a-f]{64}", method.weights(inputs))
    if method.role == "ours":
        assert method.weights(inputs) == inputs.planner.digest
    elif name not in LEARNED:
        assert method.weights(inputs) == inputs.planner.world.digest


@pytest.mark.parametrize("name", [*LEARNED])
def test_a_learned_method_without_its_training_says_what_to_do(name, inputs):
    with pytest.raises(ValueError, match="leplanner baselines TASK"):
        METHODS.get(name).make(MethodInputs(inputs.planner, BUDGET))


@pytest.mark.parametrize("name", [name for name in NAMES if METHODS.get(name).needs])
def test_a_world_without_what_a_method_needs_is_refused(name, common_inputs):
    method = METHODS.get(name)
    assert set(method.needs) <= set(CAPABILITIES)
    assert not method.suits(common_inputs.planner.world)
    with pytest.raises(ValueError, match=rf"{name}.*{method.needs[0]}.*family 'lewm'.*leplanner world train"):
        method.make(common_inputs)


@pytest.mark.parametrize("name", sorted(methods_of("search")))
def test_a_search_imagines_from_the_frames_and_actions_that_ours_gets(name, inputs, monkeypatch):
    policy, planner = METHODS.get(name).make(inputs)(None), inputs.planner
    assert policy.frames == planner.model.context
    seen = []
    rollout = policy.counter.rollout
    monkeypatch.setattr(policy.counter, "rollout", lambda *given: (seen.append(given), rollout(*given))[1])
    request = request_for(planner, slice(0, 1))
    policy.decide(request)
    assert seen
    for context, past_blocks, _ in seen:
        assert torch.equal(context, request.problem.context.expand_as(context))
        assert torch.equal(past_blocks, request.problem.past_blocks.expand_as(past_blocks))
