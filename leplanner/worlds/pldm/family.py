"""PLDM as a family: LeWM's sizes at every scale, and the inverse-dynamics head's."""

from __future__ import annotations

from functools import partial

from ...artifacts import from_dict, to_dict
from ..base import WorldFamily
from ..lewm.family import FAMILY as LEWM
from ..lewm.release import LEWM_KEYS, Release, export_release, import_release, read_sizes, write_sizes
from .model import PLDM, PLDMConfig, PLDMObjective

INVERSE = {"paper": 512, "compact": 256, "tiny": 32}  # hidden sizes
_PLDM = "stable_worldmodel.wm.pldm"
RELEASE = Release(
    "pldm",
    (f"{_PLDM}.PLDM", f"{_PLDM}.pldm.PLDM"),
    f"{_PLDM}.module",
    lambda parts, source: PLDMConfig(**read_sizes(parts, source), inverse=0),  # releases have no head
    write_sizes,
    LEWM_KEYS,
)


def _network(scale: str, block_dim: int, frame_size: int) -> PLDMConfig:
    sizes = to_dict(LEWM.network(scale, block_dim, frame_size))
    return from_dict(PLDMConfig, sizes | {"inverse": INVERSE[scale]})


FAMILY = WorldFamily(
    name="pldm",
    title="PLDM",
    config=PLDMConfig,
    build=PLDM,
    network=_network,
    objective=lambda scale: PLDMObjective(),
    own_planner="mppi",
    about=lambda network: "An inverse-dynamics head helped to train it." if network.inverse else "",
    import_release=partial(import_release, release=RELEASE),
    export_release=partial(export_release, release=RELEASE),
    describes=RELEASE.describes,
)
