"""LePlanner: drafts a plan, imagines it through a frozen world model, and refines it K times.

The paper's section 3.2 and its algorithm, in its order and with its letters:
B batch, N context frames, H blocks in a plan, K refinements, A block size, Z the latent's shape, W width;
C conditioning tokens, Q plan queries, Y plan tokens, b action blocks, z imagined latents, d distances to the
goal, R consequence tokens, eta step sizes; F interprets consequences, G refines plans.
"""

# The paper's variables are capital letters.
# pyright: reportConstantRedefinition=false
from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from ..core.actions import ActionSpec
from ..core.dynamics import Imagine
from ..core.latent import LatentSpec
from ..core.problem import Plan, PlanProblem


@dataclass(frozen=True)
class PlannerConfig:
    """The planner's sizes. Without a preset the paper's: 6.8 M parameters for PushT."""

    horizon: int = 5
    """H, blocks in a plan"""
    refinements: int = 3
    """K, how often a plan is corrected"""
    width: int = 256
    """W, numbers in a token"""
    depth: int = 4
    """transformer blocks in F, and as many in G"""
    heads: int = 8
    """attention heads"""
    mlp_ratio: int = 4
    """hidden numbers of an MLP, in widths"""
    dropout: float = 0.1
    """in training"""


class LePlanner(nn.Module):
    action_center: Tensor
    action_scale: Tensor

    def __init__(self, config: PlannerConfig, latent: LatentSpec, context: int, actions: ActionSpec):
        super().__init__()
        self.config, self.latent, self.context, self.actions = config, latent, context, actions
        W, H = config.width, config.horizon
        self.read, D = latent.reader(W)  # a vector latent is read as it is, tokens by a small network
        self.project = nn.Linear(D, W)  # shared by context and goal
        self.context_position = nn.Parameter(0.02 * torch.randn(context, W))
        self.goal_token = nn.Parameter(0.02 * torch.randn(W))
        self.plan_query = nn.Parameter(0.02 * torch.randn(H, W))  # not zeros: those would make all positions alike
        self.consequence_in = nn.Linear(W + 2 * D + 1, W)
        self.consequence = Transformer(config)  # F, shared by all refinements
        self.refine_in = nn.Linear(2 * W, W)
        self.refine = Transformer(config)  # G, likewise
        self.delta_head = nn.Linear(W, W)
        nn.init.normal_(self.delta_head.weight, std=0.01)  # refinements start small, yet F gets gradient at once
        nn.init.zeros_(self.delta_head.bias)
        self.action_head = nn.Sequential(nn.LayerNorm(W), nn.Linear(W, W), nn.GELU(), nn.Linear(W, actions.block_dim))
        self.eta = nn.Parameter(torch.zeros(config.refinements))
        self.register_buffer("action_center", actions.center, persistent=False)
        self.register_buffer("action_scale", actions.scale, persistent=False)

    def forward(self, problem: PlanProblem, imagine: Imagine) -> tuple[Plan, ...]:
        """The draft and its K refinements; each rolls H blocks through the world model."""
        C = self.conditioning(problem.context, problem.goal)
        Y = self.initial_plan(C)
        plans: list[Plan] = []
        for k in range(self.config.refinements + 1):
            b = self.decode(Y)
            z, d = imagine(b)
            plans.append(Plan(b, z, d))
            if k < self.config.refinements:
                R = self.interpret(Y, z, d, problem.goal, C)
                Y = Y + self.eta[k].sigmoid() * self.plan_update(Y, R, C)
        return tuple(plans)

    def conditioning(self, context: Float[Tensor, "B N *Z"], goal: Float[Tensor, "B *Z"]) -> Float[Tensor, "B N+1 W"]:
        """One token a context latent, and the goal's."""
        frames = self.project(self.read(context)) + self.context_position
        target = self.project(self.read(goal)) + self.goal_token
        return torch.cat([frames, target.unsqueeze(1)], dim=1)

    def initial_plan(self, C: Float[Tensor, "B N+1 W"]) -> Float[Tensor, "B H W"]:
        """Y0 = G([Q; 0]): no consequences are known yet."""
        Q = self.plan_query.expand(len(C), -1, -1)
        return self.refine(self.refine_in(torch.cat([Q, torch.zeros_like(Q)], dim=-1)), C)

    def decode(self, Y: Float[Tensor, "B H W"]) -> Float[Tensor, "B H A"]:
        """Plan tokens -> action blocks inside the environment's box."""
        return self.action_center + self.action_scale * self.action_head(Y).float().tanh()

    def interpret(self, Y: Tensor, z: Tensor, d: Tensor, goal: Tensor, C: Tensor) -> Tensor:
        """R = F([Y; z; z - z_G; d]): what the imagined consequences mean for each block."""
        seen = self.read(z)
        features = torch.cat([Y, seen, seen - self.read(goal).unsqueeze(1), d.unsqueeze(-1)], dim=-1)
        return self.consequence(self.consequence_in(features), C)

    def plan_update(self, Y: Tensor, R: Tensor, C: Tensor) -> Tensor:
        """Delta Y, from all H plan tokens and their consequences together."""
        return self.delta_head(self.refine(self.refine_in(torch.cat([Y, R], dim=-1)), C))


class Transformer(nn.Module):
    """Pre-norm blocks with full attention over conditioning and plan tokens; returns the plan's."""

    def __init__(self, config: PlannerConfig):
        super().__init__()
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.depth)])

    def forward(self, tokens: Tensor, C: Tensor) -> Tensor:
        x = torch.cat([C, tokens], dim=1)
        for block in self.blocks:
            x = block(x)
        return x[:, C.shape[1] :]


class Block(nn.Module):
    def __init__(self, config: PlannerConfig):
        super().__init__()
        W = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(W), nn.LayerNorm(W)
        self.qkv, self.out = nn.Linear(W, 3 * W), nn.Linear(W, W)
        self.mlp = nn.Sequential(nn.Linear(W, config.mlp_ratio * W), nn.GELU(), nn.Linear(config.mlp_ratio * W, W))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attend(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)
