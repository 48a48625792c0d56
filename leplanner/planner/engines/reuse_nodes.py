"""Plan reuse as ONNX nodes: the new plan, or what remains of the last one where that is imagined to end nearer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class PlanValues(NamedTuple):
    """Names of a plan's values in a graph."""

    blocks: str  # (B, H, A)
    latents: str  # (B, H, *Z)
    distances: str  # (B, H)


class Nodes(Protocol):
    def op(self, kind: str, *inputs: str, **attributes: Any) -> str: ...
    def constant(self, value: list[int]) -> str: ...


def select_better(
    g: Nodes,
    new: PlanValues,
    last_plan: str,
    executed: str,
    shape: tuple[int, int, int],  # H, A, and how many axes a latent has
    imagine: Callable[[str], tuple[str, str]],  # blocks -> latents and distances
) -> PlanValues:
    """As `control.policy.select_better_plan`. After `executed` blocks of `last_plan`, what remains is made as long as
    the new plan with the end of that; where all H were executed, the new plan is left alone."""
    horizon, block_dim, axes = shape
    whole, along = g.constant([horizon]), g.constant([1])
    remaining = g.op("Slice", last_plan, executed, whole, along)
    end = g.op("Slice", new.blocks, g.op("Sub", whole, executed), whole, along)
    joined = g.op("Concat", remaining, end, axis=1)
    blocks = g.op("Reshape", joined, g.constant([0, horizon, block_dim]))
    latents, distances = imagine(blocks)
    last = [g.op("Slice", d, g.constant([horizon - 1]), whole, along) for d in (distances, new.distances)]
    nearer = g.op("Less", *last)  # (B, 1)

    def pick(old: str, fresh: str, extra: int) -> str:
        mask = g.op("Unsqueeze", nearer, g.constant(list(range(2, 2 + extra)))) if extra else nearer
        return g.op("Where", mask, old, fresh)

    return PlanValues(pick(blocks, new.blocks, 1), pick(latents, new.latents, axes), pick(distances, new.distances, 0))
