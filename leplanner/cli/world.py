"""`leplanner world train|finetune|probe|import|export`: the latent world model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from ..data.formats import open_episodes
from ..pipeline import stages
from ..pipeline.paths import RunPaths
from ..report.terminal import probe_table
from ..tasks import find_task, get_task
from ..worlds import find_family, load_world
from ..worlds.finetune import FinetuneConfig
from ..worlds.probe import probe_world
from ..worlds.train import WorldTrainConfig
from .options import (
    Choice,
    Columns,
    Compute,
    Flat,
    MaybeFloats,
    MaybePath,
    Out,
    Output,
    Source,
    WorldFolder,
    is_typed,
    preselect,
)
from .progress import bar


@dataclass(frozen=True)
class WorldTrain:
    """Train a world model on a dataset; resumable.

    Example: leplanner world train tworoom --data runs/tworoom/data.h5
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[WorldTrainConfig, Flat]
    compute: Annotated[Compute, Flat]
    network: Any
    objective: Any
    data: MaybePath = None
    """HDF5 or Lance dataset (default: runs/TASK/data.h5)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    out: MaybePath = None
    """folder for weights, checkpoint and metrics (default: runs/TASK/world)"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Any:
        """The family's own sizes and loss weights are options too, so the class is made for the family."""
        choice = preselect(words)
        preset = choice.preset
        own = [("network", type(preset.network)), ("objective", type(preset.objective))]
        options = make_dataclass("WorldTrain", own, bases=(WorldTrain,), frozen=True)
        options.__doc__ = WorldTrain.__doc__
        return options(choice, preset.world, Compute(), preset.network, preset.objective)

    def run(self) -> None:
        choice, paths, preset = self.choice, self.choice.paths, self.choice.preset
        data, out, runtime = self.data or paths.data, self.out or paths.world, self.compute.runtime
        network = (preset.family, self.network, self.objective, self.config)
        self.output.show_made(
            stages.make_world(self.named.of(choice.spec), data, *network, out, preset.block, runtime, bar)
        )


@dataclass(frozen=True)
class WorldFinetune:
    """Finetune a world's predictor over several blocks, with its encoder frozen; resumable.

    Example: leplanner world finetune pusht
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[FinetuneConfig, Flat]
    compute: Annotated[Compute, Flat]
    world: MaybePath = None
    """the world to start from (default: runs/TASK/world)"""
    latents: MaybePath = None
    """the dataset, encoded: leplanner cache (default: runs/TASK/latents)"""
    out: MaybePath = None
    """folder for the finetuned world (default: runs/TASK/finetuned)"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> WorldFinetune:
        """Where on-policy data is asked for, as a run does it in its later rounds."""
        choice = preselect(words)
        preset = choice.preset
        config = preset.on_policy_finetune if is_typed("--on-policy-prob", words) else preset.finetune
        return WorldFinetune(choice, config, Compute())

    def run(self) -> None:
        paths = self.choice.paths
        world, latents = self.choice.checked(self.world or paths.world), self.latents or paths.latents
        out, runtime = self.out or paths.finetuned, self.compute.runtime
        self.output.show_made(stages.finetune(self.choice.spec, world, latents, self.config, out, runtime, bar))


@dataclass(frozen=True)
class WorldProbe:
    """Measure a world on held-out episodes: a linear map from latents to the physical state, and the one-step error.

    Example: leplanner world probe runs/pusht/world --data runs/pusht/data.h5
    """

    folder: WorldFolder
    """a world folder"""
    data: MaybePath = None
    """the dataset it was trained on (default: runs/TASK/data.h5)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        world = load_world(self.folder)
        task = self.named.of(get_task(world.spec.task))
        report = probe_world(world, task, open_episodes(self.data or RunPaths.of(task).data, task))
        line = f"unit: {report.unit}; one-step error: {report.one_step_error:.2%} of copying the last latent"
        self.output.show(dataclasses.asdict(report), probe_table(report, task.title), line)


@dataclass(frozen=True)
class WorldImport:
    """Import a released checkpoint, strictly: every tensor must fit, and nothing downloaded is executed.

    Actions are standardized with the training dataset's statistics, which a release does not contain: give the
    dataset, or the numbers.

    Example: leplanner world import quentinll/lewm-pusht --task pusht --data pusht_expert_train.h5
    """

    source: Source
    """folder or Hugging Face id with config.json and weights.pt (or safetensors)"""
    task: str
    """the task it was trained on"""
    family: str = "lewm"
    """the world family it belongs to"""
    data: MaybePath = None
    """the dataset it was trained on, for the action statistics"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    action_mean: MaybeFloats = None
    """instead of --data, the mean of each action dimension"""
    action_std: MaybeFloats = None
    """instead of --data, its standard deviation"""
    out: MaybePath = None
    """folder to write (default: runs/TASK/world)"""
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        task, mean, std = self.named.of(find_task(self.task)), self.action_mean, self.action_std
        if self.data is None and (mean is None or std is None):
            raise ValueError(
                "Importing needs the action statistics: give --data FILE, or --action-mean and --action-std."
            )
        statistics = self.data if self.data is not None else (mean or (), std or ())
        out = self.out or RunPaths.of(task).world
        self.output.show_made(stages.import_world(self.source, task, find_family(self.family).name, out, statistics))


@dataclass(frozen=True)
class WorldExport:
    """Write a world as its family is released: a ViT LeWM or PLDM for stable-worldmodel's `load_pretrained`.

    Example: leplanner world export runs/pusht/world --out runs/pusht/release
    """

    folder: WorldFolder
    """a world folder"""
    out: Path
    """folder for config.json and weights.pt"""
    names: str = "new"
    """ViT parameter names of transformers 5.9 and later (new) or earlier (old)"""
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        self.output.show_made(stages.export_world(self.folder, self.out, self.names))
