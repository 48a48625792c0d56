"""The little that planners and controllers know about a world model, and what may be asked of one besides.

Optional capabilities are asked for by name, never guessed from a class:
`prepare(context, past_blocks)` returns a function of the plan and computes there what all plans of a problem share;
`fast(compiled, options)` returns an equal of the dynamics, rearranged for speed;
`onnx_rollout(graph)` and `onnx_encoder(graph, frames)` lay the model out as ONNX nodes;
`predictor_calls(horizon)` says how many predictor calls one after another a rollout of so many blocks takes, where that
is not one a block;
`plan_return(context, past_blocks, plan, goal)` is a plan's return (B,), by rewards and values learned with the world;
`propose_plan(context, past_blocks, goal, noise)` is a plan by a policy learned with it, from normal noise (B, H, A).
A network may also take `set_action_box(center, scale)`, the environment's box in standardized blocks.
A world without them trains, plans, evaluates and exports through the general path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from .latent import LatentSpec
from .problem import PlanProblem

CAPABILITIES = (
    *("prepare", "fast", "onnx_rollout", "onnx_encoder", "predictor_calls"),
    *("plan_return", "propose_plan"),
)

Imagine = Callable[[Tensor], tuple[Tensor, Tensor]]  # blocks (B, H, A) -> latents (B, H, *Z), distances (B, H)


@runtime_checkable
class Dynamics(Protocol):
    """A frozen world model, as planners see it. Gradients flow through it to the plan, never onto its weights."""

    @property
    def latent(self) -> LatentSpec: ...

    def rollout(
        self,
        context: Float[Tensor, "B N *Z"],
        past_blocks: Float[Tensor, "B N-1 A"],
        plan: Float[Tensor, "B H A"],
    ) -> Float[Tensor, "B H *Z"]:
        """Latents, the blocks between them, and the blocks to try -> the latents that those lead to."""
        ...

    def distance(self, latents: Float[Tensor, "B H *Z"], goal: Float[Tensor, "B *Z"]) -> Float[Tensor, "B H"]:
        """How far each latent is from the goal, in the family's own measure."""
        ...


def capability(dynamics: object, name: str) -> Callable[..., Any] | None:
    """What a world offers under this name, if it does."""
    return getattr(dynamics, name, None)


def predictor_calls(dynamics: object, horizon: int) -> int:
    """One after another, of a rollout of so many blocks: one a block, unless the world says otherwise."""
    count = capability(dynamics, "predictor_calls")
    return horizon if count is None else int(count(horizon))


def compiled_region(function: Callable[..., Any], options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Compiled for tensors of one shape."""
    return torch.compile(function, dynamic=False, options=options)  # pyright: ignore[reportUnknownMemberType]


def imagination(dynamics: Dynamics, problem: PlanProblem) -> Imagine:
    """The world model as a function of the plan alone: where it leads, and how far from the goal that is."""
    prepare = capability(dynamics, "prepare")
    if prepare is not None:
        rollout = prepare(problem.context, problem.past_blocks)
    else:

        def rollout(plan: Tensor) -> Tensor:
            return dynamics.rollout(problem.context, problem.past_blocks, plan)

    def imagine(plan: Tensor) -> tuple[Tensor, Tensor]:
        latents = rollout(plan)
        return latents, dynamics.distance(latents, problem.goal)

    return imagine


def pairwise_distance(
    dynamics: Dynamics, latents: Float[Tensor, "B H *Z"], others: Float[Tensor, "B H *Z"]
) -> Float[Tensor, "B H"]:
    """Each latent from the one at its own place."""
    return dynamics.distance(latents.flatten(0, 1).unsqueeze(1), others.flatten(0, 1)).view(latents.shape[:2])


def mean_squared_distance(latents: Float[Tensor, "B H *Z"], goal: Float[Tensor, "B *Z"]) -> Float[Tensor, "B H"]:
    """d_j = |z_j - z_G|^2 / D, the paper's."""
    return (latents - goal.unsqueeze(1)).float().square().flatten(2).mean(dim=-1)
