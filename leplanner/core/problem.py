"""What a planner is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


def _described(tensors: PlanProblem | Plan) -> str:
    """Shapes instead of numbers: nobody reads a thousand of them."""
    parts = ", ".join(f"{name}={tuple(tensor.shape)}" for name, tensor in vars(tensors).items())
    return f"{type(tensors).__name__}({parts})"


@dataclass(frozen=True)
class PlanProblem:
    context: Float[Tensor, "B N *Z"]  # the last N latents, oldest first
    past_blocks: Float[Tensor, "B N-1 A"]  # the blocks between them, standardized
    goal: Float[Tensor, "B *Z"]

    def __repr__(self) -> str:
        return _described(self)

    def __len__(self) -> int:
        return len(self.goal)

    def __getitem__(self, rows: slice | Tensor) -> PlanProblem:
        return PlanProblem(self.context[rows], self.past_blocks[rows], self.goal[rows])

    @staticmethod
    def cat(problems: list[PlanProblem]) -> PlanProblem:
        parts = zip(*((p.context, p.past_blocks, p.goal) for p in problems), strict=True)
        return PlanProblem(*(torch.cat(part) for part in parts))


@dataclass(frozen=True)
class Plan:
    blocks: Float[Tensor, "B H A"]  # standardized; the first leaves the current frame
    latents: Float[Tensor, "B H *Z"]  # where the world model imagines they lead
    distances: Float[Tensor, "B H"]  # of each to the goal, in the world's own measure

    def __repr__(self) -> str:
        return _described(self)


@dataclass(frozen=True)
class PlanTrace:
    """The draft and every refinement of it."""

    plans: tuple[Plan, ...]  # K+1

    @property
    def final(self) -> Plan:
        return self.plans[-1]
