"""DINO-WM against stable-worldmodel's predictor and transformers' DINOv2; and how its encoders are made."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import CPU, action_spec
from worlds.random_worlds import randomize

from leplanner.artifacts import load_strictly
from leplanner.core.config import changed
from leplanner.pipeline.presets import get_preset
from leplanner.report.card import Making, _summary
from leplanner.tasks import TASKS, get_task
from leplanner.tasks.swm_runtime import import_swm
from leplanner.training.loggers import read_validations
from leplanner.training.optim import OPTIMIZERS, make_optimizers
from leplanner.worlds import FAMILIES, WorldSpec, load_world
from leplanner.worlds.dino_wm.dinov2 import DINOv2, DINOv2Config, load_dinov2
from leplanner.worlds.dino_wm.local import LocalConfig, LocalEncoder
from leplanner.worlds.dino_wm.model import DinoWM, DinoWMConfig
from leplanner.worlds.train import train_world

TASK = TASKS["tworoom"]
PRESET = get_preset(TASK, "tiny", family="dino-wm")
SMALL = DinoWMConfig(
    encoder=LocalConfig(frame_size=36, side=3, width=6),
    block_dim=4,
    action_channels=5,
    depth=2,
    heads=3,
    head_dim=4,
    mlp=16,
)
DINO = DINOv2Config(frame_size=56, width=24, depth=2, heads=2)  # 4 x 4 patches of 14 px


# the predictor


@pytest.fixture(scope="module")
def pair():
    """stable-worldmodel's PreJEPA without an encoder, and ours, with the same float64 weights."""
    prejepa, module = import_swm("stable_worldmodel.wm.prejepa"), import_swm("stable_worldmodel.wm.prejepa.module")
    predictor = module.CausalPredictor(
        num_patches=SMALL.latent_shape[0],
        num_frames=SMALL.context,
        dim=SMALL.width,
        depth=SMALL.depth,
        heads=SMALL.heads,
        dim_head=SMALL.head_dim,
        mlp_dim=SMALL.mlp,
        dropout=SMALL.dropout,
    )
    embedder = module.Embedder(in_chans=SMALL.block_dim, emb_dim=SMALL.action_channels)
    extra = torch.nn.ModuleDict({"action": embedder})
    reference = prejepa.PreJEPA(torch.nn.Identity(), predictor, extra, history_size=SMALL.context).double().eval()
    randomize(predictor, scale=0.3)
    randomize(embedder, scale=0.3)
    mask = module.Attention(SMALL.width).generate_mask_matrix(SMALL.latent_shape[0], SMALL.context)
    for attention, _ in predictor.transformer.layers:
        attention.bias.copy_(mask)  # a buffer, which was made random too
    ours = DinoWM(SMALL).double().eval()
    masks = {f"transformer.layers.{i}.0.bias" for i in range(SMALL.depth)}
    weights = {name: tensor for name, tensor in predictor.state_dict().items() if name not in masks}
    load_strictly(ours.predictor, weights, "the reference")
    load_strictly(ours.action_encoder, embedder.state_dict(), "the reference")
    return reference, ours


