"""Ways to compute the same plan, one file each. `auto` takes the first that suits the device."""

from .base import ENGINES, Engine, EngineKind, EngineReport, engine_names, layout, pick_engine, random_problem
from .compiled import COMPILED
from .eager import EAGER
from .onnx import ONNX

for kind in (ONNX, COMPILED, EAGER):
    ENGINES.register(kind)

__all__ = [
    "ENGINES",
    "Engine",
    "EngineKind",
    "EngineReport",
    "engine_names",
    "layout",
    "pick_engine",
    "random_problem",
]
