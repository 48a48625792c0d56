"""The verbs that run one stage each: collect, cache, density, train, baselines, decoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from ..baselines.learned import BaselineTrainConfig
from ..data.collect import CollectConfig
from ..density.train import DensityTrainConfig
from ..diagnostics.decoder import DecoderTrainConfig
from ..pipeline import stages
from ..planner.model import PlannerConfig
from ..planner.train import PlannerTrainConfig
from ..report.terminal import arrival_table
from .options import (
    Choice,
    Columns,
    Comma,
    Compute,
    Flat,
    MaybeBundle,
    MaybePath,
    Out,
    Output,
    Workers,
    is_typed,
    preselect,
    typed,
)
from .progress import bar


@dataclass(frozen=True)
class Collect:
    """Collect a dataset with the task's behavior policy, or with a planner.

    Writes stable-worldmodel's HDF5 layout, on all cores; resumable. With --policy a planner acts instead, from rows of
    training episodes towards later ones, and its episodes are added to a copy of the data: what plans
    really did, to finetune the world on and to train the planner on. PushT also adds episodes that show
    how a missed goal is corrected. With --split test it makes other episodes, in a file of their own, that only trials
    are drawn from: nothing is trained or chosen on them.

    Example: leplanner collect pusht --episodes 100 --out runs/pusht/data.h5

    Example: leplanner collect pusht --policy runs/pusht/planner --episodes 4000

    Example: leplanner collect pusht --split test
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[CollectConfig, Flat]
    workers: Annotated[Workers, Flat]
    policy: MaybeBundle = None
    """a bundle that acts instead of the behavior policy: a shipped task's name, a folder or a Hugging Face id"""
    data: MaybePath = None
    """with --policy, the dataset to start from and to add to, one that was collected (default: runs/TASK/data.h5)"""
    out: MaybePath = None
    """the file to make (default: runs/TASK/data.h5; runs/TASK/on_policy.h5 with --policy, runs/TASK/test.h5 with
    --split test)"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Collect:
        choice = preselect(words)
        preset = choice.preset
        config = preset.test_collect if typed("--split", words) == "test" else preset.collect
        return Collect(choice, preset.on_policy_collect if is_typed("--policy", words) else config, Workers())

    def run(self) -> None:
        paths = self.choice.paths
        out = self.out or (paths.on_policy_data if self.policy else paths.collected(self.config.split))
        onto = (self.data or paths.data) if self.policy else None
        executor = self.workers.executor
        self.output.show_made(stages.collect_data(self.choice.spec, self.config, out, self.policy, onto, executor, bar))


@dataclass(frozen=True)
class Cache:
    """Encode every frame of a dataset to an fp16 latent cache; resumable.

    Example: leplanner cache tworoom
    """

    choice: Annotated[Choice, Flat]
    compute: Annotated[Compute, Flat]
    world: MaybePath = None
    """world folder (default: runs/TASK/finetuned, else runs/TASK/world)"""
    bundle: MaybeBundle = None
    """instead of --world, the world of a shipped task's name, a bundle folder or a Hugging Face id"""
    data: MaybePath = None
    """dataset (default: runs/TASK/data.h5)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    out: MaybePath = None
    """cache folder (default: runs/TASK/latents)"""
    known: MaybePath = None
    """a cache of data with which these begin, such as those before on-policy episodes: only what is new is encoded"""
    batch: int = 256
    """frames encoded at once"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Cache:
        return Cache(preselect(words), Compute())

    def run(self) -> None:
        task, paths = self.named.of(self.choice.spec), self.choice.paths
        world = stages.world_of(task, self.world or paths.latest_world, self.bundle, self.choice.family)
        data, out, runtime = self.data or paths.data, self.out or paths.latents, self.compute.runtime
        self.output.show_made(stages.cache_latents(task, world, data, out, self.known, self.batch, runtime, bar))


@dataclass(frozen=True)
class Density:
    """Fit how probable an action block is under the data, given what was seen; resumable.

    A planner is trained to stay among the blocks that this density supports: those that score below the 95th percentile
    of held-out real blocks.

    Example: leplanner density tworoom
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[DensityTrainConfig, Flat]
    compute: Annotated[Compute, Flat]
    world: MaybePath = None
    """world folder (default: runs/TASK/finetuned, else runs/TASK/world)"""
    latents: MaybePath = None
    """latent cache (default: runs/TASK/latents)"""
    out: MaybePath = None
    """folder to make (default: runs/TASK/density)"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Density:
        choice = preselect(words)
        return Density(choice, choice.preset.density, Compute())

    def run(self) -> None:
        paths = self.choice.paths
        world, latents = self.choice.checked(self.world or paths.latest_world), self.latents or paths.latents
        out, runtime = self.out or paths.density, self.compute.runtime
        self.output.show_made(stages.fit_density(self.choice.spec, world, latents, self.config, out, runtime, bar))


