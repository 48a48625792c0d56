"""Where things are in an imagined latent: a linear map from latents to places in the picture, for drawing plans over a
scene. It is fitted after the fact; nothing that acts depends on it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..artifacts import atomic_path
from ..core.actions import Array
from ..data.collect import CollectConfig, run_episode
from ..tasks import Task
from ..tasks.spec import Simulator
from ..worlds.base import World
from ..worlds.validate import ridge

FILE = "projection.safetensors"
EPISODES = 80  # of the task's behavior policy; a fifth of them is held out to measure with
STEPS, EVERY = 100, 5  # an episode's actions, and those between two frames
SEED = 90_000  # episodes that no dataset has
STRENGTH = 1e-4  # of the ridge: imagined latents leave the directions in which real ones hardly vary


@dataclass(frozen=True)
class Projection:
    """Places are shares of the frame, as of a task's `plan_view`."""

    weights: Tensor  # (*Z, P, 2) fp16
    offset: Tensor  # (P, 2) fp16
    encoder_digest: str  # whose latents it reads
    error_px: tuple[float, ...]  # of each point, on held-out episodes: mean distance in pixels of the world's frames

    def points(self, latents: Tensor) -> Array:
        """(..., *Z), of any device and precision -> (..., P, 2)."""
        axes = self.weights.ndim - 2
        if latents.shape[-axes:] != self.weights.shape[:-2]:
            raise ValueError(
                f"The projection reads latents of shape {tuple(self.weights.shape[:-2])}; got {tuple(latents.shape)}."
            )
        mapped = torch.tensordot(latents.detach().cpu().float(), self.weights.float(), dims=axes)
        return (mapped + self.offset.float()).numpy()


def fit_projection(
    world: World,
    task: Task,
    sim: Simulator | None = None,
    on_episode: Callable[[int, int], None] = lambda done, total: None,
    episodes: int = EPISODES,
) -> Projection:
    """From episodes of the task's behavior policy, made here. `sim`: draws as the world saw; default: a new one."""
    if task.plan_view is None:
        raise ValueError(
            f"{task.name} does not say where things are in the picture, so latents cannot be projected onto it. Give "
            "the task a plan_view: states (T, S) -> (T, P, 2), shares of the frame."
        )
    own = sim or task.simulate(world.spec.visuals)
    config = CollectConfig(episodes, STEPS, EVERY, world.spec.frame_size, SEED)
    latents, places = [], []
    try:
        for index in range(episodes):
            episode = run_episode(task, own, config, index)
            latents.append(world.encode(episode["pixels"]).float().cpu().flatten(1).numpy())
            places.append(task.plan_view(episode["state"]))
            on_episode(index + 1, episodes)
    finally:
        if sim is None:
            own.close()
    held_out = max(1, episodes // 5)
    x, y = np.concatenate(latents[held_out:]), np.concatenate(places[held_out:])
    predict = ridge(x, y.reshape(len(y), -1), STRENGTH)
    origin = predict(np.zeros((1, x.shape[1])))
    axes = predict(np.eye(x.shape[1])) - origin
    weights = torch.from_numpy(axes).half().reshape(*world.latent.shape, *y.shape[1:])
    offset = torch.from_numpy(origin).half().reshape(y.shape[1:])
    fitted = Projection(weights, offset, world.encoder_digest, ())
    unseen = torch.from_numpy(np.concatenate(latents[:held_out])).unflatten(1, world.latent.shape)
    away = np.linalg.norm(fitted.points(unseen) - np.concatenate(places[:held_out]), axis=-1)
    return replace(fitted, error_px=tuple((away.mean(axis=0) * world.spec.frame_size).tolist()))


def save_projection(projection: Projection, path: Path) -> None:
    tensors = {"weights": projection.weights, "offset": projection.offset}
    facts = {"encoder_digest": projection.encoder_digest, "error_px": json.dumps(projection.error_px)}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, facts)


def load_projection(path: Path) -> Projection:
    try:
        with safe_open(path, "pt") as file:
            facts, weights, offset = file.metadata(), file.get_tensor("weights"), file.get_tensor("offset")
        return Projection(weights, offset, facts["encoder_digest"], tuple(json.loads(facts["error_px"])))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read as a projection ({error}). Delete it; it is fitted again when needed."
        ) from error


def projection_of(
    world: World,
    task: Task,
    bundle: Path,
    on_episode: Callable[[int, int], None] = lambda done, total: None,
    episodes: int = EPISODES,
) -> Projection:
    """As it lies in the bundle's folder; fitted and put there if it does not, or if it reads other latents."""
    path = bundle / FILE
    if path.exists():
        projection = load_projection(path)
        if projection.encoder_digest == world.encoder_digest:
            return projection
    projection = fit_projection(world, task, None, on_episode, episodes)
    with contextlib.suppress(OSError):  # a folder that cannot be written to: it is fitted again next time
        save_projection(projection, path)
    return projection
