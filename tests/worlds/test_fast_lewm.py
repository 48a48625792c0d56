"""Fast-LeWM: the published network, written out in float64, and what one call for all blocks promises."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from worlds.random_worlds import randomize

from leplanner.artifacts import read_json, write_json
from leplanner.core.actions import ActionSpec
from leplanner.core.dynamics import imagination
from leplanner.planner.engines import random_problem
from leplanner.planner.model import PlannerConfig
from leplanner.planner.planner import Planner, planner_for
from leplanner.worlds import FAMILIES, World, WorldSpec
from leplanner.worlds.fast_lewm.family import FAMILY
from leplanner.worlds.fast_lewm.model import FastLeWM, FastLeWMConfig, positions
from leplanner.worlds.lewm.encoders import KeypointConfig, ViTConfig

SMALL = {"latent": 24, "depth": 2, "heads": 2, "head_dim": 8, "mlp": 40, "fusion": 36, "projector": 32}
PREFIX = {"prefix_depth": 2, "prefix_heads": 3, "prefix_head_dim": 8, "prefix_mlp": 48}
ACTIONS = ActionSpec((0.0, 0.1), (0.2, 0.3), (-1.0, -1.0), (1.0, 1.0), 5)
ENCODER = KeypointConfig(frame_size=32, channels=(16,), extra_convolutions=0, keypoints=8, width=32)


def small(context: int = 1) -> FastLeWM:
    torch.manual_seed(0)
    model = FastLeWM(FastLeWMConfig(encoder=ENCODER, block_dim=10, context=context, **SMALL, **PREFIX)).double().eval()
    randomize(model, scale=0.3)
    return model


def problem(context: int, horizon: int = 5):
    draw = torch.Generator().manual_seed(1)
    shapes = ((context, 24), (context - 1, 10), (horizon, 10))
    return tuple(torch.randn(3, *shape, generator=draw, dtype=torch.float64) for shape in shapes)


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0.0)


def norm(x, eps, scale=1.0, shift=0.0):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * scale + shift


def named_norm(w, name, x, eps=1e-5):
    return norm(x, eps, w[f"{name}.weight"], w[f"{name}.bias"])


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def mlp(w, name, x):
    return linear(w, f"{name}.net.4", gelu(linear(w, f"{name}.net.1", named_norm(w, f"{name}.net.0", x))))


def attention(w, name, x, heads):
    """One query at a time, over what came before it."""
    q, k, v = linear(w, f"{name}.to_qkv", named_norm(w, f"{name}.norm", x)).chunk(3, dim=-1)
    rows = []
    for t in range(x.shape[0]):
        parts = []
        for head in range(heads):
            part = slice(head * q.shape[1] // heads, (head + 1) * q.shape[1] // heads)
            weights = torch.softmax(k[: t + 1, part] @ q[t, part] / math.sqrt(q.shape[1] // heads), dim=0)
            parts.append(weights @ v[: t + 1, part])
        rows.append(torch.cat(parts))
    return linear(w, f"{name}.to_out.0", torch.stack(rows))


def published(model: FastLeWM, z0: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """One start latent (D,) and blocks (H, A) -> (H, D), from the released parameter names alone."""
    w = model.state_dict()
    width, name = len(z0), "action_encoder.impl"
    first = linear(w, f"{name}.latent_proj.2", gelu(linear(w, f"{name}.latent_proj.0", z0)))
    tokens = linear(w, f"{name}.embed.0", linear(w, f"{name}.token_proj", blocks))
    tokens = linear(w, f"{name}.embed.2", tokens * torch.sigmoid(tokens))
    x = torch.cat([first[None], tokens])
    for t in range(len(x)):
        for i in range(width):
            angle = t / 10000 ** ((i - i % 2) / width)
            x[t, i] += math.sin(angle) if i % 2 == 0 else math.cos(angle)
    for i in range(model.config.prefix_depth):
        layer = f"{name}.temporal_mixer.layers.{i}"
        x = x + attention(w, f"{layer}.attn", norm(x, 1e-6), model.config.prefix_heads)
        x = x + mlp(w, f"{layer}.mlp", norm(x, 1e-6))
    c = named_norm(w, f"{name}.out_norm", named_norm(w, f"{name}.temporal_mixer.norm", x))[1:]
    x = z0.expand(len(c), -1)
    seen = named_norm(w, "predictor.action_fusion_norm", torch.cat([x, c, x * c], dim=-1))
    fused = gelu(linear(w, "predictor.action_fusion_mlp.0", seen))
    x = x + linear(w, "predictor.action_fusion_mlp.2", fused)
    for i in range(model.config.depth):
        layer = f"predictor.transition_stack.layers.{i}"
        a, b, g, d, e, h = linear(w, f"{layer}.adaLN_modulation.1", c * torch.sigmoid(c)).chunk(6, dim=-1)
        value = named_norm(w, f"{layer}.value_proj.norm", norm(x, 1e-6) * (1 + b) + a)
        x = x + g * linear(w, f"{layer}.value_proj.to_out.0", linear(w, f"{layer}.value_proj.to_v", value))
        x = x + h * mlp(w, f"{layer}.mlp", norm(x, 1e-6) * (1 + e) + d)
    x = linear(w, "pred_proj.net.0", named_norm(w, "predictor.transition_stack.norm", x))
    batch = "pred_proj.net.1"
    x = (x - w[f"{batch}.running_mean"]) / (w[f"{batch}.running_var"] + 1e-5).sqrt()
    return linear(w, "pred_proj.net.3", gelu(x * w[f"{batch}.weight"] + w[f"{batch}.bias"]))


@torch.no_grad()
def test_its_rollout_is_the_published_network():
    model = small()
    context, past, plan = problem(1)
    expected = torch.stack([published(model, z[0], blocks) for z, blocks in zip(context, plan, strict=True)])
    assert torch.allclose(model.rollout(context, past, plan), expected, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("context", [1, 3])
def test_a_prefix_is_a_shorter_plan(context):
    model = small(context)
    latents, past, plan = problem(context)
    whole = model.rollout(latents, past, plan)
    for blocks in (1, 2, 4):
        assert torch.allclose(whole[:, :blocks], model.rollout(latents, past, plan[:, :blocks]), atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("context", [1, 3])
def test_the_fast_rollout_is_the_same(context):
    model = small(context)
    inputs = problem(context)
    assert torch.allclose(model.fast().rollout(*inputs), model.rollout(*inputs), atol=1e-5)


@torch.no_grad()
def test_every_frame_and_block_of_a_longer_context_counts():
    model = small(3)
    latents, past, plan = problem(3)
    before = model.rollout(latents, past, plan)
    for changed in (latents, past):
        for place in range(changed.shape[1]):
            changed[:, place] += 1.0
            assert (model.rollout(latents, past, plan) - before).abs().max() > 1e-3
            changed[:, place] -= 1.0


def test_a_rollout_is_one_predictor_call():
    model, calls = small(), []
    model.predictor.register_forward_hook(lambda *_: calls.append(1))
    model.rollout(*problem(1))
    assert len(calls) == model.predictor_calls(5) == 1


def test_gradients_reach_every_block_without_passing_through_another_prediction():
    model = small()
    context, past, plan = problem(1)
    plan.requires_grad_(True)
    model.rollout(context, past, plan)[:, 2].sum().backward()
    reached = plan.grad.abs().amax(dim=(0, 2))
    assert (reached[:3] > 0).all()
    assert (reached[3:] == 0).all()


def test_the_loss_is_the_mean_over_prefixes():
    family = FAMILIES.get("fast-lewm")
    model = small()
    latents = torch.randn(4, family.window(model.config), 24, dtype=torch.float64)
    blocks = torch.randn(4, latents.shape[1] - 1, 10, dtype=torch.float64)
    terms = model.losses(latents, blocks, family.objective("tiny"), torch.Generator().manual_seed(0), lambda x: x)
    by_prefix = [
        (model.rollout(latents[:, :1], blocks[:, :0], blocks[:, :j])[:, -1] - latents[:, j]).square().mean()
        for j in range(1, 6)
    ]
    assert terms["prediction"].item() == pytest.approx(torch.stack(by_prefix).mean().item(), rel=1e-5)
    assert terms["loss"].item() == pytest.approx((terms["prediction"] + 0.09 * terms["sigreg"]).item(), rel=1e-6)


def test_the_published_sizes():
    network = FAMILIES.get("fast-lewm").network("paper", 10, 224)
    assert network == FastLeWMConfig()
    assert network.context == 1
    model = FastLeWM(network)
    sizes = {
        part: sum(p.numel() for p in getattr(model, part).parameters()) for part in ("action_encoder", "predictor")
    }
    assert sizes == {"action_encoder": 1_802_848, "predictor": 9_023_424}


def test_positions_are_sines_and_cosines_in_turns():
    places = positions(4, 6)
    assert places[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert places[3, 2].item() == pytest.approx(math.sin(3 / 10000 ** (2 / 6)), rel=1e-5)
    assert places[3, 5].item() == pytest.approx(math.cos(3 / 10000 ** (4 / 6)), rel=1e-5)


@pytest.mark.parametrize("context", [1, 3])
def test_a_plan_takes_four_predictor_calls_and_onnx_plans_alike(context):
    world = World.build(WorldSpec("fast-lewm", "pusht", small(context).config, ACTIONS))
    randomize(world.model, scale=0.3)
    torch.manual_seed(0)
    model = planner_for(world, PlannerConfig(width=16, depth=1, heads=2, dropout=0.0))
    eager, onnx = (Planner(world, model, engine=engine) for engine in ("eager", "onnx"))
    problem, calls = random_problem(model, batch=3), []
    with torch.no_grad():
        handle = world.model.predictor.register_forward_hook(lambda *_: calls.append(1))
        plan = model(problem, imagination(world, problem))[-1]
        handle.remove()
    assert len(calls) == eager.calls_per_plan == 4
    assert onnx.engine_report().engine == "onnx"
    for other in (eager.plan(problem), onnx.plan(problem)):
        torch.testing.assert_close(other.blocks, plan.blocks, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(other.latents, plan.latents, atol=1e-4, rtol=1e-4)


RELEASED = FastLeWMConfig(encoder=ViTConfig(56, 14, 192, 12, 3), **SMALL | {"latent": 192}, **PREFIX)


def released(tmp_path):
    torch.manual_seed(0)
    world = World.build(WorldSpec("fast-lewm", "pusht", RELEASED, ACTIONS))
    randomize(world.model)
    FAMILY.export_release(world, tmp_path, "old")
    return world, lambda block: replace(ACTIONS, block=block)


def test_a_released_checkpoint_is_read_strictly(tmp_path):
    world, actions = released(tmp_path)
    again = FAMILY.import_release(str(tmp_path), "pusht", actions)
    assert again.spec.network == RELEASED
    assert again.digest == world.digest
    config = read_json(tmp_path / "config.json")
    for part, name, value in (
        ("action_encoder", "temporal_mixer_type", "gru"),
        ("action_encoder", "use_latent_condition", False),
        ("predictor", "action_fusion", "none"),
        ("predictor", "num_frames", 3),  # as LeWM's has
        ("predictor", "_target_", "os.system"),
    ):
        write_json(tmp_path / "config.json", config | {part: config[part] | {name: value}})
        with pytest.raises(ValueError, match=name if name != "_target_" else "os.system"):
            FAMILY.import_release(str(tmp_path), "pusht", actions)


def test_a_pickled_object_and_a_lewm_checkpoint_are_refused(tmp_path):
    _, actions = released(tmp_path / "fast")
    for other in ("lewm", "pldm"):
        with pytest.raises(
            ValueError, match="seems to be a checkpoint of the family 'fast-lewm': use --family fast-lewm"
        ):
            FAMILIES.get(other).import_release(str(tmp_path / "fast"), "pusht", actions)
    config = read_json(tmp_path / "fast" / "config.json")
    sizes = {name: value for name, value in config["predictor"].items() if not name.startswith(("value", "action"))}
    config["predictor"] = sizes | {"num_frames": 3, "heads": 2}  # as LeWM's first releases, which share the class
    write_json(tmp_path / "fast" / "config.json", config)
    with pytest.raises(ValueError, match="seems to be a checkpoint of the family 'lewm': use --family lewm"):
        FAMILY.import_release(str(tmp_path / "fast"), "pusht", actions)
    released(tmp_path / "fast")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "fast" / "weights.pt")
    with pytest.raises(ValueError, match="holds Python objects"):
        FAMILY.import_release(str(tmp_path / "fast"), "pusht", actions)


def test_only_the_published_context_can_be_written(tmp_path):
    world = World.build(WorldSpec("fast-lewm", "pusht", replace(RELEASED, context=3), ACTIONS))
    with pytest.raises(ValueError, match="context of 1"):
        FAMILY.export_release(world, tmp_path, "new")
