"""`leplanner world train|probe|import|export`: the latent world model."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table

from ..data.cache import open_cache
from ..data.episodes import action_statistics, open_episodes
from ..learning import TrainProgress
from ..presets.scales import get_scale
from ..tasks import get_task
from ..world.probe import probe_world
from ..world.refine import refine_world
from ..world.release import export_release, import_release
from ..world.train import train_world
from ..world.world import load_world, save_world
from .options import Json, MaybeFloats, MaybePath, ScaleFloat, ScaleInt, ScaleStr, Source, TaskName, WorldFolder
from .progress import bar, console


def train(
    task: TaskName,
    data: MaybePath = None,
    out: MaybePath = None,
    scale: str = "compact",
    steps: ScaleInt = None,
    batch: ScaleInt = None,
    learning_rate: ScaleFloat = None,
    grounding: ScaleFloat = None,
    seed: ScaleInt = None,
    precision: ScaleStr = None,
    device: str = "auto",
) -> None:
    """Train a world model on a dataset; killed and started again it continues where it was.

    Example: leplanner world train tworoom --data runs/tworoom/data.h5

    Args:
        task: tworoom, pusht, reacher or cube.
        data: HDF5 or Lance dataset (default: runs/TASK/data.h5).
        out: folder for weights, checkpoint and metrics (default: runs/TASK/world).
        scale: paper, compact or tiny; sets the defaults of the options below.
        steps: training steps.
        batch: windows in a batch.
        learning_rate: peak of the one-cycle schedule.
        grounding: weight of the auxiliary state head; 0 is the pure objective.
        seed: of initialisation, batches, projections and dropout.
        precision: auto (measured), fp32 or bf16.
        device: auto, cpu, cuda, mps.
    """
    preset = get_scale(scale, task)
    chosen = {"steps": steps, "batch": batch, "learning_rate": learning_rate, "grounding": grounding}
    chosen |= {"seed": seed, "precision": precision}
    config = replace(preset.train, **{name: value for name, value in chosen.items() if value is not None})
    out = out or Path("runs") / task / "world"
    episodes = open_episodes(data or Path("runs") / task / "data.h5", get_task(task))
    with bar(f"train world {task}", "steps") as update:

        def show(progress: TrainProgress) -> None:
            shown = ("prediction", "state", "held_out_error")
            note = "  ".join(f"{name} {progress.metrics[name]:.4f}" for name in shown if name in progress.metrics)
            update(progress.step, progress.steps, note)

        world = train_world(get_task(task), episodes, preset.model, config, out, device=device, on_progress=show)
    console.print(f"{out}  world {world.digest[:12]}")


def refine(
    task: TaskName,
    world: MaybePath = None,
    latents: MaybePath = None,
    out: MaybePath = None,
    scale: str = "compact",
    steps: ScaleInt = None,
    batch: ScaleInt = None,
    learning_rate: ScaleFloat = None,
    optimizer: ScaleStr = None,
    horizon: ScaleStr = None,
    played_share: ScaleFloat = None,
    seed: ScaleInt = None,
    precision: ScaleStr = None,
    device: str = "auto",
) -> None:
    """Train a world's predictor on, over several blocks, with its encoder frozen; killed and started again it continues.

    Example: leplanner world refine pusht

    Args:
        task: tworoom, pusht, reacher or cube.
        world: the world to start from (default: runs/TASK/world).
        latents: the dataset, encoded: leplanner cache (default: runs/TASK/latents).
        out: folder for the refined world (default: runs/TASK/refined).
        scale: paper, compact or tiny; sets the defaults of the options below, others for data that a planner played.
        steps: training steps.
        batch: rollouts in a batch.
        learning_rate: peak of the one-cycle schedule.
        optimizer: adamw, or muon for the matrices of linear layers: fewer steps, each a little longer.
        horizon: blocks of a rollout by share of the steps, e.g. 0:1,0.6:2,0.85:5.
        played_share: share of rollouts from what a planner played (`leplanner practice`) instead of from all data.
        seed: of batches.
        precision: auto (measured), fp32 or bf16.
        device: auto, cpu, cuda, mps.
    """
    chosen = {"steps": steps, "batch": batch, "learning_rate": learning_rate, "horizon": horizon}
    chosen |= {"optimizer": optimizer, "played_share": played_share, "seed": seed, "precision": precision}
    base, preset = Path("runs") / task, get_scale(scale, task)
    cache = open_cache(latents or base / "latents")
    settings = preset.practised_refine if cache.episodes.played is not None else preset.refine
    config = replace(settings, **{k: v for k, v in chosen.items() if v is not None})
    if config.steps < 1:
        raise ValueError(f"The {scale} scale does not refine its worlds. Give --steps to refine one all the same.")
    out = out or base / "refined"
    with bar(f"refine world {task}", "steps") as update:

        def show(progress: TrainProgress) -> None:
            errors = progress.metrics.get("held_out_rollout", [])
            note = f"held-out error by block {' '.join(f'{error:.4f}' for error in errors)}" if errors else ""
            update(progress.step, progress.steps, note)

        refined = refine_world(load_world(world or base / "world"), cache, config, out, device, show)
    console.print(f"{out}  world {refined.digest[:12]}")


def probe(
    folder: WorldFolder,
    data: MaybePath = None,
    json_output: Json = False,
) -> None:
    """Measure a world on held-out episodes: a linear map from latents to the physical state, and the one-step error.

    Example: leplanner world probe runs/pusht/world --data runs/pusht/data.h5

    Args:
        folder: a world folder.
        data: the dataset it was trained on (default: runs/TASK/data.h5).
        json_output: print JSON instead of a table.
    """
    world = load_world(folder)
    task = get_task(world.spec.task)
    report = probe_world(world, task, open_episodes(data or Path("runs") / task.name / "data.h5", task))
    if json_output:
        print(json.dumps(dataclasses.asdict(report)))
        return
    table = Table(title=f"{task.title}: {report.held_out_rows} held-out frames, probe fitted on {report.train_rows}")
    for title in ("quantity", "RMSE", "spread", "share"):
        table.add_column(title, justify="left" if title == "quantity" else "right")
    for name, error in report.rmse.items():
        table.add_row(name, f"{error:.4g}", f"{report.std[name]:.4g}", f"{error / report.std[name]:.1%}")
    console.print(table)
    console.print(f"unit: {report.unit}; one-step error: {report.one_step_error:.2%} of copying the last latent")


def import_(
    source: Source,
    task: str,
    data: MaybePath = None,
    action_mean: MaybeFloats = None,
    action_std: MaybeFloats = None,
    out: MaybePath = None,
) -> None:
    """Import a released LeWM checkpoint, strictly: every tensor must fit, and nothing downloaded is executed.

    Actions are standardised with the training dataset's statistics, which a release does not contain: give the
    dataset, or the numbers.

    Example: leplanner world import quentinll/lewm-pusht --task pusht --data pusht_expert_train.h5

    Args:
        source: folder or Hugging Face id with config.json and weights.pt (or safetensors).
        task: the task it was trained on.
        data: the dataset it was trained on, for the action statistics.
        action_mean: instead of --data, the mean of each action dimension.
        action_std: instead of --data, its standard deviation.
        out: folder to write (default: runs/TASK/world).
    """
    spec = get_task(task)
    if data is not None:
        episodes = open_episodes(data, spec, in_memory=False)
        mean, std = action_statistics(episodes, np.arange(len(episodes.starts)))  # as its own training did
        action_mean, action_std = tuple(mean.tolist()), tuple(std.tolist())
    if action_mean is None or action_std is None:
        raise ValueError("Importing needs the action statistics: give --data FILE, or --action-mean and --action-std.")
    if len(action_mean) != spec.action_dim or len(action_std) != spec.action_dim:
        raise ValueError(
            f"{spec.title} has {spec.action_dim} action dimensions; got {len(action_mean)} means and {len(action_std)} deviations."
        )
    world = import_release(source, task, action_mean, action_std, spec.action_low, spec.action_high)
    out = out or Path("runs") / task / "world"
    if (out / "config.json").exists():
        raise ValueError(f"{out} already holds a world. Choose another --out, or delete it.")
    inputs = {"data": episodes.digest} if data is not None else {}
    save_world(world, out, {"source": source}, **inputs)
    parameters = sum(p.numel() for p in world.model.parameters()) / 1e6
    console.print(f"{out}  world {world.digest[:12]}, {parameters:.2f} M parameters")


def export(folder: WorldFolder, out: Path, names: str = "new") -> None:
    """Write a ViT world as stable-worldmodel's `load_pretrained` reads it.

    Example: leplanner world export runs/pusht/world --out runs/pusht/release

    Args:
        folder: a world folder.
        out: folder for config.json and weights.pt.
        names: ViT parameter names of transformers 5.9 and later (new) or earlier (old).
    """
    export_release(load_world(folder), out, names)
    console.print(f"{out}")


VERBS = {"train": train, "refine": refine, "probe": probe, "import": import_, "export": export}
