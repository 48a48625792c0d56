"""Receding-horizon control: keeps the history, asks for a decision when one is due, hands out one action a step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.actions import Array
from ..core.problem import PlanProblem
from ..data.context import fill_context
from ..data.episodes import Episodes, read_frames
from ..worlds.base import World
from .images import read_pictures
from .policy import Policy, Request, imagined_distance


@dataclass(frozen=True)
class DatasetRow:
    """A goal that is a frame of a dataset."""

    episodes: Episodes
    row: int


Goal = Any  # picture(s) as `read_pictures` takes them, latent(s) as tensors, or a DatasetRow


@dataclass(frozen=True)
class Decision:
    """What one decision cost."""

    encode_ms: float  # frames encoded since the last decision
    plan_ms: float
    transitions: int  # of the predictor
    imagined: (
        float | None
    )  # where its plan ends in imagination, by one scorer for all; None if not asked for, or no plan
    score_ms: float = 0.0  # of that scorer: no part of the decision


class Controller:
    """Drives one robot, or many in step: everything here has a batch of one or more."""

    def __init__(
        self,
        policy: Policy,
        world: World,
        execute: int = 1,
        budget: int | None = None,
        seed: int = 0,
        score: bool = False,
        encode: Callable[[Array], Tensor] | None = None,
        resize: bool = False,
    ):
        """Replan after `execute` blocks. `budget`: the deadline in actions, for policies that want to know it. `score`:
        look where each plan ends in imagination, for comparisons; it costs another rollout. `encode`: a faster way to
        the world's own latents, such as a planner's engine. `resize`: square pictures of another size are resized."""
        if execute < 1:
            raise ValueError(f"execute must be at least one block; got {execute}.")
        self.policy, self.world, self.execute, self.budget = policy, world, execute, budget
        self.seed, self.score, self.resize = seed, score, resize
        self.encode = encode or world.encode
        self.actions = world.spec.actions
        self.block = self.actions.block
        self.goal: Tensor | None = None

    def __repr__(self) -> str:
        if self.goal is None:
            return f"<Controller by {self.policy.name}: no goal yet>"
        return (
            f"<Controller by {self.policy.name}: {self.batch} at step {self.step}, {self.decided} decisions, replans "
            f"after {self.execute} blocks of {self.block} actions>"
        )

    def reset(
        self,
        goal: Goal,
        history: tuple[Array, Array] | None = None,
        seeds: Sequence[int] | None = None,
    ) -> None:
        """Start towards a goal. Before N frames exist, the first one is repeated with raw zero actions,
        unless `history` gives real ones: frames (n, S, S, 3) a block apart, oldest first, and the raw
        actions after each (n, f, d_a)."""
        self.goal, self.single = self._goal_latent(goal)
        self.batch = len(self.goal)
        self.seeds = tuple(seeds) if seeds is not None else tuple(self.seed + row for row in range(self.batch))
        if len(self.seeds) != self.batch:
            raise ValueError(f"One seed a row is needed: {self.batch} goals, {len(self.seeds)} seeds.")
        self.step = self.decided = 0
        self.queue: list[Array] = []  # actions (B, d_a) still to execute
        self.latents: dict[int, Tensor] = {}  # by block number; the start is 0, real history lies before
        self.executed: list[Array] = []  # actions (B, d_a)
        self.past: dict[int, Tensor] = {}  # standardized block (B, A) leaving a frame, by block number
        self.decisions: deque[Decision] = deque(maxlen=1000)
        self.remaining_plan: Tensor | None = None  # planned and not executed
        self._encode_ms = 0.0
        if history is not None:
            frames, actions = history
            for i in range(len(frames)):
                number = i - len(frames)
                latent = self._encode(np.asarray(frames[i])[None])
                self.latents[number] = latent.expand(self.batch, *latent.shape[1:])
                block = torch.as_tensor(self.actions.blocks(np.asarray(actions[i])[None])[:, 0])
                self.past[number] = block.to(self.world.device).expand(self.batch, -1)
            self._encode_ms = 0.0  # not a cost of acting

    @property
    def needs_frame(self) -> bool:
        """Whether `act` will look at a frame now: when a decision is due, or needs this one as context later."""
        if self.policy.frames == 0:
            return False
        if self._decision_due():
            return True
        if self.policy.stride is not None or self.step % self.block:
            return False
        until_next = len(self.queue) // self.block
        return until_next < self.policy.frames

    def act(self, frame: Any = None) -> Array:
        """A picture in, raw action (d_a,) out; with a batch of goals a batch of pictures in, (B, d_a) out. Pictures are
        uint8 (S, S, 3), or what `read_pictures` makes that of. A frame may be left out when `needs_frame` is false:
        rendering or reading a camera can be saved."""
        if self.goal is None:
            raise ValueError("act() before a goal is known: call reset(goal) first.")
        if self.needs_frame:
            if frame is None:
                raise ValueError("A frame is needed for this step (controller.needs_frame); pass one to act().")
            self.latents[self.step // self.block] = self._encode(self._batched(frame))
        if self._decision_due():
            self._decide()
        action = self.queue.pop(0)
        self._record(action)
        self.step += 1
        return np.array(action[0] if self.single else action)  # the caller's to change; the past is ours

    def _decision_due(self) -> bool:
        return not self.queue

    def _decide(self) -> None:
        assert self.goal is not None
        remaining = self.budget - self.step if self.budget is not None else None
        seeds = tuple(int(np.random.SeedSequence([seed, self.decided]).generate_state(1)[0]) for seed in self.seeds)
        problem = self._problem()
        before, began = self.policy.transitions, time.perf_counter()
        actions = self.policy.decide(Request(problem, remaining, self.remaining_plan, seeds))
        plan_ms = 1e3 * (time.perf_counter() - began)
        keep = self.policy.stride or self.execute * self.block
        if actions.shape[:2] != (self.batch, max(keep, actions.shape[1])) or not np.isfinite(actions).all():
            raise ValueError(
                f"{self.policy.name} returned actions of shape {actions.shape}, finite: "
                f"{bool(np.isfinite(actions).all())}; {self.batch} rows of at least {keep} finite actions are needed. "
                "Execute fewer blocks, or plan farther."
            )
        self.queue = [actions[:, i] for i in range(keep)]
        transitions = (self.policy.transitions - before) // self.batch
        imagined, began = None, time.perf_counter()
        if self.policy.stride is None and self.policy.frames:
            blocks = self._standardized(actions)
            imagined = imagined_distance(self.world, problem, blocks).mean().item() if self.score else None
            self.remaining_plan = blocks[:, self.execute :] if blocks.shape[1] > self.execute else None
        score_ms = 1e3 * (time.perf_counter() - began)
        self.decisions.append(Decision(self._encode_ms, plan_ms, transitions, imagined, score_ms))
        self._encode_ms, self.decided = 0.0, self.decided + 1
        for known in (self.latents, self.past):  # a loop may run for days
            for number in [n for n in known if n <= self.step // self.block - self.world.spec.context]:
                del known[number]

    def _problem(self) -> PlanProblem:
        """The context of the current block: real as far as it is known, padded before."""
        assert self.goal is not None
        n, now = self.world.spec.context, self.step // self.block
        first = max(min(self.latents, default=now), now - n + 1)
        if not self.latents:  # nothing was looked at
            frames, blocks = [torch.zeros_like(self.goal)], []
        else:
            frames = [self._latest(number) for number in range(first, now + 1)]
            blocks = [self.past[number] for number in range(first, now)]
        context, past = fill_context(frames, blocks, n, self.actions)
        return PlanProblem(context, past, self.goal)

    def _latest(self, number: int) -> Tensor:
        """The frame of that block; a policy that looks rarely gets the last one before it."""
        return self.latents[max(known for known in self.latents if known <= number)]

    def _record(self, action: Array) -> None:
        self.executed.append(action)
        if len(self.executed) == self.block:
            self.past[self.step // self.block] = self._standardized(np.stack(self.executed, axis=1))[:, 0]
            self.executed = []

    def _standardized(self, actions: Array) -> Tensor:
        """Raw (B, T * f, d_a) -> standardized blocks (B, T, A)."""
        return torch.as_tensor(self.actions.blocks(actions)).to(self.world.device)

    def _encode(self, frames: Array) -> Tensor:
        began = time.perf_counter()
        latents = self.encode(frames)
        if not latents.isfinite().all():
            raise ValueError("The world encodes this frame to NaN or infinity; check the camera and the weights.")
        self._encode_ms += 1e3 * (time.perf_counter() - began)
        return latents

    def _batched(self, frame: Any) -> Array:
        frames, _ = self._pictures(frame)
        if len(frames) != self.batch:
            raise ValueError(f"{self.batch} goals were given to reset(), {len(frames)} frames to act(): give one each.")
        return frames

    def _pictures(self, value: Any) -> tuple[Array, bool]:
        spec = self.world.spec
        return read_pictures(value, spec.frame_size, self.resize, spec.resampling)

    def _goal_latent(self, goal: Goal) -> tuple[Tensor, bool]:
        """(B, *Z), and whether one goal was given rather than a batch."""
        if isinstance(goal, DatasetRow):
            return self.encode(read_frames(self.world.spec.sized(goal.episodes), np.array([goal.row]))), True
        if isinstance(goal, Tensor) and self._is_latent(goal):
            latents = torch.as_tensor(goal, dtype=torch.float32, device=self.world.device).clone()
            if not latents.isfinite().all():
                raise ValueError("A goal latent holds NaN or infinity; check the frame that it came from.")
            single = latents.ndim == len(self.world.latent.shape)
            return latents.unsqueeze(0) if single else latents, single
        frames, single = self._pictures(goal)
        return self.encode(frames), single

    def _is_latent(self, goal: Tensor) -> bool:
        shape = self.world.latent.shape
        if tuple(goal.shape) in (shape, (len(goal) if goal.ndim else 0, *shape)):
            return True
        if goal.ndim < 3:  # no picture either
            raise ValueError(
                f"A goal latent must have the shape {shape} or (B, {', '.join(map(str, shape))}); got "
                f"{tuple(goal.shape)}."
            )
        return False
