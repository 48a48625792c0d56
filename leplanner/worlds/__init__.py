"""World-model families, a folder each, behind one protocol."""

from .base import FAMILIES, World, WorldFamily, WorldSpec, find_family, load_world, register_world, save_world
from .dino_wm.family import FAMILY as DINO_WM
from .lewm.family import FAMILY as LEWM

for family in (LEWM, DINO_WM):
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
