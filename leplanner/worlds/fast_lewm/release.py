"""Released Fast-LeWM checkpoints: `config.json` as its training configuration names parts and sizes, and plain tensors.

What its authors publish is a pickled object, which runs code when it is opened and is refused. Its `state_dict()` has
these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..lewm.release import Parts, Release, shared_sizes, whole
from .model import FastLeWMConfig

_KEYS: dict[str, Mapping[str, Any]] = {
    "predictor": dict.fromkeys(
        ("input_dim", "hidden_dim", "output_dim", "depth", "mlp_dim", "dropout", "value_heads", "value_dim_head")
    )
    | dict.fromkeys(("action_fusion_hidden_dim", "action_fusion_zero_init"))  # the latter is of new weights
    | {"emb_dropout": 0.0, "token_processing": "batch", "action_fusion": "residual_mlp"},
    "action_encoder": dict.fromkeys(("input_dim", "smoothed_dim", "emb_dim", "mlp_scale", "latent_dim"))
    | dict.fromkeys(("transformer_depth", "transformer_heads", "transformer_dim_head", "transformer_mlp_dim"))
    | {
        "embed_type": "action_prefix",
        "temporal_mixer_type": "transformer",
        "use_positional_encoding": True,
        "use_latent_condition": True,
        "latent_condition_mode": "prefix",
        "use_learnable_latent_token": False,
        "variable_frameskip": False,
        "dropout": 0.0,
    },
}


def _read(parts: Parts, source: str) -> FastLeWMConfig:
    predictor, action = parts["predictor"], parts["action_encoder"]
    shared = shared_sizes(parts, source)
    if not action.get("use_latent_condition"):
        raise ValueError(
            f"{source}: action_encoder.use_latent_condition must be true: our prefixes begin with the start latent."
        )
    latent = shared["latent"]
    return FastLeWMConfig(
        **shared,
        heads=whole(predictor, "value_heads", source),
        head_dim=int(predictor.get("value_dim_head", 64)),
        fusion=int(predictor.get("action_fusion_hidden_dim") or 4 * latent),
        action_smooth=int(action.get("smoothed_dim", 32)),
        prefix_depth=int(action.get("transformer_depth", 2)),
        prefix_heads=int(action.get("transformer_heads", 8)),
        prefix_head_dim=int(action.get("transformer_dim_head", 64)),
        prefix_mlp=int(action.get("transformer_mlp_dim") or 4 * latent),
    )


def _write(model: FastLeWMConfig) -> Parts:
    if model.context != 1:
        raise ValueError(
            f"Only Fast-LeWM worlds with a context of 1 can be written in the published layout; this one's is "
            f"{model.context}."
        )
    return {
        "predictor": {
            "input_dim": model.latent,
            "hidden_dim": model.latent,
            "output_dim": model.latent,
            "depth": model.depth,
            "value_heads": model.heads,
            "value_dim_head": model.head_dim,
            "mlp_dim": model.mlp,
            "dropout": model.dropout,
            "action_fusion_hidden_dim": model.fusion,
        },
        "action_encoder": {
            "input_dim": model.block_dim,
            "smoothed_dim": model.action_smooth,
            "emb_dim": model.latent,
            "latent_dim": model.latent,
            "mlp_scale": model.action_mlp,
            "transformer_depth": model.prefix_depth,
            "transformer_heads": model.prefix_heads,
            "transformer_dim_head": model.prefix_head_dim,
            "transformer_mlp_dim": model.prefix_mlp,
            "use_latent_condition": True,
        },
    }


RELEASE = Release("fast-lewm", ("jepa.JEPA",), "module", _read, _write, _KEYS, predictor="ARPredictor")
