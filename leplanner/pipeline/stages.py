"""Every stage as one function from artifacts to an artifact, with progress. The verbs and
whole runs call the same ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import is_whole, read_json
from ..baselines.learned import LEARNED, BaselineTrainConfig, train_baseline
from ..control.on_policy import OnPolicyCollector
from ..core.actions import ActionSpec
from ..data.cache import LatentCache, build_cache, open_cache
from ..data.collect import CollectConfig, collect
from ..data.episodes import Episodes, action_statistics
from ..data.formats import open_episodes
from ..density.mixture import Density, load_density
from ..density.train import DensityTrainConfig, train_density
from ..diagnostics.decoder import Decoder, DecoderConfig, DecoderTrainConfig, train_decoder
from ..execution.executor import Executor
from ..planner.model import PlannerConfig
from ..planner.planner import Planner, load_bundle
from ..planner.train import PlannerTrainConfig, train_planner
from ..tasks import Task
from ..training.loop import OnProgress, TrainProgress
from ..training.runtime import Runtime
from ..worlds import FAMILIES, World, check_family, load_world, save_world
from ..worlds.finetune import FinetuneConfig, finetune_world
from ..worlds.train import WorldTrainConfig, train_world
from ..zoo import find_bundle
from .stage import Show, Update, silent


@dataclass(frozen=True)
class Made:
    """What a stage made, a line that says so, and its figures by name."""

    path: Path
    line: str
    figures: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.path}  {self.line}"

    @property
    def plain(self) -> dict[str, Any]:
        return {"path": str(self.path), **self.figures}


def _trained(out: Path, digest: str, **figures: Any) -> dict[str, Any]:
    """With the metrics that its training ended with."""
    return {"digest": digest, "metrics": read_json(out / "config.json")["training"].get("metrics", {}), **figures}


def _training(update: Update, note: Callable[[dict[str, Any]], str]) -> OnProgress:
    def show(progress: TrainProgress) -> None:
        update(progress.step, progress.steps, note(progress.metrics))

    return show


def _noted(*names: str) -> Callable[[dict[str, Any]], str]:
    return lambda metrics: "  ".join(f"{name} {metrics[name]:.4f}" for name in names if name in metrics)


def collect_data(
    task: Task,
    config: CollectConfig,
    out: Path,
    policy: str | None = None,
    onto: Path | None = None,
    executor: Executor | None = None,
    show: Show = silent,
) -> Made:
    """With the task's behavior policy; or with a planner (`policy`, a bundle), whose episodes
    are added to those of `onto`."""
    if (policy is None) != (onto is None):
        raise ValueError("A planner's episodes start from rows of a dataset, and are added to it: give both.")
    if policy is not None and config.split == "test":
        raise ValueError("A planner's episodes are for training; test episodes are collected with the behavior policy.")
    collector = OnPolicyCollector(str(find_bundle(policy)), onto) if policy is not None and onto is not None else None
    with show(f"collect {task.name}", "frames") as update:
        collect(task, config, out, executor, update, collector, onto)
    added = " added" if collector else ""
    size = out.stat().st_size
    line = f"({config.episodes} episodes of {config.steps} actions{added}, {size / 1e6:.0f} MB)"
    return Made(out, line, {"episodes": config.episodes, "steps": config.steps, "bytes": size})


def make_world(
    task: Task,
    data: Path,
    family: str,
    network: Any,
    objective: Any,
    config: WorldTrainConfig,
    out: Path,
    block: int,
    runtime: Runtime,
    show: Show = silent,
) -> Made:
    check_family(out, family)
    episodes = open_episodes(data, task)
    with show(f"train world {task.name}", "steps") as update:
        note = _training(update, _noted("reconstruction", "prediction", "state", "held_out_error"))
        world = train_world(task, episodes, family, network, objective, config, out, block, runtime, note)
    return Made(out, f"world {world.digest[:12]}{_if_resized(episodes, world)}", _trained(out, world.digest))


def _if_resized(episodes: Episodes, world: World) -> str:
    stored_px, px = episodes.frames.shape[1], world.spec.frame_size
    return f", frames resized from {stored_px} to {px} px" if stored_px != px else ""


def import_world(
    source: str, task: Task, family: str, out: Path, statistics: tuple[tuple[float, ...], tuple[float, ...]] | Path
) -> Made:
    """A released checkpoint. `statistics`: mean and deviation of the actions it was trained on,
    or the dataset they are of."""
    load = FAMILIES.get(family).import_release
    if load is None:
        raise ValueError(f"The family {family!r} does not say how its released checkpoints are read.")
    inputs: dict[str, str] = {}
    if isinstance(statistics, Path):
        episodes = open_episodes(statistics, task, in_memory=False)
        mean, std = action_statistics(episodes, np.arange(len(episodes.starts)))  # as its own training did
        statistics, inputs = (tuple(mean.tolist()), tuple(std.tolist())), {"data": episodes.digest}
    mean, std = statistics
    if len(mean) != task.action_dim or len(std) != task.action_dim:
        raise ValueError(
            f"{task.title} has {task.action_dim} action dimensions; got {len(mean)} means and {len(std)} deviations."
        )
    if is_whole(out):
        config = read_json(out / "config.json")
        known = config["spec"]["actions"]
        origin = (config["spec"]["family"], config["training"].get("source"))
        actual, requested = (*origin, (tuple(known["mean"]), tuple(known["std"]))), (family, str(source), (mean, std))
        if actual != requested:
            raise ValueError(
                f"{out} already holds another world: of {actual}, requested {requested}. Choose "
                "another --out, or delete it."
            )
        return Made(out, "imported before", {"digest": config["digest"]})

    def actions(block: int) -> ActionSpec:
        return ActionSpec(mean, std, task.low, task.high, block)

    world = load(source, task.name, actions)
    save_world(world, out, {"source": str(source)}, **inputs)
    parameters = sum(p.numel() for p in world.model.parameters())
    line = f"world {world.digest[:12]}, {parameters / 1e6:.2f} M parameters"
    return Made(out, line, {"digest": world.digest, "parameters": parameters})


def cache_latents(
    task: Task,
    world: World,
    data: Path,
    out: Path,
    known: Path | None = None,
    batch: int = 256,
    runtime: Runtime | None = None,
    show: Show = silent,
) -> Made:
    """`known`: a cache of data with which these begin; only what is new is encoded."""
    world.to((runtime or Runtime()).torch_device)
    episodes = open_episodes(data, task, in_memory=False)

    def encode(frames: np.ndarray) -> np.ndarray:
        return world.encode(frames).float().cpu().numpy()

    with show(f"cache {task.name}", "frames") as update:
        earlier = open_cache(known) if known else None
        sized = world.spec.sized(episodes)
        cache = build_cache(sized, encode, world.latent, world.encoder_digest, out, earlier, batch, progress=update)
    shape = "x".join(map(str, world.latent.shape))
    line = f"{len(cache.latents)} latents of {shape}, {cache.latents.nbytes / 1e6:.1f} MB{_if_resized(episodes, world)}"
    figures = {"latents": len(cache.latents), "shape": list(world.latent.shape), "bytes": cache.latents.nbytes}
    return Made(out, line, figures | {"encoder": world.encoder_digest, "data": cache.data_digest})


def finetune(
    task: Task, world: Path, latents: Path, config: FinetuneConfig, out: Path, runtime: Runtime, show: Show = silent
) -> Made:
    with show(f"finetune world {task.name}", "steps") as update:

        def note(metrics: dict[str, Any]) -> str:
            errors = metrics.get("held_out_rollout", [])
            return f"held-out error by block {' '.join(f'{error:.4f}' for error in errors)}" if errors else ""

        cache = open_cache(latents)
        finetuned = finetune_world(load_world(world), cache, config, out, runtime, _training(update, note))
    return Made(out, f"world {finetuned.digest[:12]}", _trained(out, finetuned.digest))


def fit_density(
    task: Task, world: Path, latents: Path, config: DensityTrainConfig, out: Path, runtime: Runtime, show: Show = silent
) -> Made:
    with show(f"fit density {task.name}", "steps") as update:
        note = _training(update, _noted("held_out_score"))
        density = train_density(load_world(world), open_cache(latents), config, out, runtime, note)
    line = f"density {density.digest[:12]}, c95 {density.threshold:.4f}"
    return Made(out, line, _trained(out, density.digest, threshold=density.threshold))


def make_planner(
    task: Task,
    world: Path,
    latents: Path,
    density: Path,
    shape: PlannerConfig,
    config: PlannerTrainConfig,
    out: Path,
    runtime: Runtime,
    init: Path | None = None,
    show: Show = silent,
) -> Made:
    supported = load_density(density) if config.support_weight else None
    begun = load_bundle(init) if init is not None else None
    with show(f"train planner {task.name}", "steps") as update:
        planner = train_planner_shown(
            load_world(world), open_cache(latents), supported, shape, config, out, runtime, update, begun
        )
    return Made(out, f"bundle {planner.digest[:12]}", _trained(out, planner.digest))


def train_planner_shown(
    world: World,
    cache: LatentCache,
    density: Density | None,
    shape: PlannerConfig,
    config: PlannerTrainConfig,
    out: Path,
    runtime: Runtime,
    update: Update,
    init: Planner | None = None,
) -> Planner:
    def note(metrics: dict[str, Any]) -> str:
        text = f"loss {metrics['loss']:.4f}"
        if "held_out_arrival" in metrics:
            share = metrics["held_out_arrival"][-1] / metrics["held_out_start"]
            text += f"  held-out arrival {share:.2%} of the start"
        return text

    return train_planner(world, cache, density, shape, config, out, runtime, _training(update, note), init=init)


def make_baselines(
    task: Task,
    methods: tuple[str, ...],
    world: World,
    latents: Path,
    config: BaselineTrainConfig,
    out: Path,
    runtime: Runtime,
    show: Show = silent,
) -> Made:
    cache, methods = open_cache(latents), tuple(LEARNED.get(name).name for name in methods)
    for name in methods:
        with show(f"train {name} {task.name}", "steps") as update:
            note = _training(update, _noted("held_out_error"))
            train_baseline(name, world, cache, config, out / name, runtime, note)
    digests = {name: read_json(out / name / "config.json")["digest"] for name in methods}
    return Made(out, ", ".join(methods), {"methods": {n: _trained(out / n, digest) for n, digest in digests.items()}})


def make_decoder(
    task: Task, world: World, data: Path, config: DecoderTrainConfig, out: Path, runtime: Runtime, show: Show = silent
) -> tuple[Made, Decoder]:
    shape = DecoderConfig(latent_size=world.latent.size, frame_size=world.spec.frame_size)
    episodes = open_episodes(data, task)
    with show(f"train decoder {task.name}", "steps") as update:

        def note(metrics: dict[str, Any]) -> str:
            ratio = metrics.get("held_out_ratio")
            return f"{ratio:.1f} times nearer than the mean frame" if ratio else ""

        def encoding(done: int, total: int) -> None:
            update(0, config.optim.steps, f"encoding frames, {done}/{total}")

        decoder = train_decoder(world, episodes, shape, config, out, runtime, encoding, _training(update, note))
    score = decoder.fidelity
    line = (
        f"on {score['frames']} held-out frames: MSE {score['mse']:.2e}, mean frame {score['mean_image_mse']:.2e} "
        f"({score['ratio']:.1f} times), PSNR {score['psnr']:.1f} dB, SSIM {score['ssim']:.4f}"
    )
    return Made(out, line, dict(score)), decoder


def world_of(task: Task, world: Path, bundle: str | None, family: str | None = None) -> World:
    """The world in a folder, or that of a bundle; of this family, if one is requested."""
    folder = check_family(find_bundle(bundle) if bundle else world, family)
    frozen = load_bundle(folder).world if bundle else load_world(folder)
    if frozen.spec.task != task.name:
        raise ValueError(f"The world at {folder} is {frozen.spec.task}'s, but {task.name} was requested.")
    return frozen


def export_world(world: Path, out: Path, names: str) -> Made:
    """As the family's own software reads it."""
    frozen = load_world(world)
    save = FAMILIES.get(frozen.spec.family).export_release
    if save is None:
        raise ValueError(f"The family {frozen.spec.family!r} does not say how a checkpoint is written for others.")
    save(frozen, out, names)
    return Made(out, f"world {frozen.digest[:12]}", {"digest": frozen.digest})
