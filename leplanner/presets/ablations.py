"""The paper's ablations as presets: what each variant changes in a scale's planner and its training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..planner.model import PlannerConfig
from ..planner.train import PlannerTrainConfig

PATH_WEIGHT = 0.25  # alpha of the fixed-terminal variant with a path loss


@dataclass(frozen=True)
class Variant:
    name: str
    train: dict[str, Any] = field(default_factory=dict)  # fields of PlannerTrainConfig
    shape: dict[str, Any] = field(default_factory=dict)  # fields of PlannerConfig

    def apply(self, shape: PlannerConfig, config: PlannerTrainConfig) -> tuple[PlannerConfig, PlannerTrainConfig]:
        """What the paper compares: no variant is shown the data's way, which would hide what its objective does by itself."""
        return replace(shape, **self.shape), replace(config, **{"way_weight": 0.0, **self.train})

    @property
    def folder(self) -> str:
        return self.name.replace(" ", "-").replace("=", "")


REFERENCE = "arrival-hold"
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(REFERENCE),  # lambda_h 0.5, K 3
        Variant("hold 0", {"hold_weight": 0.0}),
        Variant("hold 0.25", {"hold_weight": 0.25}),
        Variant("hold 1", {"hold_weight": 1.0}),
        Variant("fixed-terminal path", {"objective": "fixed-terminal", "path_weight": PATH_WEIGHT}),
        Variant("fixed-terminal", {"objective": "fixed-terminal", "path_weight": 0.0}),  # alpha = 0
        Variant("no support", {"support_weight": 0.0}),
        Variant("K=0", shape={"refinements": 0}),
        Variant("K=1", shape={"refinements": 1}),
        Variant("K=2", shape={"refinements": 2}),
    )
}


def get_variants(names: str) -> list[Variant]:
    """Of names separated by commas; the reference always comes first, since all are compared with it."""
    wanted = list(VARIANTS) if names == "all" else names.split(",")
    unknown = [name for name in wanted if name not in VARIANTS]
    if unknown:
        raise ValueError(f"Unknown variant {', '.join(unknown)}; known: all, or of {', '.join(VARIANTS)}.")
    return [variant for name, variant in VARIANTS.items() if name in wanted or name == REFERENCE]
