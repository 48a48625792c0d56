"""TD-MPC2 with a goal: an encoder, latent dynamics over action blocks, and rewards, values and a policy towards a goal.

One step is one block. Networks see blocks in units of the environment's box, [-1, 1], as the policy's actions are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...core.dynamics import mean_squared_distance
from ..lewm.encoders import KeypointConfig, build_encoder
from ..lewm.model import Projector
from .layers import RunningScale, SimNorm, TwoHot, convolutions, initialize, last_linear, mlp, squashed_gaussian
from .objective import TDMPC2Objective, training_losses


@dataclass(frozen=True)
class CNNConfig:
    """stable-worldmodel's pixel encoder: convolutions without padding, and a linear map."""

    kind: ClassVar[str] = "cnn"
    resampling: ClassVar[str] = "bilinear"  # of frames of another size
    frame_size: int = 224
    channels: int = 32
    kernels: tuple[int, ...] = (7, 5, 3, 3)
    strides: tuple[int, ...] = (2, 2, 2, 1)


@dataclass(frozen=True)
class TDMPC2Config:
    """The network's sizes. Without a preset those of stable-worldmodel's TD-MPC2, at 224 px."""

    encoder: CNNConfig | KeypointConfig = field(default_factory=CNNConfig)
    projector: int = 512  # hidden numbers between a keypoint encoder and the latent
    block_dim: int = 10  # A: environment actions in a block times their size
    context: int = 1  # N: a latent holds what one frame shows
    latent: int = 128  # D
    group: int = 8  # numbers in a simplex of SimNorm
    mlp: int = 512
    critics: int = 5
    critic_dropout: float = 0.01
    bins: int = 101  # of rewards and values, over symlog in [-10, 10]
    discount: float = 0.95  # a block; the authors' 0.99 a step makes 0.951 of five
    disagreement: float = 0.5  # how much a plan's last value is lowered where critics disagree
    train_blocks: int = 5  # in a training window

    def __post_init__(self) -> None:
        if self.latent % self.group:
            raise ValueError(
                f"SimNorm divides a latent into groups of equal size; {self.latent} numbers are not groups of "
                f"{self.group}. Choose a multiple."
            )
        if self.context != 1:
            raise ValueError(f"TD-MPC2 starts from one frame; got a context of {self.context}.")
        if self.critics < 2 or self.train_blocks < 1:
            raise ValueError(
                "TD-MPC2 needs at least two critics, of which the lesser value counts, and a training window of at "
                f"least one block; got {self.critics} and {self.train_blocks}."
            )

    @property
    def latent_shape(self) -> tuple[int, ...]:
        return (self.latent,)

    @property
    def frame_size(self) -> int:
        return self.encoder.frame_size


