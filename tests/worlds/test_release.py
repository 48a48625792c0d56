"""Released checkpoints: both name styles, strictness, nothing executed, and the way back to stable-worldmodel."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from safetensors.torch import save_file
from worlds.random_worlds import random_problem, randomize

from leplanner.cli.main import main
from leplanner.core.actions import ActionSpec
from leplanner.tasks.swm_runtime import import_swm
from leplanner.worlds import World, WorldSpec, load_world
from leplanner.worlds.lewm.encoders import ViTConfig
from leplanner.worlds.lewm.family import FAMILY
from leplanner.worlds.lewm.model import LeWM, LeWMConfig
from leplanner.worlds.lewm.release import _NEW_TO_OLD, rename

import_release, export_release = FAMILY.import_release, FAMILY.export_release
SMALL = LeWMConfig(encoder=ViTConfig(56, 14, 192, 12, 3), depth=2, heads=2, head_dim=16, mlp=64, projector=32)
MLP = {"_target_": "stable_worldmodel.wm.lewm.module.MLP", "input_dim": 192, "output_dim": 192, "hidden_dim": 32}
MLP["norm_fn"] = {"_target_": "torch.nn.BatchNorm1d", "_partial_": True}
HUB_CONFIG = {
    "_target_": "stable_worldmodel.wm.lewm.LeWM",
    "encoder": {
        "_target_": "stable_pretraining.backbone.utils.vit_hf",
        "size": "tiny",
        "patch_size": 14,
        "image_size": 56,
        "pretrained": False,
        "use_mask_token": False,
    },
    "predictor": {
        "_target_": "stable_worldmodel.wm.lewm.module.Predictor",
        "num_frames": 3,
        "input_dim": 192,
        "hidden_dim": 192,
        "output_dim": 192,
        "depth": 2,
        "heads": 2,
        "mlp_dim": 64,
        "dim_head": 16,
        "dropout": 0.1,
        "emb_dropout": 0.0,
    },
    "action_encoder": {"_target_": "stable_worldmodel.wm.lewm.module.Embedder", "input_dim": 10, "emb_dim": 192},
    "projector": MLP,
    "pred_proj": MLP,
}


def action_spec(block: int) -> ActionSpec:
    return ActionSpec((0.0, 0.1), (0.2, 0.3), (-1.0, -1.0), (1.0, 1.0), block)


@pytest.fixture(scope="module")
def model():
    model = LeWM(SMALL).eval()
    randomize(model)
    return model


@pytest.fixture
def folder(tmp_path, model):
    (tmp_path / "config.json").write_text(json.dumps(HUB_CONFIG))
    torch.save(rename(model.state_dict(), _NEW_TO_OLD), tmp_path / "weights.pt")
    return tmp_path


def same(world: World, model: LeWM) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(world.model.state_dict().values(), model.state_dict().values(), strict=True)
    )


def test_old_names_are_the_released_ones(folder):
    names = torch.load(folder / "weights.pt", weights_only=True)
    assert "encoder.encoder.layer.11.attention.attention.query.weight" in names
    assert "encoder.encoder.layer.0.output.dense.bias" in names
    assert "encoder.encoder.layer.0.layernorm_before.weight" in names


def test_import_reads_old_names_new_names_and_safetensors(folder, model):
    world = import_release(folder, "pusht", action_spec)
    assert world.spec.network == SMALL
    assert world.spec.actions == action_spec(5)
    assert same(world, model)
    torch.save(model.state_dict(), folder / "weights.pt")
    assert same(import_release(folder, "pusht", action_spec), model)
    (folder / "weights.pt").unlink()
    save_file(model.state_dict(), folder / "model.safetensors")
    assert same(import_release(folder, "pusht", action_spec), model)


def test_misfits_are_listed(folder, model):
    tensors = dict(model.state_dict())
    del tensors["projector.net.0.bias"]
    tensors["surprise"] = torch.zeros(3)
    tensors["pred_proj.net.0.weight"] = torch.zeros(3, 3)
    tensors["pred_proj.net.3.bias"] = torch.full((192,), float("nan"))
    torch.save(tensors, folder / "weights.pt")
    with pytest.raises(ValueError, match="do not fit the model") as error:
        import_release(folder, "pusht", action_spec)
    for part in (
        "missing: projector.net.0.bias",
        "unexpected: surprise",
        "shape of pred_proj.net.0.weight: (3, 3), expected (32, 192)",
        "not finite: pred_proj.net.3.bias",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("place", ["", "encoder", "projector.norm_fn", "predictor.extra"])
def test_unknown_classes_are_refused_by_name(place, folder):
    config = json.loads(json.dumps(HUB_CONFIG))
    part = config
    for name in filter(None, place.split(".")):
        part = part.setdefault(name, {})
    part["_target_"] = "os.system"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"names the class 'os\.system'"):
        import_release(folder, "pusht", action_spec)


class Trap:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_a_pickle_that_would_run_code_does_not_run_it(writer, folder, tmp_path):
    sprung = tmp_path / "sprung"
    if writer == "torch":
        torch.save({"encoder.x": Trap(sprung)}, folder / "weights.pt")
    else:
        (folder / "weights.pt").write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(ValueError, match="was not loaded"):
        import_release(folder, "pusht", action_spec)
    assert not sprung.exists()


def test_an_encoder_that_does_not_say_its_shape_is_refused(folder):
    for inner, told in (
        ("tiny", "must be the settings of a ViT"),
        ({"hidden_size": 192}, "'num_hidden_layers' must be"),
    ):
        config = json.loads(json.dumps(HUB_CONFIG))
        config["encoder"]["config"] = inner
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=told):
            import_release(folder, "pusht", action_spec)


def test_settings_that_would_change_the_function_are_refused(folder):
    for part, name, value in (("encoder", "hidden_act", "relu"), ("predictor", "emb_dropout", 0.1)):
        config = json.loads(json.dumps(HUB_CONFIG))
        config[part][name] = value
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=rf"{part}\.{name} is {value!r}"):
            import_release(folder, "pusht", action_spec)


def test_a_truncated_file_is_explained(folder):
    (folder / "model.safetensors").write_bytes(b"\x10" * 40)
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        import_release(folder, "pusht", action_spec)


def test_unsupported_variants_and_folders_are_explained(folder, tmp_path):
    config = json.loads(json.dumps(HUB_CONFIG))
    config["predictor"]["hidden_dim"] = 256
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="All latent sizes must agree"):
        import_release(folder, "pusht", action_spec)
    (folder / "config.json").write_text(json.dumps(HUB_CONFIG))
    with pytest.raises(ValueError, match="do not divide"):
        import_release(folder, "cube", lambda block: ActionSpec((0.0,) * 4, (1.0,) * 4, (-1.0,) * 4, (1.0,) * 4, block))
    with pytest.raises(ValueError, match="neither a folder nor a Hugging Face id"):
        import_release(tmp_path / "nowhere", "pusht", action_spec)
    (folder / "weights.pt").unlink()
    with pytest.raises(ValueError, match="found: none"):
        import_release(folder, "pusht", action_spec)


@torch.no_grad()
def test_stable_worldmodel_loads_our_export_with_identical_outputs(model, tmp_path):
    world = World(model, WorldSpec("lewm", "pusht", SMALL, action_spec(5)))
    export_release(world, tmp_path / "release")
    loaded = import_swm("stable_worldmodel.wm.utils").load_pretrained(str(tmp_path / "release")).eval()
    frames = torch.randn(2, 3, 3, 56, 56, generator=torch.Generator().manual_seed(0))
    latents = model.encode(frames.flatten(0, 1)).unflatten(0, (2, 3))
    assert torch.allclose(loaded.encode({"pixels": frames})["emb"], latents, atol=1e-5)
    context, past, plan = random_problem(world, 2)
    info = {"pixels": frames[:, None], "emb": context[:, None]}
    theirs = loaded.rollout(info, torch.cat([past, plan], 1)[:, None])["predicted_emb"][:, 0, 3:]
    assert torch.allclose(theirs, model.rollout(context, past, plan), atol=1e-5)


def test_export_and_import_are_inverse(model, tmp_path):
    world = World(model, WorldSpec("lewm", "pusht", SMALL, action_spec(5)))
    for names in ("new", "old"):
        export_release(world, tmp_path / names, names)
        again = import_release(tmp_path / names, "pusht", action_spec)
        assert again.spec == world.spec
        assert same(again, model)


def test_keypoint_worlds_cannot_be_exported(tiny_world, tmp_path):
    with pytest.raises(ValueError, match="Only worlds with a ViT"):
        export_release(tiny_world, tmp_path)


def test_import_command(folder, model, tmp_path, capsys):
    out = tmp_path / "world"
    statistics = ["--action-mean", "0", "0.1", "--action-std", "0.2", "0.3"]
    arguments = ["--task", "pusht", "--out", str(out)]
    assert main(["world", "import", str(folder), *arguments]) == 1
    assert "give --data FILE" in capsys.readouterr().err
    assert main(["world", "import", str(folder), *arguments, *statistics]) == 0
    assert same(load_world(out), model)
    assert load_world(out).spec.actions == action_spec(5)
    assert main(["world", "import", str(folder), *arguments, *statistics]) == 0
    assert "imported before" in capsys.readouterr().out
    assert main(["world", "import", str(tmp_path / "another"), *arguments, *statistics]) == 1
    assert "already holds another world" in capsys.readouterr().err
    statistics[1] = "0.5"
    assert main(["world", "import", str(folder), *arguments, *statistics]) == 1
    assert "already holds another world" in capsys.readouterr().err
