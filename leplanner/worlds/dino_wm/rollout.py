"""DINO-WM's rollout without repeated work: the same function as predicting window after window.

Attention is causal by frame, so keys and values of real frames that leave by an executed block are the same for all
plans: they are computed once a problem. Positions count from the window's start, which moves on, so each window that
still holds such frames has its own. The last layer computes only the newest frame, which alone is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...core.dynamics import mean_squared_distance
from ...core.latent import LatentSpec

KeysValues = tuple[Tensor, Tensor]  # (B, heads, tokens, E) each


class PatchRollout:
    """Satisfies `Dynamics`, with `prepare` for what all plans of a problem share."""

    def __init__(self, model: Any):
        config = model.config
        self.model, self.context = model, config.context
        self.latent = LatentSpec(config.latent_shape)
        self.patches, self.channels = config.latent_shape

    def rollout(self, context: Tensor, past_blocks: Tensor, plan: Tensor) -> Tensor:
        return self.prepare(context, past_blocks)(plan)

    def distance(self, latents: Tensor, goal: Tensor) -> Tensor:
        return mean_squared_distance(latents, goal)

    def prepare(self, context: Tensor, past_blocks: Tensor) -> Callable[[Tensor], Tensor]:
        """(B, N, P, C), (B, N-1, A) -> a function of the plan."""
        actions = self.model.action_encoder(past_blocks)
        real = self.context - 1  # frames that leave by an executed block
        prefixes = [self._prefix(context[:, j:real], actions[:, j:]) for j in range(real)]
        current = context[:, -1]
        return lambda plan: self._imagine(current, prefixes, plan)

    def _imagine(self, current: Tensor, prefixes: list[list[KeysValues]], plan: Tensor) -> Tensor:
        """Window j starts with the real frames of prefix j, if any are left; the frames after them depend on the
        plan."""
        actions = self.model.action_encoder(plan)
        latents = [current]
        for j in range(plan.shape[1]):
            fresh = min(j + 1, self.context)
            window = torch.stack(latents[-fresh:], dim=1)
            prefix = prefixes[j] if j < len(prefixes) else []
            latents.append(self._transition(window, actions[:, j + 1 - fresh : j + 1], prefix))
        return torch.stack(latents[1:], dim=1)

    def _prefix(self, latents: Tensor, actions: Tensor) -> list[KeysValues]:
        """Keys and values in each layer of frames at a window's start."""
        predictor = self.model.predictor
        x = self._tokens(latents, actions, first=0)
        mask, cached = predictor.mask[: x.shape[1], : x.shape[1]], list[KeysValues]()
        for i, (attention, feed_forward) in enumerate(predictor.transformer.layers):
            q, k, v = attention.queries_keys_values(x)
            cached.append((k, v))
            if i < len(predictor.transformer.layers) - 1:
                x = x + attention.mix(q, k, v, mask)
                x = x + feed_forward(x)
        return cached

    def _transition(self, latents: Tensor, actions: Tensor, prefix: list[KeysValues]) -> Tensor:
        """The last frames of a window (B, t, P, C), after a prefix that is already known -> the next latent."""
        predictor = self.model.predictor
        x = self._tokens(latents, actions, first=self.context - latents.shape[1])
        for i, (attention, feed_forward) in enumerate(predictor.transformer.layers):
            q, k, v = attention.queries_keys_values(x)
            if prefix:
                k, v = torch.cat([prefix[i][0], k], dim=2), torch.cat([prefix[i][1], v], dim=2)
            if i == len(predictor.transformer.layers) - 1:
                x, q = x[:, -self.patches :], q[:, :, -self.patches :]
            mask = predictor.mask[-q.shape[2] :] if q.shape[2] > self.patches else None  # the newest frame sees all
            x = x + attention.mix(q, k, v, mask)
            x = x + feed_forward(x)
        return predictor.transformer.norm(x)[..., : self.channels]

    def _tokens(self, latents: Tensor, actions: Tensor, first: int) -> Tensor:
        """At the window's places from frame `first` on."""
        tokens = self.model.tokens(latents, actions)
        start = first * self.patches
        return tokens + self.model.predictor.pos_embedding[:, start : start + tokens.shape[1]]