class TDMPC2(nn.Module):
    box_center: Tensor
    box_scale: Tensor

    def __init__(self, config: TDMPC2Config):
        super().__init__()
        self.config, self.two_hot = config, TwoHot(config.bins)
        pair, block = 2 * config.latent, config.block_dim  # a latent beside its goal
        self.encoder, self.project = _encoder(config)
        self.sim_norm = SimNorm(config.group)
        self.dynamics = mlp(config.latent + block, config.mlp, config.latent, SimNorm(config.group))
        self.reward = mlp(pair + block, config.mlp, config.bins)
        self.policy = mlp(pair, config.mlp, 2 * block)
        self.critics = nn.ModuleList(
            [mlp(pair + block, config.mlp, config.bins, dropout=config.critic_dropout) for _ in range(config.critics)]
        )
        for head in (self.dynamics, self.reward, self.policy, *self.critics):
            initialize(head)
        for head in (self.reward, *self.critics):
            nn.init.zeros_(last_linear(head).weight)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.scale = RunningScale()
        self.register_buffer("box_center", torch.zeros(block), persistent=False)
        self.register_buffer("box_scale", torch.ones(block), persistent=False)

    def set_action_box(self, center: Tensor, scale: Tensor) -> None:
        """The environment's box in standardized blocks, (A,) each."""
        self.box_center.copy_(center)
        self.box_scale.copy_(scale)

    def train(self, mode: bool = True) -> TDMPC2:
        super().train(mode)
        self.target_critics.eval()  # a target without dropout
        return self

    def encode(self, frames: Tensor) -> Tensor:
        """Normalized frames (B, 3, S, S) -> latents (B, D)."""
        features = self.encoder(frames)
        with torch.autocast(frames.device.type, enabled=False):  # latents are compared by small differences
            return self.sim_norm(self.project(features.to(self.box_center.dtype)))

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        """(B, 1, D), (B, 0, A), (B, H, A) -> (B, H, D)."""
        return self.imagine(context[:, -1], self.to_box(plan))

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return mean_squared_distance(latents, goal)

    def encoder_parts(self) -> Mapping[str, nn.Module]:
        return {"encoder": self.encoder, "project": self.project}

    def losses(
        self,
        latents: Tensor,
        blocks: Tensor,
        objective: TDMPC2Objective,
        generator: torch.Generator,
        gather: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        with torch.autocast(latents.device.type, enabled=False):  # bf16 would round values to a 256th
            return training_losses(self, latents, self.to_box(blocks), objective, generator, gather)

    def plan_return(self, context: Tensor, past_blocks: Tensor, plan: Tensor, goal: Tensor) -> Tensor:
        """Discounted rewards of a plan and the value of where it ends: (B, 1, D), (B, 0, A), (B, H, A), (B, D) ->
        (B,). As in training, nothing counts after the goal is reached. The value is lowered where the critics
        disagree."""
        blocks = self.to_box(plan)
        latents = self.imagine(context[:, -1], blocks)
        before = torch.cat([context[:, -1:], latents[:, :-1]], dim=1)
        rewards = self.two_hot.decode(self.reward_logits(before, blocks, goal.unsqueeze(1).expand_as(before)))
        missed = (-rewards).clamp(0, 1).cumprod(dim=1)  # 0 from the block on that reaches the goal
        still_going = torch.cat([torch.ones_like(missed[:, :1]), missed], dim=1)
        discounts = self.config.discount ** torch.arange(plan.shape[1] + 1, dtype=plan.dtype, device=plan.device)
        weights = discounts * still_going
        last = latents[:, -1]
        means, _ = self.policy(torch.cat([last, goal], dim=-1)).chunk(2, dim=-1)
        values = self.two_hot.decode(self.critic_logits(last, means.tanh(), goal))  # (critics, B)
        mean = values.mean(dim=0)
        cautious = mean - self.config.disagreement * mean.abs() * values.std(dim=0)
        return (weights[:, :-1] * rewards).sum(dim=1) + weights[:, -1] * cautious

    def propose_plan(self, context: Tensor, past_blocks: Tensor, goal: Tensor, noise: Tensor) -> Tensor:
        """What the policy would do, imagined block after block; standard normal noise (B, H, A) -> plans (B, H, A)."""
        latent, blocks = context[:, -1], list[Tensor]()
        for step in noise.unbind(dim=1):
            block, _ = self.act(latent, goal, step)
            blocks.append(block)
            latent = self.dynamics(torch.cat([latent, block], dim=-1))
        return self.box_center + self.box_scale * torch.stack(blocks, dim=1)

    def to_box(self, blocks: Tensor) -> Tensor:
        return (blocks - self.box_center) / self.box_scale

    def imagine(self, latent: Tensor, blocks: Tensor) -> Tensor:
        """(B, D) and blocks in box units (B, H, A) -> the latents that they lead to (B, H, D)."""
        latents: list[Tensor] = []
        for block in blocks.unbind(dim=1):
            latent = self.dynamics(torch.cat([latent, block], dim=-1))
            latents.append(latent)
        return torch.stack(latents, dim=1)

    def act(self, latents: Tensor, goals: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The policy's blocks in box units, and their log density."""
        return squashed_gaussian(self.policy(torch.cat([latents, goals], dim=-1)), noise)

    def reward_logits(self, latents: Tensor, blocks: Tensor, goals: Tensor) -> Tensor:
        """(..., bins)"""
        return self.reward(torch.cat([latents, goals, blocks], dim=-1))

    def critic_logits(self, latents: Tensor, blocks: Tensor, goals: Tensor, frozen: bool = False) -> Tensor:
        """(critics, ..., bins). `frozen`: gradients reach the inputs alone."""
        inputs = torch.cat([latents, goals, blocks], dim=-1)
        if not frozen:
            return torch.stack([critic(inputs) for critic in self.critics])
        weights = [{name: w.detach() for name, w in critic.named_parameters()} for critic in self.critics]
        pairs = zip(self.critics, weights, strict=True)
        return torch.stack([functional_call(critic, held, (inputs,)) for critic, held in pairs])

    def target_values(self, latents: Tensor, blocks: Tensor, goals: Tensor, chosen: list[int]) -> Tensor:
        """The lesser of the chosen target critics' values, (...)."""
        inputs = torch.cat([latents, goals, blocks], dim=-1)
        return torch.stack([self.two_hot.decode(self.target_critics[i](inputs)) for i in chosen]).amin(dim=0)


def _encoder(config: TDMPC2Config) -> tuple[nn.Module, nn.Module]:
    """Frames to features, and features to what SimNorm makes a latent of. Batch normalization keeps the latents of a
    keypoint encoder apart; without it they all become one before rewards and values tell them apart."""
    sizes = config.encoder
    if isinstance(sizes, KeypointConfig):
        return build_encoder(sizes), Projector(sizes.width, config.projector, config.latent)
    encoder, features = convolutions(sizes.channels, sizes.kernels, sizes.strides, sizes.frame_size)
    project = nn.Linear(features, config.latent)
    initialize(project)
    return encoder, project
