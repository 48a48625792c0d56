"""TD-MPC2's own planner: MPPI over a world that learned rewards, values and a policy, which proposes some of the
plans."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..control.methods import GREEN, NO, YES, Method, MethodInputs, PolicyFor, Properties
from ..control.policy import Array, Request
from ..core.dynamics import Dynamics, capability
from ..core.problem import PlanProblem
from ..planner.model import LePlanner

NEEDS = ("plan_return", "propose_plan")


@dataclass(frozen=True)
class MPPIConfig:
    """The authors' settings. Standard deviations are in units of the action box, [-1, 1]."""

    horizon: int = 3  # blocks
    iterations: int = 6
    samples: int = 512
    proposals: int = 24  # of the samples, by the policy
    elites: int = 64
    temperature: float = 0.5
    min_std: float = 0.05
    max_std: float = 2.0


class TDMPC2Policy:
    """One problem after another, each with its own seed: a plan depends on nothing but its problem and that seed."""

    name, stride = "tdmpc2", None

    def __init__(self, dynamics: Dynamics, model: LePlanner, config: MPPIConfig | None = None):
        """`model`: the planner that is compared with; its context and actions are the policy's, too."""
        plan_return, propose_plan = (capability(dynamics, name) for name in NEEDS)
        if plan_return is None or propose_plan is None:
            raise ValueError(_missing(dynamics))
        self.plan_return, self.propose_plan = plan_return, propose_plan
        self.actions, self.frames = model.actions, model.context
        self.config, self.transitions, self.calls = config or MPPIConfig(), 0, 0

    def decide(self, request: Request) -> Array:
        return self.actions.raw_actions(self.plan(request.problem, request.seeds, request.remaining_plan))

    @torch.no_grad()
    def plan(self, problem: PlanProblem, seeds: tuple[int, ...], remaining_plan: Tensor | None = None) -> Tensor:
        """Standardized blocks (B, H, A). The search begins at what is left of the last plan (B, t, A)."""
        plans = [
            self._plan_one(problem[row : row + 1], seed, remaining_plan[row] if remaining_plan is not None else None)
            for row, seed in enumerate(seeds)
        ]
        return torch.stack(plans)

    def _plan_one(self, problem: PlanProblem, seed: int, remaining_plan: Tensor | None) -> Tensor:
        config, goal = self.config, problem.goal
        center, scale = self.actions.center.to(goal), self.actions.scale.to(goal)
        generator = torch.Generator().manual_seed(seed)
        shape = (config.horizon, self.actions.block_dim)

        def noise(count: int) -> Tensor:
            return torch.randn(count, *shape, generator=generator).to(goal)

        # the policy's own plans stand among the candidates of every iteration
        proposed = self.propose_plan(*_repeated(problem, config.proposals), noise(config.proposals))
        proposed = (proposed - center) / scale
        self.transitions += config.proposals * config.horizon
        self.calls += config.horizon

        mean, std = goal.new_zeros(shape), goal.new_full(shape, config.max_std)
        if remaining_plan is not None:
            known = remaining_plan[: config.horizon]
            mean[: len(known)] = (known - center) / scale

        context, past_blocks, goals = _repeated(problem, config.samples)
        for _ in range(config.iterations):
            sampled = (mean + std * noise(config.samples - config.proposals)).clamp(-1, 1)
            candidates = torch.cat([proposed, sampled])
            returns = self.plan_return(context, past_blocks, center + scale * candidates, goals)
            self.transitions += config.samples * config.horizon
            self.calls += config.horizon
            best = returns.topk(config.elites)
            elites = candidates[best.indices]
            weights = (config.temperature * best.values).softmax(dim=0).view(-1, 1, 1)
            mean = (weights * elites).sum(dim=0)
            std = (weights * (elites - mean).square()).sum(dim=0).sqrt().clamp(config.min_std, config.max_std)

        chosen = torch.multinomial(weights.flatten().cpu(), 1, generator=generator)
        return center + scale * elites[int(chosen)]


def _repeated(problem: PlanProblem, count: int) -> tuple[Tensor, Tensor, Tensor]:
    parts = (problem.context, problem.past_blocks, problem.goal)
    context, past_blocks, goal = (part.expand(count, *part.shape[1:]) for part in parts)
    return context, past_blocks, goal


def _missing(dynamics: Dynamics) -> str:
    spec = getattr(dynamics, "spec", None)
    family = f"the family {spec.family!r}" if spec is not None else type(dynamics).__name__
    return (
        f"The method tdmpc2 plans by rewards, values and a policy that a world learned ({', '.join(NEEDS)}); {family} "
        "has none. Train a world that has them (leplanner world train TASK --family tdmpc2), or choose a search: "
        "--methods cem."
    )


def _make(inputs: MethodInputs) -> PolicyFor:
    policy = TDMPC2Policy(inputs.planner.dynamics, inputs.planner.model)
    return lambda trial: policy


# As the paper's table has it, though MPPI tries many plans before it acts.
_PROPERTIES = Properties("TD-MPC2", YES, YES, YES, YES, NO, YES)

METHOD = Method("tdmpc2", "TD-MPC2", "learned", _make, GREEN, _PROPERTIES, replan=1, needs=NEEDS)
