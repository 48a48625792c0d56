"""How TD-MPC2 learns offline: goals in hindsight, a reward of 0 for arriving and -1 for every other block, and all
terms in one loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .layers import follow

if TYPE_CHECKING:
    from .model import TDMPC2


@dataclass(frozen=True)
class TDMPC2Objective:
    """The authors' weights, and where goals come from."""

    consistency_weight: float = 20.0
    """weight of predicting the next latents"""
    reward_weight: float = 0.1
    """weight of predicting rewards"""
    value_weight: float = 0.1
    """weight of the critics' error"""
    entropy_weight: float = 1e-4
    """weight of the policy's entropy within its loss"""
    rho: float = 0.5
    """how much less each further block of a window counts"""
    follow_rate: float = 0.01
    """of the target critics and of the running scale of values, a step"""
    other_goal_prob: float = 0.3
    """probability of a goal from another window, which the block does not reach"""
    current_goal_prob: float = 0.1
    """probability of the current frame as the goal; else one of the later frames of the window"""


def training_losses(
    model: TDMPC2,
    latents: Tensor,  # (B, T, D)
    blocks: Tensor,  # (B, T-1, A) in box units
    objective: TDMPC2Objective,
    generator: torch.Generator,
    gather: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    steps = blocks.shape[1]
    following = latents[:, 1:].detach()
    goals = draw_goals(latents, objective, generator)  # (B, T-1, D), each transition its own
    rewards = goal_rewards(following, goals.detach())
    weights = objective.rho ** torch.arange(steps, dtype=latents.dtype, device=latents.device)

    def discounted(errors: Tensor) -> Tensor:
        """(..., T-1) -> (), further blocks of a window counting less."""
        return (weights * errors).mean()

    imagined = model.imagine(latents[:, 0], blocks)
    current = torch.cat([latents[:, :1], imagined[:, :-1]], dim=1)
    consistency = discounted((imagined - following).square().mean(dim=-1))
    reward = discounted(model.two_hot.cross_entropy(model.reward_logits(current, blocks, goals), rewards))
    targets = value_targets(model, following, goals.detach(), rewards, generator)
    value = discounted(model.two_hot.cross_entropy(model.critic_logits(current, blocks, goals), targets))

    noise = standard_normal(blocks.shape, generator, blocks)
    actions, log_density = model.act(current.detach(), goals.detach(), noise)
    values = model.two_hot.decode(model.critic_logits(current.detach(), actions, goals.detach(), frozen=True))
    values = values[draw_pair(len(values), generator)].mean(dim=0)  # (B, T-1)
    if model.training:
        model.scale.update(gather(values[:, 0].detach()), objective.follow_rate)
    entropy = -log_density * blocks.shape[-1]
    policy = -discounted(objective.entropy_weight * entropy + model.scale(values))

    if model.training:
        follow(model.target_critics, model.critics, objective.follow_rate)
    loss = (
        objective.consistency_weight * consistency
        + objective.reward_weight * reward
        + objective.value_weight * value
        + policy
    )
    return {"loss": loss, "consistency": consistency, "reward": reward, "value": value, "policy": policy}


def draw_goals(latents: Tensor, objective: TDMPC2Objective, generator: torch.Generator) -> Tensor:
    """(B, T, D) -> (B, T-1, D): for each transition a later latent of its window, its own current one, or one of
    another window."""
    batch, frames = latents.shape[:2]
    size = (batch, frames - 1)
    row = torch.arange(batch).unsqueeze(1).expand(size)
    now = torch.arange(frames - 1)
    ahead = frames - 1 - now
    frame = now + 1 + (torch.rand(size, generator=generator) * ahead).long().clamp(max=ahead - 1)
    frame = torch.where(torch.rand(size, generator=generator) < objective.current_goal_prob, now, frame)
    if batch > 1:
        elsewhere = torch.rand(size, generator=generator) < objective.other_goal_prob
        other = (row + torch.randint(1, batch, size, generator=generator)) % batch
        row = torch.where(elsewhere, other, row)
        frame = torch.where(elsewhere, torch.randint(0, frames, size, generator=generator), frame)
    return latents[row.to(latents.device), frame.to(latents.device)]


def goal_rewards(following: Tensor, goals: Tensor) -> Tensor:
    """0 where the next latent is the goal, -1 elsewhere: (..., D) -> (...). Equal frames have equal latents, so that
    standing still at a goal is arriving, too."""
    return (following == goals).all(dim=-1).to(following.dtype) - 1


@torch.no_grad()
def value_targets(
    model: TDMPC2, following: Tensor, goals: Tensor, rewards: Tensor, generator: torch.Generator
) -> Tensor:
    """The reward and what the policy would get from there on. It ends at the goal, which it would not leave: all later
    rewards are 0."""
    noise = standard_normal((*rewards.shape, model.config.block_dim), generator, following)
    actions, _ = model.act(following, goals, noise)
    values = model.target_values(following, actions, goals, draw_pair(model.config.critics, generator))
    return rewards + model.config.discount * torch.where(rewards < 0, values, 0.0)


def draw_pair(count: int, generator: torch.Generator) -> list[int]:
    """Two critics of all."""
    first, second = torch.randperm(count, generator=generator)[:2]
    return [int(first), int(second)]


def standard_normal(shape: Sequence[int], generator: torch.Generator, like: Tensor) -> Tensor:
    """Drawn on the generator's device: the same numbers wherever training runs."""
    return torch.randn(*shape, generator=generator, dtype=torch.float32).to(like)
