"""LeWM against stable-worldmodel's own, in float64; and the laws of a frozen world."""

from __future__ import annotations

import pytest
import torch
from worlds.random_worlds import randomize

from leplanner.artifacts import load_strictly
from leplanner.core.actions import ActionSpec
from leplanner.pipeline.presets import get_preset
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds import World, WorldSpec
from leplanner.worlds.lewm.encoders import ViTConfig
from leplanner.worlds.lewm.model import LeWM, LeWMConfig
from leplanner.worlds.lewm.sigreg import sigreg

TASK_NAMES = ["tworoom", "pusht", "reacher", "cube"]
TINY = get_preset(TASKS["tworoom"], "tiny").network
ACTIONS = ActionSpec((0.1, 0.2), (0.5, 0.6), (-1.0, -1.0), (1.0, 1.0), block=5)


def reference_lewm(config: LeWMConfig):
    """The released architecture, assembled from stable-worldmodel's parts and transformers' ViT."""
    lewm, module = import_swm("stable_worldmodel.wm.lewm"), import_swm("stable_worldmodel.wm.lewm.module")
    from transformers import ViTConfig as HFConfig
    from transformers import ViTModel

    vit = config.encoder
    encoder = ViTModel(
        HFConfig(
            hidden_size=vit.width,
            num_hidden_layers=vit.depth,
            num_attention_heads=vit.heads,
            intermediate_size=vit.width * vit.mlp_ratio,
            image_size=vit.frame_size,
            patch_size=vit.patch,
        ),
        add_pooling_layer=False,
        use_mask_token=False,
    )
    predictor = module.Predictor(
        num_frames=config.context,
        depth=config.depth,
        heads=config.heads,
        mlp_dim=config.mlp,
        input_dim=config.latent,
        hidden_dim=config.latent,
        output_dim=config.latent,
        dim_head=config.head_dim,
        dropout=config.dropout,
    )
    return lewm.LeWM(
        encoder=encoder,
        predictor=predictor,
        action_encoder=module.Embedder(input_dim=config.block_dim, emb_dim=config.latent),
        projector=module.MLP(vit.width, config.projector, config.latent, norm_fn=torch.nn.BatchNorm1d),
        pred_proj=module.MLP(config.latent, config.projector, config.latent, norm_fn=torch.nn.BatchNorm1d),
    )


@pytest.fixture(scope="module")
def pair():
    """The reference and ours with the same float64 weights, at the full released size."""
    config = get_preset(TASKS["pusht"], "paper").network
    reference, ours = reference_lewm(config).double().eval(), LeWM(config).double().eval()
    randomize(reference)
    # the reference's action encoder casts to float32 by itself; keep it in float64
    reference.action_encoder.forward = lambda x: reference.action_encoder.embed(
        reference.action_encoder.patch_embed(x.permute(0, 2, 1)).permute(0, 2, 1)
    )
    load_strictly(ours, reference.state_dict(), "the reference")
    return reference, ours


def test_released_size(pair):
    _, ours = pair
    assert len(ours.state_dict()) == 303
    parameters = {
        name: sum(p.numel() for p in module.parameters()) / 1e6
        for name, module in [("all", ours), *ours.named_children()]
    }
    assert round(parameters["all"], 2) == 18.03
    assert {name: round(value, 2) for name, value in parameters.items() if name != "all"} == {
        "encoder": 5.5,
        "predictor": 10.79,
        "action_encoder": 0.16,
        "projector": 0.79,
        "pred_proj": 0.79,
    }


