"""The laws of a world, for every registered family and for two that only the tests know."""

from __future__ import annotations

import numpy as np
import onnxruntime
import own_families
import pytest
import torch
from support import CPU, encode_with
from worlds.random_worlds import random_problem, randomize

from leplanner.artifacts import read_json, write_json
from leplanner.cli.main import main
from leplanner.control.methods import METHODS, MethodInputs, SearchBudget
from leplanner.control.policy import Request, select_better_plan
from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.core.dynamics import CAPABILITIES, capability
from leplanner.data.cache import build_cache
from leplanner.density.train import train_density
from leplanner.pipeline.presets import get_preset
from leplanner.planner import engines
from leplanner.planner.checks import check_dynamics, check_planner
from leplanner.planner.export import export_onnx
from leplanner.planner.planner import Planner, planner_for
from leplanner.planner.train import train_planner
from leplanner.tasks import TASKS
from leplanner.training.loggers import read_metrics
from leplanner.worlds import FAMILIES, World, WorldSpec, check_family, load_world, register_world, save_world
from leplanner.worlds.finetune import finetune_world
from leplanner.worlds.train import train_world

TASK = TASKS["tworoom"]
ACTIONS = ActionSpec((0.1, 0.2), (0.5, 0.6), (-1.0, -1.0), (1.0, 1.0), block=5)
OWN = {family.name: family for family in (own_families.LINEAR, own_families.TOKENS)}
FAST = {"steps": 6, "batch": 8, "validate_every": 3, "precision": "fp32"}


@pytest.fixture(scope="module", params=[*FAMILIES, *OWN])
def family(request, forgets_registrations) -> str:
    if request.param in OWN:
        register_world(OWN[request.param])
    return request.param


@pytest.fixture(scope="module")
def preset(family):
    return get_preset(TASK, "tiny", family=family)


@pytest.fixture(scope="module")
def world(family, preset) -> World:
    torch.manual_seed(0)
    world = World.build(WorldSpec(family, TASK.name, preset.network, ACTIONS))
    randomize(world.model, scale=0.3)
    return world


@pytest.fixture(scope="module")
def planner(world, preset) -> Planner:
    torch.manual_seed(0)
    return Planner(world, planner_for(world, preset.planner), engine="eager")


@pytest.fixture
def frames(world, rng):
    size = world.spec.frame_size
    return rng.integers(0, 256, (5, size, size, 3)).astype("uint8")


def test_its_rollout_and_distance_keep_the_contract(world):
    check_dynamics(world, *random_problem(world, 4))


def test_a_latent_depends_on_its_frame_alone(world, frames):
    together = world.encode(frames)
    assert together.shape == (5, *world.latent.shape)
    assert torch.allclose(together, torch.cat([world.encode(frame[None]) for frame in frames]), atol=1e-5)
    assert torch.equal(together, world.encode(frames))
    assert not torch.allclose(together[0], together[1], atol=1e-3)


def test_a_block_changes_only_what_comes_after_it(world):
    context, past, plan = random_problem(world, 2)
    other = plan.clone()
    other[:, 2] += 1.0
    before, after = world.rollout(context, past, plan), world.rollout(context, past, other)
    assert torch.allclose(before[:, :2], after[:, :2], atol=1e-6)
    assert (before[:, 2] - after[:, 2]).abs().max() > 1e-3


def test_wrong_shapes_are_explained(world, frames):
    context, past, plan = random_problem(world, 2)
    with pytest.raises(ValueError, match=f"needs {world.spec.context} context latents"):
        world.rollout(torch.cat([context, context], dim=1), past, plan)
    narrow = context[..., :-1]
    for latents, goal, what in ((narrow, context[:, 0], "latents"), (context, narrow[:, 0], "a goal")):
        with pytest.raises(ValueError, match=f"have the shape .* got {what} of shape"):
            world.distance(latents, goal)
    with pytest.raises(ValueError, match="got a context of shape"):
        world.rollout(narrow, past, plan)
    with pytest.raises(ValueError, match="Resize them first"):
        world.encode(frames[:, 1:, 1:])
    with pytest.raises(ValueError, match="must be uint8"):
        world.encode(torch.as_tensor(frames).float())


def test_what_it_does_not_offer_is_said(world):
    for name in CAPABILITIES:
        if capability(world, name) is None:
            with pytest.raises(AttributeError, match=f"family '{world.spec.family}' have no {name}; of what worlds"):
                getattr(world, name)
        else:
            assert callable(getattr(world, name))


