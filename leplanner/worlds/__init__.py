"""World-model families, a folder each, behind one protocol."""

from .base import (
    FAMILIES,
    World,
    WorldFamily,
    WorldSpec,
    check_family,
    find_family,
    load_world,
    register_world,
    save_world,
)
from .dino_wm.family import FAMILY as DINO_WM
from .fast_lewm.family import FAMILY as FAST_LEWM
from .lewm.family import FAMILY as LEWM
from .pldm.family import FAMILY as PLDM
from .tdmpc2.family import FAMILY as TDMPC2

for family in (LEWM, FAST_LEWM, PLDM, DINO_WM, TDMPC2):
    register_world(family)

__all__ = [
    "FAMILIES",
    "World",
    "WorldFamily",
    "WorldSpec",
    "check_family",
    "find_family",
    "load_world",
    "register_world",
    "save_world",
]
