"""LePlanner: drafts a plan, imagines it through a frozen world model, and corrects it K times.

The paper's section 3.2 and its algorithm, in its order and with its letters:
B batch, N context frames, H blocks in a plan, K refinements, A block size, D latent, W width;
C conditioning tokens, Q plan queries, Y plan tokens, b action blocks, z imagined latents, d distances to the
goal, R consequence tokens, eta step sizes; F interprets consequences, G refines plans.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .actions import ActionBox
from .problem import Imagine, Plan, PlanProblem, goal_distances


@dataclass(frozen=True)
class PlannerConfig:
    """Defaults are the paper's: 6.8 M parameters for PushT."""

    latent: int = 192  # D
    block_dim: int = 10  # A
    context: int = 3  # N
    horizon: int = 5  # H
    refinements: int = 3  # K
    width: int = 256  # W
    depth: int = 4  # transformer blocks in F, and as many in G
    heads: int = 8
    mlp_ratio: int = 4
    dropout: float = 0.1


class LePlanner(nn.Module):
    def __init__(self, config: PlannerConfig, box: ActionBox):
        super().__init__()
        if box.block_dim != config.block_dim:
            raise ValueError(
                f"The action box has blocks of {box.block_dim} numbers, the planner of {config.block_dim}."
            )
        self.config, self.box = config, box
        D, W, H = config.latent, config.width, config.horizon
        self.project = nn.Linear(D, W)  # shared by context and goal
        self.context_position = nn.Parameter(0.02 * torch.randn(config.context, W))
        self.goal_token = nn.Parameter(0.02 * torch.randn(W))
        self.plan_query = nn.Parameter(0.02 * torch.randn(H, W))  # not zeros: those would make all positions alike
        self.consequence_in = nn.Linear(W + 2 * D + 1, W)
        self.consequence = Transformer(config)  # F, shared by all refinements
        self.refine_in = nn.Linear(2 * W, W)
        self.refine = Transformer(config)  # G, likewise
        self.delta_head = nn.Linear(W, W)
        nn.init.normal_(self.delta_head.weight, std=0.01)  # corrections start small, yet F gets gradient at once
        nn.init.zeros_(self.delta_head.bias)
        self.action_head = nn.Sequential(nn.LayerNorm(W), nn.Linear(W, W), nn.GELU(), nn.Linear(W, config.block_dim))
        self.eta = nn.Parameter(torch.zeros(config.refinements))
        self.register_buffer("action_center", box.center, persistent=False)
        self.register_buffer("action_scale", box.scale, persistent=False)

    def forward(self, problem: PlanProblem, imagine: Imagine) -> tuple[Plan, ...]:
        """The draft and its K corrections; each rolls H blocks through the world model."""
        C = self.conditioning(problem)
        Y = self.initial_plan(C)
        plans: list[Plan] = []
        for k in range(self.config.refinements + 1):
            b = self.decode(Y)
            z = imagine(b)
            d = goal_distances(z, problem.goal)
            plans.append(Plan(b, z, d))
            if k < self.config.refinements:
                R = self.interpret(Y, z, d, problem.goal, C)
                Y = Y + self.eta[k].sigmoid() * self.correction(Y, R, C)
        return tuple(plans)

    def conditioning(self, problem: PlanProblem) -> Tensor:
        """(B, N+1, W): one token a context latent, and the goal's."""
        context = self.project(problem.context) + self.context_position
        goal = self.project(problem.goal) + self.goal_token
        return torch.cat([context, goal.unsqueeze(1)], dim=1)

    def initial_plan(self, C: Tensor) -> Tensor:
        """Y0 = G([Q; 0]): no consequences are known yet."""
        Q = self.plan_query.expand(len(C), -1, -1)
        return self.refine(self.refine_in(torch.cat([Q, torch.zeros_like(Q)], dim=-1)), C)

    def decode(self, Y: Tensor) -> Tensor:
        """Plan tokens (B, H, W) -> action blocks (B, H, A) inside the environment's box."""
        return self.action_center + self.action_scale * self.action_head(Y).float().tanh()

    def interpret(self, Y: Tensor, z: Tensor, d: Tensor, goal: Tensor, C: Tensor) -> Tensor:
        """R = F([Y; z; z - z_G; d]): what the imagined consequences mean for each block."""
        features = torch.cat([Y, z, z - goal.unsqueeze(1), d.unsqueeze(-1)], dim=-1)
        return self.consequence(self.consequence_in(features), C)

    def correction(self, Y: Tensor, R: Tensor, C: Tensor) -> Tensor:
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