def test_a_verb_that_names_another_family_is_refused(world, preset, tmp_path, capsys):
    """Of worlds and of planners with theirs, whatever the verb makes of them."""
    save_world(world, tmp_path / "world")
    own, other = world.spec.family, next(name for name in FAMILIES if name != world.spec.family)
    words = ["density", TASK.name, "--scale", "tiny", "--base", str(tmp_path), "--family"]
    assert main([*words, other]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"holds a world of the family '{own}'; '{other}' was requested. Say --family {own}" in said
    assert main([*words, own]) == 1  # its own is welcome: what is missing are latents
    assert "latents" in capsys.readouterr().err
    assert check_family(tmp_path / "world", None) == check_family(tmp_path / "world", own) == tmp_path / "world"


def test_save_and_load_are_the_identity(world, tmp_path):
    save_world(world, tmp_path)
    loaded, inputs = load_world(tmp_path), random_problem(world, 2)
    assert loaded.spec == world.spec
    assert loaded.digest == world.digest
    assert torch.equal(loaded.rollout(*inputs), world.rollout(*inputs))
    assert not loaded.model.training
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_damaged_and_foreign_weights_are_refused(world, tmp_path):
    save_world(world, tmp_path / "one")
    save_world(World.build(world.spec), tmp_path / "other")
    (tmp_path / "other" / "world.safetensors").replace(tmp_path / "one" / "world.safetensors")
    with pytest.raises(ValueError, match="do not match the digest"):
        load_world(tmp_path / "one")
    with pytest.raises(ValueError, match="Unknown world family 'nobody'"):
        WorldSpec.from_json(world.spec.to_json() | {"family": "nobody"})


def test_a_checkpoint_of_another_family_is_refused(world, tmp_path):
    register_world(own_families.LINEAR)
    save_world(world, tmp_path)
    config = read_json(tmp_path / "config.json")
    for other in FAMILIES:
        if other != world.spec.family:
            write_json(tmp_path / "config.json", config | {"spec": config["spec"] | {"family": other}})
            with pytest.raises(ValueError, match=r"has no field|needs|[Mm]issing|shape|digest"):
                load_world(tmp_path)


def test_the_encoders_digest_follows_the_encoder_alone(world):
    parts = world.model.encoder_parts()
    inside = {id(p) for part in parts.values() for p in part.parameters()}
    predicting = next(p for p in world.model.parameters() if id(p) not in inside)
    encoding = next(p for part in parts.values() for p in part.parameters())
    whole, encoder = world.digest, world.encoder_digest
    for weight, same_encoder in ((predicting, True), (encoding, False)):
        weight.add_(1.0)
        assert world.digest != whole
        assert (world.encoder_digest == encoder) == same_encoder
        weight.sub_(1.0)


def test_its_loss_trains_all_that_is_not_frozen(family, preset):
    torch.manual_seed(0)
    model = FAMILIES.get(family).build(preset.network).train()
    randomize(model, scale=0.3)
    steps = FAMILIES.get(family).window(preset.network)
    pixels = torch.randn(8 * steps, 3, preset.network.frame_size, preset.network.frame_size)
    latents = model.encode(pixels).unflatten(0, (8, steps))
    blocks = torch.randn(8, steps - 1, preset.network.block_dim)
    terms = model.losses(latents, blocks, preset.objective, torch.Generator().manual_seed(0), lambda batch: batch)
    assert all(term.isfinite() for term in terms.values())
    terms["loss"].backward()
    silent = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert silent == []
    parts = model.encoder_parts().values()
    trained = [part for part in parts if any(p.requires_grad for p in part.parameters())]
    assert all(any(p.grad.abs().max() > 0 for p in part.parameters()) for part in trained)
    # a frozen encoder must come from somewhere else
    assert len(trained) == len(parts) or FAMILIES.get(family).pretrain is not None


def test_a_planner_over_it_keeps_the_contract(planner):
    check_planner(planner, engines.random_problem(planner.model, batch=3))


@pytest.mark.parametrize(
    "engine", [pytest.param(name, marks=pytest.mark.slow if name == "compiled" else ()) for name in engines.ENGINES]
)
def test_every_engine_plans_imagines_and_encodes_as_the_plain_model_does(engine, planner, frames):
    problem = engines.random_problem(planner.model, batch=3)
    other = Planner(planner.world, planner.model, engine=engine)
    expected, actual = planner.plan(problem), other.plan(problem)
    tolerance = 1e-4 if other.engine_report().precision == "fp32" else 1e-2
    for name in ("blocks", "latents", "distances"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name), atol=tolerance, rtol=tolerance)
    blocks = expected.blocks.flip(1).contiguous()
    torch.testing.assert_close(
        other.imagine(problem, blocks), planner.imagine(problem, blocks), atol=tolerance, rtol=tolerance
    )
    torch.testing.assert_close(other.encode(frames), planner.encode(frames), atol=tolerance, rtol=tolerance)