@dataclass(frozen=True)
class Train:
    """Train a planner on a latent cache through the frozen world; resumable.

    Needs a world, its latent cache and a density (`leplanner world train`, `cache`, `density`). Makes a bundle: a
    folder that `lp.load` reads, with the weights whose held-out arrival distance was best. With --init, tasks that
    train on policy (PushT) get goals at all distances at once, and recovery problems.

    Example: leplanner train tworoom
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[PlannerTrainConfig, Flat]
    shape: Annotated[PlannerConfig, Flat]
    compute: Annotated[Compute, Flat]
    world: MaybePath = None
    """world folder (default: runs/TASK/finetuned, else runs/TASK/world)"""
    latents: MaybePath = None
    """latent cache (default: runs/TASK/latents)"""
    density: MaybePath = None
    """behavior density (default: runs/TASK/density)"""
    init: MaybePath = None
    """a bundle whose planner to begin with, e.g. on on-policy data; its world must have the same encoder"""
    out: MaybePath = None
    """bundle folder to make (default: runs/TASK/planner)"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Train:
        choice = preselect(words)
        preset = choice.preset
        training = preset.on_policy_training if is_typed("--init", words) else preset.training
        return Train(choice, training, preset.planner, Compute())

    def run(self) -> None:
        task, paths = self.choice.spec, self.choice.paths
        made = stages.make_planner(
            task,
            self.choice.checked(self.world or paths.latest_world),
            self.latents or paths.latents,
            self.density or paths.density,
            self.shape,
            self.config,
            self.out or paths.planner,
            self.compute.runtime,
            self.init,
            bar,
        )
        self.output.show_made(made, arrival_table(made.figures["metrics"], task.name))


@dataclass(frozen=True)
class Baselines:
    """Train the learned baselines on the same latent cache; resumable.

    gcidm: inverse dynamics given the goal and the time that remains. gcbc: behavior cloning. gcivl, gciql: offline
    reinforcement learning.

    Example: leplanner baselines tworoom --methods gcidm,gcbc
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[BaselineTrainConfig, Flat]
    compute: Annotated[Compute, Flat]
    methods: Comma = "gcidm,gcbc,gcivl,gciql"
    """names, separated by commas"""
    world: MaybePath = None
    """world folder (default: runs/TASK/finetuned, else runs/TASK/world)"""
    bundle: MaybeBundle = None
    """instead of --world, the world of a shipped task's name, a bundle folder or a Hugging Face id"""
    latents: MaybePath = None
    """latent cache (default: runs/TASK/latents)"""
    out: MaybePath = None
    """folder for one folder a method (default: runs/TASK/baselines)"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Baselines:
        choice = preselect(words)
        return Baselines(choice, choice.preset.baselines, Compute())

    def run(self) -> None:
        task, paths = self.choice.spec, self.choice.paths
        world = stages.world_of(task, self.world or paths.latest_world, self.bundle, self.choice.family)
        latents, out, runtime = self.latents or paths.latents, self.out or paths.baselines, self.compute.runtime
        names = tuple(self.methods.split(","))
        self.output.show_made(stages.make_baselines(task, names, world, latents, self.config, out, runtime, bar))


@dataclass(frozen=True)
class Decoder:
    """Train a decoder from latents to pixels, to look at what a planner imagines; resumable.

    A probe, trained after the fact: nothing that acts depends on it. `leplanner diagnose` draws with it. Says how far
    it can be trusted: its error on held-out frames beside that of drawing the mean frame.

    Example: leplanner decoder tworoom
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[DecoderTrainConfig, Flat]
    compute: Annotated[Compute, Flat]
    bundle: MaybeBundle = None
    """whose world to decode: a shipped task's name, a bundle folder or a Hugging Face id (default:
    runs/TASK/planner, else the shipped one)"""
    data: MaybePath = None
    """frames to learn from (default: runs/TASK/data.h5)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    out: MaybePath = None
    """folder to make (default: runs/TASK/decoder)"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Decoder:
        choice = preselect(words)
        return Decoder(choice, choice.preset.decoder, Compute())

    def run(self) -> None:
        task, paths = self.named.of(self.choice.spec), self.choice.paths
        bundle = str(paths.latest_bundle(task, self.bundle))
        world = stages.world_of(task, paths.latest_world, bundle, self.choice.family)
        data: Path = self.data or paths.data
        out, runtime = self.out or paths.decoder, self.compute.runtime
        made, _ = stages.make_decoder(task, world, data, self.config, out, runtime, bar)
        self.output.show_made(made)
