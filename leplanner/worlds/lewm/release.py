"""Released checkpoints of LeWM's network in and out: `config.json` with hydra targets, `weights.pt` or safetensors.

A downloaded config is data: its targets are compared with a list, never imported; weights are loaded
without unpickling objects; every tensor must fit.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, cast

import torch
from torch import Tensor

from ...artifacts import atomic_path, fetch_folder, load_strictly, read_json, read_safetensors, write_json
from ...core.actions import ActionSpec
from ..base import World, WorldSpec, family_of_release
from .encoders import ViTConfig
from .model import LeWMConfig

Parts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Release:
    """How a family's released configs name its classes and sizes. Names that are written come first."""

    family: str
    model: tuple[str, ...]
    module: str  # where its parts are
    read: Callable[[Parts, str], Any]  # (parts, source) -> the network's sizes
    write: Callable[[Any], Parts]  # sizes -> what predictor and action encoder are made with
    known: dict[str, Mapping[str, Any]]  # what predictor and action encoder may say; see KNOWN_KEYS
    predictor: str = "Predictor"
    earlier: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])  # names of parts

    @property
    def targets(self) -> dict[str, tuple[str, ...]]:
        """What is allowed at each place of a config."""
        mlp = self.part("MLP")
        return {
            "": self.model,
            "encoder": ("stable_pretraining.backbone.utils.vit_hf", "transformers.ViTModel"),
            "encoder.config": ("transformers.ViTConfig",),
            "predictor": self.part(self.predictor),
            "action_encoder": self.part("Embedder"),
            "projector": mlp,
            "pred_proj": mlp,
            "projector.norm_fn": ("torch.nn.BatchNorm1d",),
            "pred_proj.norm_fn": ("torch.nn.BatchNorm1d",),
        }

    def part(self, name: str) -> tuple[str, ...]:
        return (f"{self.module}.{name}", *self.earlier.get(name, ()))

    def describes(self, config: Mapping[str, Any]) -> bool:
        """By the model's class and the predictor's sizes: families share class names."""
        predictor = config.get("predictor")
        sizes = {name for name in predictor if not name.startswith("_")} if _is_dict(predictor) else {""}
        return config.get("_target_") in self.model and sizes <= set(self.known["predictor"])


# what a part may say besides its target; a value given here is the only one that our modules compute
KNOWN_KEYS: dict[str, Mapping[str, Any]] = {
    "encoder": dict.fromkeys(("size", "patch_size", "image_size", "config", "pretrained"))
    | {"use_mask_token": False, "add_pooling_layer": False},
    "encoder.config": dict.fromkeys(
        ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size")
    )
    | {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "qkv_bias": True, "num_channels": 3},
    "projector": dict.fromkeys(("input_dim", "hidden_dim", "output_dim", "norm_fn")),
    "pred_proj": dict.fromkeys(("input_dim", "hidden_dim", "output_dim", "norm_fn")),
}
VIT_SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}