def test_its_exported_plan_reuses_the_last_one_as_the_controller_does(planner, tmp_path):
    """The remaining plan wins in some rows and loses in others; after all blocks were executed the new plan stands."""
    _, path = export_onnx(planner, tmp_path)
    session = onnxruntime.InferenceSession(path)
    problem, horizon = engines.random_problem(planner.model, batch=16), planner.model.config.horizon
    new = planner.plan(problem)
    last = planner.plan(problem[torch.arange(15, -1, -1)]).blocks
    inputs = {name: getattr(problem, name).numpy() for name in ("context", "past_blocks", "goal")}
    inputs = {node.name: inputs.get(node.name) for node in session.get_inputs()}  # a world may not look at all
    for executed in range(1, horizon + 1):
        expected = new if executed == horizon else select_better_plan(planner, problem, new, last[:, executed:])
        told = inputs | {"last_plan": last.numpy(), "executed": np.array([executed])}
        lengthened = torch.cat([last[:, executed:], new.blocks[:, horizon - executed :]], dim=1)
        distances = planner.dynamics.distance(planner.imagine(problem, lengthened), problem.goal)
        clear = ((distances - new.distances)[:, -1].abs() > 1e-5).numpy()  # rounding decides the others
        names = ["blocks", "latents", "distances"]
        for name, value in zip(names, session.run(names, told), strict=True):
            np.testing.assert_allclose(value[clear], getattr(expected, name).numpy()[clear], atol=1e-4, rtol=1e-4)
    reused = (select_better_plan(planner, problem, new, last[:, 1:]).blocks != new.blocks).any(dim=(1, 2))
    assert 0 < reused.sum() < len(reused)


def test_a_search_through_it_is_deterministic_and_stays_in_the_box(planner):
    inputs = MethodInputs(planner, 20, None, SearchBudget(samples=20, rounds=2))
    request = Request(engines.random_problem(planner.model, batch=2), 20, None, (7, 8))
    for method in {"cem", FAMILIES.get(planner.world.spec.family).own_planner}:
        first, again = (METHODS.get(method).make(inputs)(None).decide(request) for _ in range(2))
        assert (first == again).all()
        assert abs(first).max() <= 1.0


def test_every_stage_through_it_resumes_bit_for_bit(family, preset, tworoom, tmp_path):
    """World, finetuning, density and planner: stopped in the middle and continued, they end where others end."""
    sizes = (family, preset.network, preset.objective, changed(preset.world, **FAST))

    def stages(out, **stop):
        world = train_world(TASK, tworoom, *sizes, out / "world", preset.block, CPU, **stop)
        yield world
        cache = build_cache(tworoom, encode_with(world), world.latent, world.encoder_digest, out / "latents")
        tuned = finetune_world(world, cache, changed(preset.finetune, **FAST), out / "finetuned", CPU, **stop)
        assert tuned.encoder_digest == world.encoder_digest
        yield tuned
        density = train_density(tuned, cache, changed(preset.density, **FAST), out / "density", CPU, **stop)
        yield density
        training = changed(preset.training, **FAST)
        yield train_planner(tuned, cache, density, preset.planner, training, out / "planner", CPU, **stop)

    whole = list(stages(tmp_path / "whole"))
    for count in range(1, len(whole) + 1):  # each stage is stopped once, after those before it were finished
        stopped = stages(tmp_path / "parts", stop_after=4)
        for _ in range(count):
            next(stopped)
        finished = stages(tmp_path / "parts")
        parts = [next(finished) for _ in range(count)]
    for part, expected in zip(parts, whole, strict=True):
        if hasattr(expected, "digest"):
            assert part.digest == expected.digest
    for stage in ("world", "finetuned", "density", "planner"):
        losses, expected = (
            [line["loss"] for line in read_metrics(tmp_path / name / stage)] for name in ("parts", "whole")
        )
        assert losses == expected
        assert len(losses) == FAST["steps"]
