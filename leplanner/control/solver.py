"""A drop-in for the solver of stable-worldmodel's `WorldModelPolicy`: the same protocol, our planner behind it.

    solver = lp.Solver(planner)
    config = PlanConfig(horizon=5, receding_horizon=1, action_block=5)
    policy = WorldModelPolicy(solver=solver, config=config, process=solver.process)

As every solver there it plans in standardized units; `process` turns actions into the environment's own. Nothing of
stable-worldmodel is imported here: its protocol is a handful of methods and a dictionary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.actions import ActionSpec, Array
from ..core.problem import Plan, PlanProblem
from ..data.context import fill_context
from ..planner.planner import Planner
from .policy import select_better_plan


@dataclass
class _Memory:
    """What one environment has shown and done since its reset."""

    step: int = -1
    latents: list[Tensor] = field(default_factory=list[Tensor])  # (*Z,) a block apart, the last one current
    blocks: list[Tensor] = field(default_factory=list[Tensor])  # (A,) between them
    planned: Plan | None = None  # of which the first `receding_horizon` blocks were executed
    row: int = 0  # its place in that plan


class ActionProcess:
    """stable-worldmodel's `Transformable`: raw actions to standardized ones and back, with
    the world's own statistics."""

    def __init__(self, actions: ActionSpec):
        self.mean, self.std, self.low, self.high = (
            np.array(values, np.float32) for values in (actions.mean, actions.std, actions.low, actions.high)
        )

    def transform(self, actions: Any) -> Any:
        return (actions - self.mean) / self.std

    def inverse_transform(self, actions: Any) -> Any:
        raw: Array = np.asarray(actions) * self.std + self.mean
        return raw.clip(self.low, self.high)