@torch.no_grad()
def test_encode_predict_and_rollout_agree_with_stable_worldmodel(pair):
    reference, ours = pair
    generator = torch.Generator().manual_seed(1)
    frames = torch.randn(2, 3, 3, 224, 224, generator=generator, dtype=torch.float64)
    blocks = torch.randn(2, 7, 10, generator=generator, dtype=torch.float64)

    expected = reference.encode({"pixels": frames})["emb"]
    latents = ours.encode(frames.flatten(0, 1)).unflatten(0, (2, 3))
    assert (latents - expected).abs().max() < 1e-8

    expected = reference.predict(latents, reference.action_encoder(blocks[:, :3]))
    assert (ours.predict(latents, blocks[:, :3]) - expected).abs().max() < 1e-8

    info = {"pixels": frames[:, None], "emb": latents[:, None]}
    expected = reference.rollout(info, blocks[:, None])["predicted_emb"][:, 0, 3:]
    imagined = ours.rollout(latents, blocks[:, :2], blocks[:, 2:])
    assert imagined.shape == (2, 5, 192)
    assert (imagined - expected).abs().max() < 1e-8


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    world = World.build(WorldSpec("lewm", "tworoom", TINY, ACTIONS))
    randomize(world.model, scale=0.3)
    return world


def test_a_keypoint_is_placed_in_full_precision_under_autocast(rng):
    """Only the convolutions may round: what they found must come out as it does without autocast, bit for bit."""
    model = LeWM(TINY).eval()
    randomize(model)
    heat = torch.from_numpy(rng.normal(size=(2, 16, 8, 8))).float()
    model.encoder.convolutions, model.encoder.heat = torch.nn.Identity(), torch.nn.Identity()
    with torch.no_grad():
        expected = model.encode(heat)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(model.encode(heat), expected)


def test_a_config_that_lacks_or_has_too_much_is_explained(small):
    told = small.spec.to_json()
    with pytest.raises(ValueError, match="WorldSpec has no field color; it has"):
        WorldSpec.from_json(told | {"color": "blue"})
    with pytest.raises(ValueError, match="WorldSpec needs task; got"):
        WorldSpec.from_json({name: value for name, value in told.items() if name != "task"})
    actions = {name: value for name, value in told["actions"].items() if name != "block"}
    with pytest.raises(ValueError, match="ActionSpec needs block; got"):
        WorldSpec.from_json(told | {"actions": actions})


def test_sigreg_equals_stable_worldmodels():
    reference = import_swm("stable_worldmodel.wm.loss").SIGReg(knots=17, num_proj=64)
    latents = torch.randn(4, 50, 24, generator=torch.Generator().manual_seed(2)) * 1.3 + 0.2
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = reference(latents)
    ours = sigreg(latents, 64, torch.Generator().manual_seed(5))
    assert torch.allclose(ours, expected, rtol=1e-4)


def test_sigreg_is_small_for_a_normal_and_large_otherwise():
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(1, 4000, 16, generator=generator)
    uniform = (torch.rand(1, 4000, 16, generator=generator) - 0.5) * 12**0.5  # same mean and variance, another shape
    collapsed = normal * torch.eye(16)[0]
    values = [float(sigreg(x, 256, torch.Generator().manual_seed(1))) for x in (normal, normal * 2, collapsed)]
    assert values[0] * 20 < values[1] < values[2]
    assert float(sigreg(uniform[..., :1], 8, torch.Generator())) > 5 * values[0]


@pytest.mark.parametrize("task", TASK_NAMES)
def test_what_the_paper_has_not_is_off_at_paper_scale(task):
    preset = get_preset(TASKS[task], "paper")
    config = preset.training
    assert preset.on_policy_training == config
    assert (preset.on_policy.episodes, preset.world.grounding, preset.finetune.optim.steps) == (0, 0.0, 0)
    ours = ("smooth_weight", "tracking_weight", "perturb_prob", "recovery_prob", "far_goal_prob", "init_average")
    assert [getattr(config, name) for name in ours] == [0.0] * 6


def test_scales_build_and_paper_scale_is_the_default():
    assert get_preset(TASKS["pusht"], "paper").network == LeWMConfig(encoder=ViTConfig(), block_dim=10)
    assert get_preset(TASKS["cube"], "paper").network.block_dim == 25
    for name in TASK_NAMES:
        preset = get_preset(TASKS[name], "compact")
        assert preset.network.frame_size == preset.collect.size
        LeWM(preset.network)
