"""World-model families, a folder each, behind one protocol."""

from .base import FAMILIES, World, WorldFamily, WorldSpec, find_family, load_world, register_world, save_world
from .lewm.family import FAMILY as LEWM
from .tdmpc2.family import FAMILY as TDMPC2

for family in (LEWM, TDMPC2):
    register_world(family)

__all__ = [
    "FAMILIES",
    "World",
    "WorldFamily",
    "WorldSpec",
    "find_family",
    "load_world",
    "register_world",
    "save_world",
]