# transformers renamed ViT's parameters in 5.9; released weights have the old names
OLD_ATTENTION = (
    (r"\.attention\.attention\.query\.", ".attention.q_proj."),
    (r"\.attention\.attention\.key\.", ".attention.k_proj."),
    (r"\.attention\.attention\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
)
_OLD_TO_NEW = (
    (r"^encoder\.encoder\.layer\.(\d+)\.", r"encoder.layers.\1."),
    *OLD_ATTENTION,
    (r"(\.layers\.\d+)\.intermediate\.dense\.", r"\1.mlp.fc1."),
    (r"(\.layers\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
)
_NEW_TO_OLD = (
    (r"^encoder\.layers\.(\d+)\.attention\.q_proj\.", r"encoder.encoder.layer.\1.attention.attention.query."),
    (r"^encoder\.layers\.(\d+)\.attention\.k_proj\.", r"encoder.encoder.layer.\1.attention.attention.key."),
    (r"^encoder\.layers\.(\d+)\.attention\.v_proj\.", r"encoder.encoder.layer.\1.attention.attention.value."),
    (r"^encoder\.layers\.(\d+)\.attention\.o_proj\.", r"encoder.encoder.layer.\1.attention.output.dense."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc1\.", r"encoder.encoder.layer.\1.intermediate.dense."),
    (r"^encoder\.layers\.(\d+)\.mlp\.fc2\.", r"encoder.encoder.layer.\1.output.dense."),
    (r"^encoder\.layers\.(\d+)\.layernorm", r"encoder.encoder.layer.\1.layernorm"),
)


def rename(tensors: dict[str, Tensor], rules: tuple[tuple[str, str], ...]) -> dict[str, Tensor]:
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        renamed[name] = tensor
    return renamed


def import_release(source: str | Path, task: str, actions: Callable[[int], ActionSpec], release: Release) -> World:
    """A folder, or a Hugging Face id, as a frozen world. `actions` makes their specification for a block's length,
    which the checkpoint knows; the statistics are its training dataset's."""
    folder = fetch_release(source)
    config_path = folder / "config.json"
    if not config_path.exists():
        raise ValueError(
            f"{folder} has no config.json; a {release.family} release is config.json with weights.pt or *.safetensors."
        )
    model = model_config(read_json(config_path), str(config_path), release)
    action_dim = actions(1).dim
    if model.block_dim % action_dim:
        raise ValueError(
            f"{config_path} has action blocks of {model.block_dim} numbers, which actions of size {action_dim} do not "
            f"divide. Is {task!r} the task that this checkpoint was trained on?"
        )
    world = World.build(WorldSpec(release.family, task, model, actions(model.block_dim // action_dim)))
    tensors, file = _read_weights(folder)
    load_strictly(world.model, rename(tensors, _OLD_TO_NEW), str(file))
    return world


def fetch_release(source: str | Path) -> Path:
    return fetch_folder(source, ("config.json", "weights.pt", "*.safetensors"))


def _read_weights(folder: Path) -> tuple[dict[str, Tensor], Path]:
    found = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.pt"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise ValueError(f"{folder} must hold one weights file (weights.pt or *.safetensors); found: {names}.")
    path = found[0]
    if path.suffix == ".safetensors":
        return read_safetensors(path), path
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of a foreign pickle before it refuses it
            value = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{path} was not loaded: it is damaged or holds Python objects besides tensors, which could run code on "
            f"loading ({str(error).splitlines()[0]}). Ask its author for a plain state_dict or safetensors."
        ) from error
    if not _is_dict(value) or not all(isinstance(tensor, Tensor) for tensor in value.values()):
        raise ValueError(f"{path} is not a state_dict of tensors; found {type(value).__name__}.")
    return value, path


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def model_config(config: Any, source: str, release: Release) -> Any:
    """Reads sizes out of a hydra config without instantiating anything."""
    if not _is_dict(config):
        raise ValueError(f"{source} is not a mapping of model parts.")
    try:
        _check_parts(config, "", source, release)
    except ValueError as error:
        other = family_of_release(config)
        if other is None or other == release.family:
            raise
        raise ValueError(
            f"{error} It seems to be a checkpoint of the family {other!r}: use --family {other}."
        ) from None
    names = ("encoder", "predictor", "action_encoder", "projector", "pred_proj")
    parts = {name: _part(config, name, source) for name in names}
    predictor, action, projector = parts["predictor"], parts["action_encoder"], parts["projector"]
    latent = whole(predictor, "input_dim", source)
    same = {
        "predictor.hidden_dim": predictor.get("hidden_dim", latent),
        "predictor.output_dim": predictor.get("output_dim") or latent,
        "action_encoder.emb_dim": action.get("emb_dim", 10),
        "action_encoder.latent_dim": action.get("latent_dim") or latent,
        "projector.output_dim": projector.get("output_dim") or projector.get("input_dim"),
        "pred_proj.output_dim": parts["pred_proj"].get("output_dim") or parts["pred_proj"].get("input_dim"),
    }
    different = {name: value for name, value in same.items() if value != latent}
    if different or parts["pred_proj"].get("hidden_dim") != projector.get("hidden_dim"):
        raise ValueError(
            f"{source}: this {release.family} variant is not supported: predictor.input_dim is {latent}, but "
            f"{different or 'the two '}{'' if different else 'projectors differ in hidden_dim'}. "
            "All latent sizes must agree."
        )
    return release.read(parts, source)


def shared_sizes(parts: Parts, source: str) -> dict[str, Any]:
    """Of encoder, projectors and actions, which all of these families have."""
    predictor, action = parts["predictor"], parts["action_encoder"]
    return {
        "encoder": _vit_config(parts["encoder"], source),
        "block_dim": whole(action, "input_dim", source),
        "latent": whole(predictor, "input_dim", source),
        "depth": whole(predictor, "depth", source),
        "mlp": whole(predictor, "mlp_dim", source),
        "dropout": float(predictor.get("dropout", 0.0)),
        "projector": whole(parts["projector"], "hidden_dim", source),
        "action_mlp": int(action.get("mlp_scale", 4)),
    }


def read_sizes(parts: Parts, source: str) -> dict[str, Any]:
    """LeWM's."""
    predictor = parts["predictor"]
    return shared_sizes(parts, source) | {
        "context": whole(predictor, "num_frames", source),
        "heads": whole(predictor, "heads", source),
        "head_dim": int(predictor.get("dim_head", 64)),
        "action_smooth": int(parts["action_encoder"].get("smoothed_dim", 10)),
    }


def write_sizes(model: LeWMConfig) -> Parts:
    return {
        "predictor": {
            "num_frames": model.context,
            "input_dim": model.latent,
            "hidden_dim": model.latent,
            "output_dim": model.latent,
            "depth": model.depth,
            "heads": model.heads,
            "dim_head": model.head_dim,
            "mlp_dim": model.mlp,
            "dropout": model.dropout,
        },
        "action_encoder": {
            "input_dim": model.block_dim,
            "smoothed_dim": model.action_smooth,
            "emb_dim": model.latent,
            "mlp_scale": model.action_mlp,
        },
    }


def _check_parts(value: Any, place: str, source: str, release: Release) -> None:
    if _is_dict(value):
        target = value.get("_target_")
        allowed = release.targets.get(place, ())
        if target is not None and target not in allowed:
            raise ValueError(
                f"{source}: {place or 'the model'} names the class {target!r}, which is not on the list of known "
                f"{release.family} parts ({', '.join(allowed) or 'none here'}). Nothing was loaded."
            )
        for name, inner in value.items():
            _check_parts(inner, f"{place}.{name}".lstrip("."), source, release)
            known = (KNOWN_KEYS | release.known).get(place, {name: None})
            if not name.startswith("_") and (name not in known or known[name] not in (None, inner)):
                raise ValueError(
                    f"{source}: {place}.{name} is {inner!r}. Our modules know {place}'s {', '.join(known)}"
                    f"{f', with {name} = {known[name]!r} only' if name in known else ''}; loading "
                    "would change what it computes."
                )
    elif isinstance(value, list):
        for inner in cast(list[Any], value):
            _check_parts(inner, f"{place}[]", source, release)


def _part(config: dict[str, Any], name: str, source: str) -> dict[str, Any]:
    part = config.get(name)
    if not _is_dict(part):
        raise ValueError(
            f"{source} has no part {name!r}; a release's config has encoder, predictor, "
            "action_encoder, projector, pred_proj."
        )
    return part


def whole(part: dict[str, Any], name: str, source: str) -> int:
    value = part.get(name)
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{source}: {name!r} must be a positive whole number; found {value!r}.")
    return value


def _vit_config(encoder: dict[str, Any], source: str) -> ViTConfig:
    if "config" in encoder:  # transformers.ViTModel
        inner = encoder["config"]
        if not _is_dict(inner):
            raise ValueError(f"{source}: encoder.config must be the settings of a ViT; found {inner!r}.")
        width, depth, heads = (
            whole(inner, n, source) for n in ("hidden_size", "num_hidden_layers", "num_attention_heads")
        )
        size, patch, ratio = (
            inner.get("image_size", 224),
            inner.get("patch_size", 16),
            whole({"intermediate_size": 3072} | inner, "intermediate_size", source) // width,  # transformers' default
        )
    else:
        if encoder.get("size", "tiny") not in VIT_SIZES:
            raise ValueError(f"{source}: encoder.size is {encoder.get('size')!r}; known: {', '.join(VIT_SIZES)}.")
        width, depth, heads = VIT_SIZES[encoder.get("size", "tiny")]
        size, patch, ratio = encoder.get("image_size", 224), encoder.get("patch_size", 16), 4
    return ViTConfig(frame_size=size, patch=patch, width=width, depth=depth, heads=heads, mlp_ratio=ratio)


def export_release(world: World, folder: Path, names: str = "new", *, release: Release) -> None:
    """Writes what stable-worldmodel's `load_pretrained` loads. `names`: ViT parameters as transformers >= 5.9 ('new')
    or earlier ('old') calls them."""
    if names not in ("new", "old"):
        raise ValueError(f"names must be 'new' or 'old'; got {names!r}.")
    model = world.spec.network
    encoder = model.encoder
    if not isinstance(encoder, ViTConfig):
        raise ValueError(
            "Only worlds with a ViT encoder can be written in stable-worldmodel's format; this one has a keypoint "
            "encoder, which stable-worldmodel does not know."
        )
    sizes = release.write(model)
    mlp = {
        "_target_": release.part("MLP")[0],
        "hidden_dim": model.projector,
        "output_dim": model.latent,
        "norm_fn": {"_target_": "torch.nn.BatchNorm1d", "_partial_": True},
    }
    config = {
        "_target_": release.model[0],
        "encoder": {
            "_target_": "transformers.ViTModel",
            "add_pooling_layer": False,
            "use_mask_token": False,
            "config": {
                "_target_": "transformers.ViTConfig",
                "hidden_size": encoder.width,
                "num_hidden_layers": encoder.depth,
                "num_attention_heads": encoder.heads,
                "intermediate_size": encoder.width * encoder.mlp_ratio,
                "image_size": encoder.frame_size,
                "patch_size": encoder.patch,
            },
        },
        "predictor": {"_target_": release.part(release.predictor)[0], **sizes["predictor"]},
        "action_encoder": {"_target_": release.part("Embedder")[0], **sizes["action_encoder"]},
        "projector": {**mlp, "input_dim": encoder.width},
        "pred_proj": {**mlp, "input_dim": model.latent},
    }
    state = world.model.state_dict()
    known = [name for name in state if name.split(".")[0] in config]  # what only training uses stays here
    tensors = {name: state[name].detach().cpu().contiguous() for name in known}
    with atomic_path(folder / "weights.pt") as temporary:
        torch.save(rename(tensors, _NEW_TO_OLD) if names == "old" else tensors, temporary)
    write_json(folder / "config.json", config)


LEWM_KEYS: dict[str, Mapping[str, Any]] = {
    "predictor": dict.fromkeys(
        ("num_frames", "input_dim", "hidden_dim", "output_dim", "depth", "heads", "mlp_dim", "dim_head", "dropout")
    )
    | {"emb_dropout": 0.0},
    "action_encoder": dict.fromkeys(("input_dim", "smoothed_dim", "emb_dim", "mlp_scale")),
}
_LEWM = "stable_worldmodel.wm.lewm"
LEWM = Release(
    "lewm",
    (f"{_LEWM}.LeWM", f"{_LEWM}.lewm.LeWM", f"{_LEWM}.JEPA", f"{_LEWM}.module.JEPA", "jepa.JEPA"),
    f"{_LEWM}.module",
    lambda parts, source: LeWMConfig(**read_sizes(parts, source)),
    write_sizes,
    LEWM_KEYS,
    earlier={
        "Predictor": (f"{_LEWM}.module.ARPredictor", "module.ARPredictor"),
        "Embedder": ("module.Embedder",),
        "MLP": ("module.MLP",),
    },
)