class Solver:
    """Frames in, standardized action blocks out. Keeps each environment's history itself: release 0.1.1 accepts
    `history_len` and ignores it. Between two plans further apart than one block no frame is shown to a solver, and what
    was imagined stands in for it; unless the policy supplies a history, as the main branch does with `history_len`."""

    def __init__(self, planner: Planner, reuse: bool = True):
        """`reuse`: follow what remains of an environment's last plan where that is imagined to end nearer the goal than
        the new one, as a planner's own controller does; False is the paper's."""
        self.planner, self.reuse = planner, reuse
        self.process = {"action": ActionProcess(planner.model.actions)}
        self.memories: dict[int, _Memory] = {}

    def configure(self, *, action_space: Any, n_envs: int, config: Any) -> None:
        model, spec = self.planner.model.config, self.planner.world.spec
        expected = {"horizon": model.horizon, "action_block": spec.actions.block}
        actual = {name: getattr(config, name) for name in expected}
        if actual != expected:
            raise ValueError(
                f"This planner was trained for {expected}, but the PlanConfig says {actual}. Use the planner's values."
            )
        size = math.prod(action_space.shape[1:])
        if size != spec.actions.dim:
            raise ValueError(
                f"The environment has {size} action dimensions, the planner's task {spec.task} {spec.actions.dim}."
            )
        self._n_envs, self._config = n_envs, config
        self.memories = {}

    @property
    def action_dim(self) -> int:
        return self.planner.model.actions.block_dim

    @property
    def n_envs(self) -> int:
        return self._n_envs

    @property
    def horizon(self) -> int:
        return self.planner.model.config.horizon

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.solve(*args, **kwargs)

    def solve(self, info_dict: dict[str, Any], init_action: Tensor | None = None) -> dict[str, Any]:
        """`pixels` and `goal` of the environments that need a plan; `id` and `step_idx` say whose they are. A warm
        start is accepted and not needed: what is left of the last plan is known here."""
        missing = [name for name in ("pixels", "goal") if name not in info_dict]
        if missing:
            raise ValueError(
                f"The solver needs 'pixels' and 'goal' images; {', '.join(missing)} not in {sorted(info_dict)}."
            )
        now = self._encode(info_dict["pixels"])
        goal = self._encode(info_dict["goal"])
        memories = [self._memory(info_dict, row) for row in range(len(now))]
        for row, memory in enumerate(memories):
            self._look(memory, now[row])
        if "action_history" in info_dict:
            self._recall(memories, info_dict["pixels"], torch.as_tensor(info_dict["action_history"]))
        context, past = zip(*(self._context(memory) for memory in memories), strict=True)
        problem = PlanProblem(torch.cat(context), torch.cat(past), goal)
        plan = self.planner.plan(problem)
        if self.reuse:
            plan = self._better(memories, problem, plan)
        for row, memory in enumerate(memories):
            memory.planned, memory.row = plan, row
        return {"actions": plan.blocks.cpu(), "costs": [float(cost) for cost in plan.distances[:, -1]]}

    def _memory(self, info: dict[str, Any], row: int) -> _Memory:
        """Of this environment and episode. Without `id` and `step_idx` nothing can be recording."""
        if "id" not in info or "step_idx" not in info:
            return _Memory()
        name, step = (int(np.ravel(info[key][row])[-1]) for key in ("id", "step_idx"))
        memory = self.memories.pop(name, None)
        # World.evaluate(dataset=...) shows the dataset's step first, then the environment's, which began at 0
        planned_once = memory is not None and len(memory.latents) == 1
        second = planned_once and step == self._config.receding_horizon * self._config.action_block
        if memory is None or (step <= memory.step and not second):  # a new episode
            memory = _Memory()
        self.memories[name] = memory  # the last used stands last
        for old in list(self.memories)[: -4 * max(1, self._n_envs)]:  # episodes that are long over
            del self.memories[old]
        memory.step = step
        return memory

    def _look(self, memory: _Memory, latent: Tensor) -> None:
        if memory.planned is not None:
            executed = self._config.receding_horizon
            imagined, blocks = memory.planned.latents[memory.row], memory.planned.blocks[memory.row]
            memory.latents += list(imagined[: executed - 1])
            memory.blocks += list(blocks[:executed])
        memory.latents.append(latent)
        n = self.planner.model.context
        memory.latents = memory.latents[-n:]
        memory.blocks = memory.blocks[len(memory.blocks) - len(memory.latents) + 1 :]

    def _recall(self, memories: list[_Memory], frames: Any, blocks: Tensor) -> None:
        """Frames (B, n, ...) and the standardized blocks between them (B, n-1, A), as the policy recorded them. It pads
        those of a younger episode in front; the step says how many are real."""
        n = min(frames.shape[1], self.planner.model.context)
        latents = torch.stack([self._encode(frames[:, place - n]) for place in range(n)], dim=1)
        for row, memory in enumerate(memories):
            real = min(n, memory.step // self._config.action_block + 1) if memory.step >= 0 else n
            memory.latents = list(latents[row, n - real :])
            memory.blocks = list(blocks[row, blocks.shape[1] - real + 1 :].to(latents))

    def _better(self, memories: list[_Memory], problem: PlanProblem, new: Plan) -> Plan:
        """Of every environment the new plan, or what remains of its last one; without one, the new
        plan is compared with itself."""
        if all(memory.planned is None for memory in memories):
            return new
        executed = self._config.receding_horizon
        if executed >= self.horizon:
            return new
        remaining = [
            new.blocks[row, : self.horizon - executed] if m.planned is None else m.planned.blocks[m.row, executed:]
            for row, m in enumerate(memories)
        ]
        return select_better_plan(self.planner, problem, new, torch.stack(remaining))

    def _context(self, memory: _Memory) -> tuple[Tensor, Tensor]:
        """(1, N, *Z), (1, N-1, A): padded at an episode's start as in training."""
        latents, blocks = ([part.unsqueeze(0) for part in parts] for parts in (memory.latents, memory.blocks))
        return fill_context(latents, blocks, self.planner.model.context, self.planner.model.actions)

    def _encode(self, frames: Any) -> Tensor:
        """uint8 frames (B, [T,] S, S, 3) as the environment shows them, or floats (B, [T,] 3, S, S) already normalized
        as stable-worldmodel's transforms do; of several, the last."""
        frames = torch.as_tensor(np.asarray(frames)) if not isinstance(frames, Tensor) else frames
        frames = frames[:, -1] if frames.ndim == 5 else frames
        world, size = self.planner.world, self.planner.world.spec.frame_size
        if frames.dtype == torch.uint8:
            return self.planner.encode(frames)
        if not frames.is_floating_point() or tuple(frames.shape[1:]) != (3, size, size):
            raise ValueError(
                f"Frames must be uint8 (B, {size}, {size}, 3), or floats (B, 3, {size}, {size}) normalized with the "
                f"world's mean and deviation; got {frames.dtype} of shape {tuple(frames.shape)}."
            )
        with torch.no_grad():
            return world.model.encode(frames.to(world.device).float())
