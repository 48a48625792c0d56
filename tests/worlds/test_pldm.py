"""PLDM against stable-worldmodel's own in float64, term by term; its head; and whose checkpoint is whose."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from support import CPU, encode_with
from torch import nn
from worlds.random_worlds import random_problem, randomize

from leplanner.artifacts import load_strictly
from leplanner.cli.main import main
from leplanner.control.methods import METHODS
from leplanner.core.actions import ActionSpec
from leplanner.core.config import changed
from leplanner.data.cache import build_cache
from leplanner.pipeline.presets import get_preset
from leplanner.tasks import TASKS
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds import FAMILIES, World, WorldSpec, load_world, save_world
from leplanner.worlds.finetune import finetune_world
from leplanner.worlds.lewm.encoders import ViTConfig
from leplanner.worlds.lewm.model import LeWMConfig
from leplanner.worlds.pldm.family import FAMILY
from leplanner.worlds.pldm.model import PLDM, PLDMConfig, PLDMObjective
from leplanner.worlds.pldm.vicreg import vicreg

SIZES = {"depth": 2, "heads": 2, "head_dim": 16, "mlp": 64, "projector": 32, "latent": 48}
SMALL = PLDMConfig(encoder=ViTConfig(56, 14, 48, 2, 3), inverse=24, **SIZES)
ACTIONS = ActionSpec((0.0, 0.1), (0.2, 0.3), (-1.0, -1.0), (1.0, 1.0), block=5)
THEIR_NAMES = {  # of loss terms
    "similarity": "temp_align_loss",
    "std": "std_loss",
    "cov": "cov_loss",
    "std_time": "std_t_loss",
    "cov_time": "cov_t_loss",
    "inverse": "idm_loss",
}


def action_spec(block: int) -> ActionSpec:
    return replace(ACTIONS, block=block)


def reference_pldm(config: PLDMConfig) -> nn.Module:
    """Assembled from stable-worldmodel's parts and transformers' ViT."""
    pldm, module = import_swm("stable_worldmodel.wm.pldm"), import_swm("stable_worldmodel.wm.pldm.module")
    from transformers import ViTConfig as HFConfig
    from transformers import ViTModel

    vit, latent = config.encoder, config.latent
    sizes = {"hidden_size": vit.width, "num_hidden_layers": vit.depth, "num_attention_heads": vit.heads}
    sizes |= {"intermediate_size": 4 * vit.width, "image_size": vit.frame_size, "patch_size": vit.patch}
    predictor = module.Predictor(
        num_frames=config.context,
        depth=config.depth,
        heads=config.heads,
        mlp_dim=config.mlp,
        input_dim=latent,
        hidden_dim=latent,
        dim_head=config.head_dim,
    )
    return pldm.PLDM(
        encoder=ViTModel(HFConfig(**sizes), add_pooling_layer=False, use_mask_token=False),
        predictor=predictor,
        action_encoder=module.Embedder(input_dim=config.block_dim, emb_dim=latent),
        projector=module.MLP(vit.width, config.projector, latent, norm_fn=nn.BatchNorm1d),
        pred_proj=module.MLP(latent, config.projector, latent, norm_fn=nn.BatchNorm1d),
    )


@torch.no_grad()
def test_encode_predict_and_rollout_agree_with_stable_worldmodel():
    reference, ours = reference_pldm(SMALL).double().eval(), PLDM(replace(SMALL, inverse=0)).double().eval()
    randomize(reference, scale=0.2)
    actions = reference.action_encoder  # casts to float32 by itself; keep it in float64
    actions.forward = lambda x: actions.embed(actions.patch_embed(x.permute(0, 2, 1)).permute(0, 2, 1))
    load_strictly(ours, reference.state_dict(), "the reference")
    generator = torch.Generator().manual_seed(1)
    frames = torch.randn(2, 3, 3, 56, 56, generator=generator).double()  # the reference rounds them to float32
    blocks = torch.randn(2, 7, 10, generator=generator, dtype=torch.float64)

    latents = ours.encode(frames.flatten(0, 1)).unflatten(0, (2, 3))
    assert (latents - reference.encode({"pixels": frames})["emb"]).abs().max() < 1e-10

    expected = reference.predict(latents, actions(blocks[:, :3]))
    assert (ours.predict(latents, blocks[:, :3]) - expected).abs().max() < 1e-10

    info = {"pixels": frames[:, None], "emb": latents[:, None]}
    expected = reference.rollout(info, blocks[:, None])["predicted_emb"][:, 0, 3:]
    assert (ours.rollout(latents, blocks[:, :2], blocks[:, 2:]) - expected).abs().max() < 1e-10


@pytest.fixture
def model() -> PLDM:
    model = PLDM(SMALL).double().eval()
    randomize(model, scale=0.2)
    return model


@pytest.fixture
def window() -> tuple[torch.Tensor, torch.Tensor]:
    """Latents of 4 frames, spread unevenly around elsewhere than zero, and the blocks between them."""
    generator = torch.Generator().manual_seed(3)
    latents = torch.randn(9, 4, 48, generator=generator, dtype=torch.float64)
    latents = latents * torch.linspace(0.2, 1.8, 48, dtype=torch.float64) + 0.4
    return latents, torch.randn(9, 3, 10, generator=generator, dtype=torch.float64)


def losses(model: PLDM, latents, blocks, objective: PLDMObjective, gather=lambda batch: batch):
    return model.losses(latents, blocks, objective, torch.Generator(), gather)


def test_the_loss_equals_stable_worldmodels_term_by_term(model, window):
    latents, blocks = window
    head = import_swm("stable_worldmodel.wm.pldm.module").MLP(2 * 48, 24, 10).double()
    head.load_state_dict(model.inverse.state_dict())
    read = head(torch.cat([latents[:, 1:], latents[:, :-1]], dim=-1))  # in the order of its training script
    theirs = import_swm("stable_worldmodel.wm.loss").PLDMLoss()(latents, read, blocks)
    weights = {"std": 2.0, "cov": 3.0, "std_time": 5.0, "cov_time": 7.0, "similarity": 11.0, "inverse": 13.0}
    ours = losses(model, latents, blocks, PLDMObjective(**{f"{name}_weight": w for name, w in weights.items()}))
    assert set(ours) == {"loss", "prediction", *THEIR_NAMES}
    for name, their_name in THEIR_NAMES.items():
        assert theirs[their_name].item() > 1e-3
        torch.testing.assert_close(ours[name], theirs[their_name], rtol=1e-12, atol=0)
    prediction = (model.predict(latents[:, :-1], blocks) - latents[:, 1:]).square().mean()
    torch.testing.assert_close(ours["prediction"], prediction, rtol=1e-12, atol=0)
    total = prediction + sum(weight * theirs[THEIR_NAMES[name]] for name, weight in weights.items())
    torch.testing.assert_close(ours["loss"], total, rtol=1e-12, atol=0)


def test_the_weights_are_those_of_stable_worldmodels_training_and_the_originals_inverse_dynamics():
    objective = FAMILY.objective("paper")
    assert objective == PLDMObjective(18.0, 12.0, 0.7, 0.0, 0.2, 1.0)
    assert FAMILY.own_planner == "mppi"
    assert METHODS.get(FAMILY.own_planner).name == "mppi"


def test_spread_and_covariance_are_as_in_closed_form():
    """Two numbers, one a multiple of the other: standard deviations 0.5 and 1.5, so their covariance is 0.75."""
    sample = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)  # of unit variance
    latents = torch.stack([0.5 * sample, 1.5 * sample], dim=-1).unsqueeze(1).repeat(1, 4, 1) + 3.0
    terms = vicreg(latents)
    assert terms["std"].item() == pytest.approx(0.25, abs=1e-3)  # a half is missing in one of two
    assert terms["cov"].item() == pytest.approx(0.75**2)
    assert terms["std_time"].item() == pytest.approx(0.99)  # nothing moves: all but the floor of 0.01 is missing


def test_statistics_are_of_the_whole_batch(model, window):
    """Two processes that each have a part compute the batch terms that one with all of it computes."""
    latents, blocks = window
    objective = PLDMObjective()
    whole = losses(model, latents, blocks, objective)
    part = losses(model, latents[:4], blocks[:4], objective, gather=lambda batch: latents)
    alone = losses(model, latents[:4], blocks[:4], objective)
    for name in ("std", "cov", "std_time", "cov_time"):
        assert part[name] == whole[name] != alone[name]


def test_statistics_are_in_full_precision_under_autocast(window):
    """Only the networks may round."""
    model, (latents, blocks) = PLDM(SMALL).eval(), (part.float() for part in window)
    expected = losses(model, latents, blocks, PLDMObjective())
    with torch.autocast("cpu", torch.bfloat16):
        actual = losses(model, latents, blocks, PLDMObjective())
    assert all(actual[name] == expected[name] for name in ("similarity", "std", "cov", "std_time", "cov_time"))
    assert {term.dtype for term in actual.values()} == {torch.float32}
    torch.testing.assert_close(actual["loss"], expected["loss"], rtol=1e-2, atol=0)


def test_a_term_without_weight_moves_nothing(model, window):
    latents, blocks = window
    latents.requires_grad_(True)
    objective = changed(PLDMObjective(), inverse_weight=0.0)
    losses(model, latents, blocks, objective)["loss"].backward()
    assert all(p.grad is None for p in model.inverse.parameters())
    headless = PLDM(replace(SMALL, inverse=0)).double().eval()
    assert headless.load_state_dict(model.state_dict(), strict=False).missing_keys == []
    again = latents.detach().clone().requires_grad_(True)
    terms = losses(headless, again, blocks, PLDMObjective())
    assert "inverse" not in terms
    terms["loss"].backward()
    assert torch.equal(again.grad, latents.grad)


@pytest.mark.parametrize("scale", ["paper", "compact", "tiny"])
def test_sizes_are_lewms_and_a_head(scale):
    ours, lewm = (get_preset(TASKS["tworoom"], scale, family=name).network for name in ("pldm", "lewm"))
    assert ours.inverse > 0
    assert all(getattr(ours, name) == value for name, value in vars(lewm).items())
    assert type(lewm) is LeWMConfig


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_finetuning_leaves_the_head_as_it_was(optimizer, tworoom, tmp_path):
    """It is stored with the world and belongs to no encoder; a rollout does not pass through it."""
    torch.manual_seed(0)
    preset = get_preset(TASKS["tworoom"], "tiny", family="pldm")
    world = World.build(WorldSpec("pldm", "tworoom", preset.network, ACTIONS))
    randomize(world.model, scale=0.3)
    assert set(world.model.encoder_parts()) == {"encoder", "projector"}
    assert any(name.startswith("inverse.") for name in world.model.state_dict())
    cache = build_cache(tworoom, encode_with(world), world.latent, world.encoder_digest, tmp_path / "latents")
    fast = {"steps": 4, "batch": 8, "validate_every": 4, "precision": "fp32", "optimizer": optimizer}
    fast |= {"half_weights": False}  # would round the head too
    finetune_world(world, cache, changed(preset.finetune, **fast), tmp_path / "stopped", CPU, stop_after=2)
    tuned = finetune_world(world, cache, changed(preset.finetune, **fast), tmp_path / "stopped", CPU)
    before, after = world.model.state_dict(), load_world(tmp_path / "stopped").model.state_dict()
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"predictor", "action_encoder", "pred_proj"}
    assert tuned.encoder_digest == world.encoder_digest


# released checkpoints


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    """Of both families, with the same sizes."""
    torch.manual_seed(0)
    sizes = {"encoder": SMALL.encoder, **SIZES}
    networks = {"lewm": LeWMConfig(**sizes), "pldm": PLDMConfig(inverse=24, **sizes)}
    built = {name: World.build(WorldSpec(name, "pusht", network, ACTIONS)) for name, network in networks.items()}
    for world in built.values():
        randomize(world.model, scale=0.2)
    return built


@pytest.mark.parametrize("names", ["new", "old"])
def test_a_release_comes_back_without_the_head(names, worlds, tmp_path):
    world = worlds["pldm"]
    FAMILY.export_release(world, tmp_path, names)
    again = FAMILY.import_release(str(tmp_path), "pusht", action_spec)
    assert again.spec == replace(world.spec, network=replace(world.spec.network, inverse=0))
    assert again.model.inverse is None
    inputs = random_problem(world, 2)
    assert torch.equal(again.rollout(*inputs), world.rollout(*inputs))
    assert again.encoder_digest == world.encoder_digest
    save_world(again, tmp_path / "world")
    assert load_world(tmp_path / "world").digest == again.digest


@torch.no_grad()
def test_stable_worldmodel_loads_our_export_with_identical_outputs(worlds, tmp_path):
    world = worlds["pldm"]
    FAMILY.export_release(world, tmp_path / "release", "new")
    loaded = import_swm("stable_worldmodel.wm.utils").load_pretrained(str(tmp_path / "release")).eval()
    assert type(loaded) is import_swm("stable_worldmodel.wm.pldm").PLDM
    frames = torch.randn(2, 3, 3, 56, 56, generator=torch.Generator().manual_seed(0))
    latents = world.model.encode(frames.flatten(0, 1)).unflatten(0, (2, 3))
    torch.testing.assert_close(loaded.encode({"pixels": frames})["emb"], latents, atol=1e-5, rtol=1e-5)
    _, past, plan = random_problem(world, 2)
    info = {"pixels": frames[:, None]}
    theirs = loaded.rollout(info, torch.cat([past, plan], 1)[:, None])["predicted_emb"][:, 0, 3:]
    torch.testing.assert_close(theirs, world.rollout(latents, past, plan), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("family", "other"), [("lewm", "pldm"), ("pldm", "lewm")])
def test_a_checkpoint_of_another_family_is_refused_and_its_own_named(family, other, worlds, tmp_path, capsys):
    FAMILIES.get(family).export_release(worlds[family], tmp_path / "release", "new")
    with pytest.raises(ValueError, match=f"seems to be a checkpoint of the family '{family}': use --family {family}"):
        FAMILIES.get(other).import_release(str(tmp_path / "release"), "pusht", action_spec)
    statistics = ["--action-mean", "0", "0.1", "--action-std", "0.2", "0.3"]
    words = ["world", "import", str(tmp_path / "release"), "--task", "pusht", "--out", str(tmp_path / "world")]
    assert main([*words, *statistics, "--family", other]) == 1
    assert f"use --family {family}" in capsys.readouterr().err
    assert not (tmp_path / "world").exists()
    assert main([*words, *statistics, "--family", family]) == 0
    assert load_world(tmp_path / "world").spec.family == family
    assert main([*words, *statistics, "--family", other]) == 1  # the folder is taken, by a world of another family
    assert "already holds another world" in capsys.readouterr().err


def test_parts_of_another_familys_package_are_refused(worlds, tmp_path):
    FAMILY.export_release(worlds["pldm"], tmp_path, "new")
    config = json.loads((tmp_path / "config.json").read_text())
    config["predictor"]["_target_"] = "stable_worldmodel.wm.lewm.module.Predictor"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="not on the list of known pldm parts"):
        FAMILY.import_release(str(tmp_path), "pusht", action_spec)


def test_a_folder_of_a_family_that_nobody_registered_is_explained(worlds, tmp_path):
    save_world(worlds["pldm"], tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["spec"]["family"] = "nobody"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="Unknown world family 'nobody'") as error:
        load_world(tmp_path)
    for part in (str(tmp_path), "Known: lewm, ", "import that package, or give --family package.module:FAMILY"):
        assert part in str(error.value)


def test_a_folder_relabeled_as_another_family_is_refused(worlds, tmp_path):
    for family, other, reason in (("lewm", "pldm", "needs inverse"), ("pldm", "lewm", "has no field inverse")):
        save_world(worlds[family], tmp_path / family)
        path = tmp_path / family / "config.json"
        config = json.loads(path.read_text())
        config["spec"]["family"] = other
        path.write_text(json.dumps(config))
        with pytest.raises(ValueError, match=reason):
            load_world(tmp_path / family)
