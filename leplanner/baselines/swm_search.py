"""Search over the same world with the same context: stable-worldmodel's CEM, iCEM, MPPI and gradient solvers."""

from __future__ import annotations

import contextlib
import io
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..control.methods import SearchBudget
from ..control.policy import Array, Request, TransitionCounter
from ..core.actions import ActionSpec
from ..core.dynamics import Dynamics, predictor_calls
from ..core.problem import PlanProblem
from ..planner.fast import fast_dynamics
from ..planner.model import LePlanner
from ..tasks.swm_runtime import make_swm_solver

LEARNING_RATE = 0.1  # of the gradient solver's Adam
MPPI_TEMPERATURE = 0.5  # stable-worldmodel's, for squared errors summed over a latent


class SearchPolicy:
    """One problem after another, each with its own seed: a plan depends on nothing but its problem and that seed.

    Solvers see a cost of standardized plans; candidates outside the environment's box count as if clipped, as they
    would be executed.
    """

    stride = None

    def __init__(self, kind: str, dynamics: Dynamics, model: LePlanner, budget: SearchBudget):
        """`model`: the planner that is compared with; its context, horizon and actions are the search's, too."""
        actions = self.actions = model.actions
        self.name, self.frames = kind, model.context
        self.counter = TransitionCounter(fast_dynamics(dynamics) if budget.compiled else dynamics)
        self.calls_per_rollout = predictor_calls(dynamics, model.config.horizon)
        self.cost = _Cost(self.counter, actions)
        self.solver = _make_solver(kind, self.cost, budget, dynamics.latent.size)
        low, high = (actions.center - actions.scale).numpy(), (actions.center + actions.scale).numpy()
        gym = _gymnasium()
        # per action, standardized; a leading axis for the environments, as swm's vector environments have
        space = gym.spaces.Box(low[None, : actions.dim], high[None, : actions.dim], dtype=low.dtype)
        config = SimpleNamespace(horizon=model.config.horizon, action_block=actions.block)
        self.solver.configure(action_space=space, n_envs=1, config=config)

    @property
    def transitions(self) -> int:
        return self.counter.transitions

    @property
    def calls(self) -> int:
        return self.counter.rollouts * self.calls_per_rollout

    def decide(self, request: Request) -> Array:
        return self.actions.raw_actions(self.plan(request.problem, request.seeds, request.remaining_plan))

    def plan(self, problem: PlanProblem, seeds: tuple[int, ...], remaining_plan: Tensor | None = None) -> Tensor:
        """Standardized blocks (B, H, A). `remaining_plan`: what is left of the last plan (B, t, A), where the search
        begins, as stable-worldmodel's own policy does by default."""
        plans = []
        for row, seed in enumerate(seeds):
            self.solver.torch_gen.manual_seed(seed)
            info = {
                "context": problem.context[row : row + 1],
                "past_blocks": problem.past_blocks[row : row + 1],
                "goal": problem.goal[row : row + 1],
            }
            with contextlib.redirect_stdout(io.StringIO()):  # they print on every solve
                begin = remaining_plan[row : row + 1].cpu() if remaining_plan is not None else None
                plans.append(self.solver.solve(info, begin)["actions"])
        return _clip(torch.cat(plans).float(), self.actions)


class _Cost:
    """swm's `Costable`: distance of the last imagined latent to the goal."""

    def __init__(self, dynamics: Dynamics, actions: ActionSpec):
        self.dynamics, self.actions = dynamics, actions

    def get_cost(self, info: dict[str, Tensor], candidates: Tensor) -> Tensor:
        batch, samples = candidates.shape[:2]
        context, past, goal = (
            info[name].expand(batch, samples, *info[name].shape[2:]).flatten(0, 1).float()
            for name in ("context", "past_blocks", "goal")
        )
        plans = _clip(candidates.flatten(0, 1).float(), self.actions)
        latents = self.dynamics.rollout(context, past, plans)
        return self.dynamics.distance(latents[:, -1:], goal).view(batch, samples)

    criterion = get_cost


def _clip(blocks: Tensor, actions: ActionSpec) -> Tensor:
    low, high = actions.center - actions.scale, actions.center + actions.scale
    return torch.minimum(torch.maximum(blocks, low), high)


def _make_solver(kind: str, cost: Any, budget: SearchBudget, latent_size: int) -> Any:
    common: dict[str, Any] = {"batch_size": 1, "n_steps": budget.rounds}
    if kind == "gradient":
        optimizer = {"optimizer_cls": torch.optim.Adam, "optimizer_kwargs": {"lr": LEARNING_RATE}}
        return make_swm_solver("GradientSolver", cost, **common, num_samples=1, **optimizer)
    name = {"cem": "CEMSolver", "icem": "ICEMSolver", "mppi": "MPPISolver"}[kind]
    if kind == "mppi":  # weighs plans by their costs, which swm's worlds sum over a latent; distances here are means
        common["temperature"] = MPPI_TEMPERATURE / latent_size
    return make_swm_solver(name, cost, **common, num_samples=budget.samples, topk=budget.elites)


def _gymnasium() -> Any:
    import gymnasium

    return gymnasium