def problem(batch: int = 2, horizon: int = 5):
    generator = torch.Generator().manual_seed(0)
    shapes = ((SMALL.context, *SMALL.latent_shape), (SMALL.context - 1, SMALL.block_dim), (horizon, SMALL.block_dim))
    return [torch.randn(batch, *shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_the_mask_is_the_references(pair):
    reference, ours = pair
    assert torch.equal(ours.predictor.mask, reference.predictor.transformer.layers[0][0].bias[0, 0] == 1)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_prediction_is_the_references(pair, frames):
    reference, ours = pair
    latents, _, plan = problem()
    latents, blocks = latents[:, :frames], plan[:, :frames]
    beside = reference.extra_encoders["action"](blocks).unsqueeze(2).expand(-1, -1, SMALL.latent_shape[0], -1)
    expected = reference.predict(torch.cat([latents, beside], dim=-1))[..., : SMALL.encoder.width]
    torch.testing.assert_close(ours.predict(latents, blocks), expected, atol=1e-12, rtol=0)


def test_rollout_is_the_references(pair):
    reference, ours = pair
    context, past, plan = problem()
    beside = torch.zeros(2, 1, SMALL.context, SMALL.latent_shape[0], SMALL.action_channels, dtype=torch.float64)
    number = torch.zeros(2, 1)
    reference._init_cached_info = {  # as if it had encoded frames to these latents; its own encoding casts to float32
        "id": number[:, 0],
        "step_idx": number[:, 0],
        "emb": torch.cat([context.unsqueeze(1), beside], dim=-1),
        "pixels_emb": context.unsqueeze(1),
        "action_emb": beside[..., 0, :],
    }
    info = {"pixels": torch.zeros(2, 1, SMALL.context, 1), "id": number, "step_idx": number}
    imagined = reference.rollout(info, torch.cat([past, plan], dim=1).unsqueeze(1))["predicted_pixels_emb"][:, 0]
    expected = imagined[:, SMALL.context :]
    assert expected.shape == (2, 5, *SMALL.latent_shape)
    torch.testing.assert_close(ours.rollout(context, past, plan), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("context", [1, 2, 3])
def test_rollout_predicts_window_after_window(context):
    model = DinoWM(replace(SMALL, context=context)).double().eval()
    randomize(model, scale=0.3)
    latents, past, plan = problem()
    latents, past = latents[:, -context:], past[:, len(past[0]) - context + 1 :]
    blocks, imagined = torch.cat([past, plan], dim=1), list(latents.unbind(1))
    for j in range(plan.shape[1]):
        window = torch.stack(imagined[j : j + context], dim=1)
        imagined.append(model.predict(window, blocks[:, j : j + context])[:, -1])
    expected = torch.stack(imagined[context:], dim=1)
    torch.testing.assert_close(model.rollout(latents, past, plan), expected, atol=1e-12, rtol=0)


# DINOv2


def reference_dinov2(config: DINOv2Config, image_size: int):
    transformers = pytest.importorskip("transformers")
    sizes = transformers.Dinov2Config(
        hidden_size=config.width,
        num_hidden_layers=config.depth,
        num_attention_heads=config.heads,
        image_size=image_size,
        patch_size=config.patch,
    )
    return transformers.Dinov2Model(sizes).eval()


def write_release(folder: Path, model) -> Path:
    """config.json and model.safetensors under the names of the released files."""
    folder.mkdir(parents=True)
    old = {
        "q_proj": "attention.query",
        "k_proj": "attention.key",
        "v_proj": "attention.value",
        "o_proj": "output.dense",
    }
    tensors = {}
    for name, tensor in model.state_dict().items():
        for new, released in old.items():
            name = name.replace(f".attention.{new}.", f".attention.{released}.")
        tensors[name] = tensor.contiguous()
    save_file(tensors, folder / "model.safetensors")
    settings = model.config.to_dict()
    (folder / "config.json").write_text(json.dumps({key: settings[key] for key in SETTINGS}))
    return folder


SETTINGS = ("model_type", "patch_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_ratio")


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A DINOv2 with random weights, at another image size than ours, as it would lie in a folder."""
    model = reference_dinov2(DINO, image_size=70)
    randomize(model, scale=0.2)
    return model, write_release(tmp_path_factory.mktemp("dinov2") / "release", model)


@pytest.mark.parametrize(
    ("config", "image_size", "scale"),
    [(DINO, 56, 0.2), (DINO, 70, 0.2), (get_preset(TASK, "paper", family="dino-wm").network.encoder, 518, 0.05)],
    ids=["as-it-is", "interpolated", "the-papers"],
)
def test_dinov2_is_the_references(config, image_size, scale, tmp_path):
    """With position embeddings as they are, and interpolated from another image size; at the published size, too."""
    reference = reference_dinov2(config, image_size)
    randomize(reference, scale)
    encoder = DINOv2(replace(config, weights=str(write_release(tmp_path / "release", reference))))
    load_dinov2(encoder)
    frames = torch.randn(2, 3, config.frame_size, config.frame_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = reference(frames).last_hidden_state[:, 1:]
        actual = encoder(frames)
    assert actual.shape == (2, (config.frame_size // 14) ** 2, config.width)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_the_papers_encoder_has_the_released_shapes():
    """DINOv2-S/14 at 518 px, whose position embeddings ours interpolates; 256 patches of 384 numbers at 224 px."""
    network = get_preset(TASK, "paper", family="dino-wm").network
    assert network.latent_shape == (256, 384)
    with torch.device("meta"):
        ours, reference = DINOv2(network.encoder), reference_dinov2(network.encoder, image_size=518)
    shapes, expected = ({n: t.shape for n, t in m.state_dict().items()} for m in (ours, reference))
    assert expected.pop("embeddings.mask_token") == (1, 384)
    assert expected.pop("embeddings.position_embeddings") == (1, 37 * 37 + 1, 384)
    assert shapes.pop("embeddings.position_embeddings") == (1, 257, 384)
    assert shapes == expected


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("patch_size", 16, "patch_size 16, expected 14"),
        ("hidden_size", 48, "hidden_size 48, expected 24"),
        ("num_attention_heads", 4, "num_attention_heads 4, expected 2"),
        ("model_type", "vit", "model_type 'vit', expected 'dinov2'"),
    ],
)
def test_a_folder_of_another_encoder_is_refused(release, tmp_path, setting, value, message):
    folder = shutil.copytree(release[1], tmp_path / "other")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {setting: value}))
    with pytest.raises(ValueError, match=message):
        load_dinov2(DINOv2(replace(DINO, weights=str(folder))))


def test_weights_that_do_not_fit_are_refused(release, tmp_path):
    folder = shutil.copytree(release[1], tmp_path / "other")
    tensors = load_file(folder / "model.safetensors")
    positions = tensors["embeddings.position_embeddings"]
    save_file(
        tensors | {"embeddings.position_embeddings": positions[:, :-1].contiguous()}, folder / "model.safetensors"
    )
    with pytest.raises(ValueError, match=r"has shape \(1, 25, 24\); expected .* a square of patches"):
        load_dinov2(DINOv2(replace(DINO, weights=str(folder))))
    save_file(tensors | {"layernorm.gain": positions.clone()}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"unexpected: layernorm\.gain"):
        load_dinov2(DINOv2(replace(DINO, weights=str(folder))))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no model\.safetensors"):
        load_dinov2(DINOv2(replace(DINO, weights=str(folder))))


def test_frames_that_patches_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="64 px cannot be cut into DINOv2's patches of 14 px"):
        DINOv2Config(frame_size=64)
    with pytest.raises(ValueError, match="50 px cannot be cut into 4 x 4 patches"):
        LocalConfig(frame_size=50)


def test_a_world_with_dinov2_trains_on_the_released_features_and_needs_the_folder_no_more(release, tworoom56, tmp_path):
    reference, folder = release
    source = shutil.copytree(folder, tmp_path / "released")
    network = replace(PRESET.network, encoder=replace(DINO, weights=str(source)))
    train(tworoom56, tmp_path / "world", network=network, stop_after=2, half_weights=False)
    shutil.rmtree(source)
    world = train(tworoom56, tmp_path / "world", network=network, half_weights=False)
    frames = torch.randn(2, 3, 56, 56, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = reference(frames).last_hidden_state[:, 1:]
    torch.testing.assert_close(load_world(tmp_path / "world").model.encode(frames), expected, atol=1e-5, rtol=1e-5)
    assert "a released DINOv2" in FAMILIES.get("dino-wm").about(world.spec.network)
    with pytest.raises(ValueError, match="neither a folder nor a Hugging Face id"):
        train(tworoom56, tmp_path / "another", network=network)


# the local encoder


@pytest.fixture
def tworoom56(tworoom):
    """The same episodes, in frames that patches of 14 px divide."""
    frames = torch.as_tensor(tworoom.frames[:]).permute(0, 3, 1, 2).float()
    resized = torch.nn.functional.interpolate(frames, size=(56, 56)).to(torch.uint8)
    return replace(tworoom, frames=resized.permute(0, 2, 3, 1).numpy())


def train(episodes, out, network=PRESET.network, stop_after=None, on_progress=lambda progress: None, **changes):
    fast = {"steps": 6, "batch": 8, "validate_every": 3, "precision": "fp32"}
    config = changed(PRESET.world, **fast | changes)
    sizes = ("dino-wm", network, PRESET.objective, config)
    return train_world(TASK, episodes, *sizes, out, PRESET.block, CPU, on_progress, stop_after)


@pytest.mark.parametrize(
    ("size", "side", "strides"), [(64, 8, [2, 2, 2]), (96, 8, [3, 2, 2]), (64, 4, [4, 2, 2]), (40, 8, [5, 1, 1])]
)
def test_strides_reduce_a_patch_to_one_position(size, side, strides):
    config = LocalConfig(frame_size=size, side=side)
    assert config.strides == strides
    features = LocalEncoder(config)(torch.randn(2, 3, size, size))
    assert features.shape == (2, side**2, config.width)
    assert features.mean(-1).abs().max() < 1e-5
    assert (features.var(-1, correction=0) - 1).abs().max() < 1e-3


def test_the_autoencoder_learns_the_frames(tworoom, tmp_path):
    network = replace(PRESET.network, encoder=replace(PRESET.network.encoder, pretrain_steps=120))
    train(tworoom, tmp_path, network=network, steps=1, validate_every=30)
    errors = [line["held_out_reconstruction"] for line in read_validations(tmp_path / "encoder")]
    assert len(errors) == 4
    assert errors[-1] < 0.8  # 1 is the mean frame
    assert errors == sorted(errors, reverse=True)


def test_an_interrupted_autoencoder_continues_bit_for_bit(tworoom, tmp_path):
    def interrupt(progress):
        if progress.step == 20:
            raise KeyboardInterrupt

    whole = train(tworoom, tmp_path / "whole", checkpoint_minutes=0.0)
    with pytest.raises(KeyboardInterrupt):
        train(tworoom, tmp_path / "parts", on_progress=interrupt, checkpoint_minutes=0.0)
    steps = []
    parts = train(tworoom, tmp_path / "parts", on_progress=lambda p: steps.append(p.step), checkpoint_minutes=0.0)
    assert steps[0] == 21
    assert parts.digest == whole.digest


@pytest.mark.parametrize("half", [False, True])
def test_the_worlds_training_leaves_the_encoder_as_it_is(tworoom, tmp_path, half):
    settings = {"weight_decay": 0.5, "half_weights": half}
    early = train(tworoom, tmp_path, stop_after=1, **settings)
    before = {name: tensor.clone() for name, tensor in early.model.state_dict().items()}
    late = train(tworoom, tmp_path, **settings).model.state_dict()
    changed_names = {name for name in before if not torch.equal(before[name], late[name])}
    assert not any(name.startswith("encoder.") for name in changed_names)
    assert "predictor.pos_embedding" in changed_names


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_no_optimizer_gets_frozen_weights(optimizer):
    model, config = DinoWM(SMALL), changed(PRESET.world, optimizer=optimizer).optim
    optimizers = make_optimizers(model, config, torch.device("cpu"), "fp32")
    given = [weight for part in optimizers for group in part.param_groups for weight in group["params"]]
    assert {id(weight) for weight in given} == {id(p) for p in model.parameters() if p.requires_grad}
    assert len(given) == len([*model.predictor.parameters(), *model.action_encoder.parameters()])


def test_a_frozen_encoder_is_not_grounded(tworoom, tmp_path):
    """A state head could not change the latents: no preset has one here, and none can be requested."""
    assert get_preset(get_task("pusht"), "compact").world.grounding > 0
    assert get_preset(get_task("pusht"), "compact", family="dino-wm").world.grounding == 0
    with pytest.raises(ValueError, match="the encoder of dino-wm is frozen"):
        train(tworoom, tmp_path, steps=1, grounding=1.0)
    assert not train(tworoom, tmp_path, steps=1).spec.grounded


def test_the_card_says_what_the_encoder_is():
    spec = WorldSpec("dino-wm", TASK.name, PRESET.network, action_spec())
    config = {"world": spec.to_json(), "planner": {"width": 32, "horizon": 5, "refinements": 3}}
    said = " ".join(_summary(config, Making("", "tiny", "best", "dino-wm", Path("data.h5"), {})))
    assert "16 tokens of 8 numbers" in said
    assert "`local`, not DINOv2" in said
    assert f"{PRESET.network.encoder.pretrain_steps} steps" in said
