"""`leplanner world train|finetune|probe|import|export`: the latent world model."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from ..data.formats import open_episodes
from ..pipeline import stages
from ..pipeline.paths import RunPaths
from ..tasks import find_task, get_task
from ..worlds import find_family, load_world
from ..worlds.finetune import FinetuneConfig
from ..worlds.probe import probe_world
from ..worlds.train import WorldTrainConfig
from .options import Choice, Compute, Json, MaybeFloats, MaybePath, Source, WorldFolder, is_typed
from .progress import bar, console
from .stages import Flat, show_result


@dataclass(frozen=True)
class WorldTrain:
    """Train a world model on a dataset; resumable.

    Example: leplanner world train tworoom --data runs/tworoom/data.h5
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[WorldTrainConfig, Flat]
    on: Annotated[Compute, Flat]
    network: Any
    objective: Any
    data: MaybePath = None
    """HDF5 or Lance dataset (default: runs/TASK/data.h5)"""
    out: MaybePath = None
    """folder for weights, checkpoint and metrics (default: runs/TASK/world)"""

    @staticmethod
    def default(choice: Choice, words: list[str]) -> Any:
        """The family's own sizes and loss weights are options too, so the class is made for the family."""
        preset = choice.preset
        own = [("network", type(preset.network)), ("objective", type(preset.objective))]
        options = make_dataclass("WorldTrain", own, bases=(WorldTrain,), frozen=True)
        options.__doc__ = WorldTrain.__doc__
        return options(choice, preset.world, Compute(), preset.network, preset.objective)

    def run(self) -> None:
        choice, paths, preset = self.choice, self.choice.paths, self.choice.preset
        data, out = self.data or paths.data, self.out or paths.world
        network = (preset.family, self.network, self.objective, self.config)
        show_result(stages.make_world(choice.spec, data, *network, out, preset.block, self.on.runtime, bar))


@dataclass(frozen=True)
class WorldFinetune:
    """Finetune a world's predictor over several blocks, with its encoder frozen; resumable.

    Example: leplanner world finetune pusht
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[FinetuneConfig, Flat]
    on: Annotated[Compute, Flat]
    world: MaybePath = None
    """the world to start from (default: runs/TASK/world)"""
    latents: MaybePath = None
    """the dataset, encoded: leplanner cache (default: runs/TASK/latents)"""
    out: MaybePath = None
    """folder for the finetuned world (default: runs/TASK/finetuned)"""

    @staticmethod
    def default(choice: Choice, words: list[str]) -> WorldFinetune:
        """Where on-policy data is asked for, as a run does it in its later rounds."""
        preset = choice.preset
        config = preset.on_policy_finetune if is_typed("--on-policy-prob", words) else preset.finetune
        return WorldFinetune(choice, config, Compute())

    def run(self) -> None:
        paths = self.choice.paths
        world, latents, out = self.world or paths.world, self.latents or paths.latents, self.out or paths.finetuned
        show_result(stages.finetune(self.choice.spec, world, latents, self.config, out, self.on.runtime, bar))


def probe(folder: WorldFolder, data: MaybePath = None, json_output: Json = False) -> None:
    """Measure a world on held-out episodes: a linear map from latents to the physical state, and the one-step error.

    Example: leplanner world probe runs/pusht/world --data runs/pusht/data.h5

    Args:
        folder: a world folder.
        data: the dataset it was trained on (default: runs/TASK/data.h5).
        json_output: print JSON instead of a table.
    """
    world = load_world(folder)
    task = get_task(world.spec.task)
    report = probe_world(world, task, open_episodes(data or RunPaths.of(task).data, task))
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
    family: str = "lewm",
    data: MaybePath = None,
    action_mean: MaybeFloats = None,
    action_std: MaybeFloats = None,
    out: MaybePath = None,
) -> None:
    """Import a released checkpoint, strictly: every tensor must fit, and nothing downloaded is executed.

    Actions are standardized with the training dataset's statistics, which a release does not contain: give the
    dataset, or the numbers.

    Example: leplanner world import quentinll/lewm-pusht --task pusht --data pusht_expert_train.h5

    Args:
        source: folder or Hugging Face id with config.json and weights.pt (or safetensors).
        task: the task it was trained on.
        family: the world family it belongs to.
        data: the dataset it was trained on, for the action statistics.
        action_mean: instead of --data, the mean of each action dimension.
        action_std: instead of --data, its standard deviation.
        out: folder to write (default: runs/TASK/world).
    """
    spec = find_task(task)
    if data is None and (action_mean is None or action_std is None):
        raise ValueError("Importing needs the action statistics: give --data FILE, or --action-mean and --action-std.")
    statistics = data if data is not None else (action_mean or (), action_std or ())
    out = out or RunPaths.of(spec).world
    show_result(stages.import_world(source, spec, find_family(family).name, out, statistics))


def export(folder: WorldFolder, out: Path, names: str = "new") -> None:
    """Write a world as its family's own software reads it: a ViT LeWM for stable-worldmodel's `load_pretrained`.

    Example: leplanner world export runs/pusht/world --out runs/pusht/release

    Args:
        folder: a world folder.
        out: folder for config.json and weights.pt.
        names: ViT parameter names of transformers 5.9 and later (new) or earlier (old).
    """
    show_result(stages.export_world(folder, out, names))


VERBS = {"train": WorldTrain, "finetune": WorldFinetune, "probe": probe, "import": import_, "export": export}
