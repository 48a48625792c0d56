"""Search over the same world with the same context: stable-worldmodel's CEM, iCEM, MPPI and gradient solvers."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..control.policy import Array, Request, RowCounter, raw_actions
from ..planner.actions import ActionBox
from ..planner.problem import LatentDynamics, PlanProblem, goal_distances
from ..tasks.swm_runtime import import_swm

SEARCHES = ("cem", "icem", "mppi", "gradient")


@dataclass(frozen=True)
class SearchBudget:
    """Defaults are the published ones: 300 candidates, 30 rounds, 30 elites."""

    samples: int = 300
    rounds: int = 30
    elites: int = 30
    horizon: int = 5  # H, blocks
    learning_rate: float = 0.1  # of the gradient solver's Adam

    def __post_init__(self) -> None:
        if not 2 <= self.elites <= self.samples or self.rounds < 1:  # the spread of one elite is not a number
            raise ValueError(
                f"A search needs at least one round and two elites among its samples; got {self.rounds} rounds, {self.elites} "
                f"elites of {self.samples} samples. Use at least 20 samples."
            )


class SearchPolicy:
    """One problem after another, each with its own seed: a plan depends on nothing but its problem and that seed.

    Solvers see a cost of standardised plans; candidates outside the environment's box count as if clipped, as they
    would be executed.
    """

    stride = None

    def __init__(self, kind: str, dynamics: LatentDynamics, box: ActionBox, context: int, budget: SearchBudget):
        if kind not in SEARCHES:
            raise ValueError(f"Unknown search {kind!r}; known: {', '.join(SEARCHES)}.")
        self.name, self.box, self.frames, self.budget = kind, box, context, budget
        self.counter = RowCounter(dynamics)
        self.cost = _Cost(self.counter, box)
        self.solver = _make_solver(kind, self.cost, budget)
        low, high = (box.center - box.scale).numpy(), (box.center + box.scale).numpy()
        gym = _gymnasium()
        # per action, standardised; a leading axis for the environments, as swm's vector environments have
        size = len(box.mean)
        space = gym.spaces.Box(low[None, :size], high[None, :size], dtype=low.dtype)
        config = SimpleNamespace(horizon=budget.horizon, action_block=box.block)
        self.solver.configure(action_space=space, n_envs=1, config=config)

    @property
    def rows(self) -> int:
        return self.counter.rows

    def decide(self, request: Request) -> Array:
        return raw_actions(self.plan(request.problem, request.seeds, request.rest), self.box)

    def plan(self, problem: PlanProblem, seeds: tuple[int, ...], rest: Tensor | None = None) -> Tensor:
        """Standardised blocks (B, H, A). `rest`: what is left of the last plan (B, t, A), where the search begins, as
        stable-worldmodel's own policy does by default."""
        plans = []
        for row, seed in enumerate(seeds):
            self.solver.torch_gen.manual_seed(seed)
            info = {
                "context": problem.context[row : row + 1],
                "past_blocks": problem.past_blocks[row : row + 1],
                "goal": problem.goal[row : row + 1],
            }
            with contextlib.redirect_stdout(io.StringIO()):  # they print on every solve
                begin = rest[row : row + 1].cpu() if rest is not None else None
                plans.append(self.solver.solve(info, begin)["actions"])
        return _clip(torch.cat(plans).float(), self.box)


class _Cost:
    """swm's `Costable`: distance of the last imagined latent to the goal."""

    def __init__(self, dynamics: LatentDynamics, box: ActionBox):
        self.dynamics, self.box = dynamics, box

    def get_cost(self, info: dict[str, Tensor], candidates: Tensor) -> Tensor:
        batch, samples = candidates.shape[:2]
        context, past, goal = (
            info[name].expand(batch, samples, *info[name].shape[2:]).flatten(0, 1).float()
            for name in ("context", "past_blocks", "goal")
        )
        plans = _clip(candidates.flatten(0, 1).float(), self.box)
        latents = self.dynamics.rollout(context, past, plans)
        return goal_distances(latents[:, -1:], goal).view(batch, samples)

    criterion = get_cost


def _clip(blocks: Tensor, box: ActionBox) -> Tensor:
    return torch.minimum(torch.maximum(blocks, box.center - box.scale), box.center + box.scale)


def _make_solver(kind: str, cost: Any, budget: SearchBudget) -> Any:
    swm = import_swm()
    common = {"model": cost, "batch_size": 1, "n_steps": budget.rounds}
    sampling = common | {"num_samples": budget.samples, "topk": budget.elites}
    if kind == "gradient":
        optimizer = {"optimizer_cls": torch.optim.Adam, "optimizer_kwargs": {"lr": budget.learning_rate}}
        return swm.solver.GradientSolver(**common, num_samples=1, **optimizer)
    return {"cem": swm.solver.CEMSolver, "icem": swm.solver.ICEMSolver, "mppi": swm.solver.MPPISolver}[kind](**sampling)


def _gymnasium() -> Any:
    import gymnasium

    return gymnasium
