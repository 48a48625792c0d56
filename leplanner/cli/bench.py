"""`leplanner bench`: speed as a share of what the machine can do, measured in one run."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..bench.plan import bench_plan
from ..bench.train import bench_train
from ..bench.world import bench_world
from ..report.bench_terminal import plan_tables, train_tables, world_tables
from ..tasks import find_task
from ..worlds import find_family
from .options import Comma, Out, Output, TaskName, integers, names, preselect
from .progress import note


@dataclass(frozen=True)
class BenchPlan:
    """Milliseconds of a decision on the CPU: LePlanner with every engine, searches and
    learned policies on the same world.

    Also how far LePlanner is from the machine's limit, what an ONNX export costs, and how soon a new process has a
    plan. Weights are random: time does not depend on them. Everything is warm and measured one after the other in this
    process; compiling takes minutes the first time. Searches get their published budgets (300 candidates, 30 rounds)
    and batch 1: they plan a batch one problem after another. Rivals encode frames as LePlanner's last engine does.

    Example: leplanner bench plan --scale compact
    """

    task: TaskName = "pusht"
    """a registered task, or package.module:TASK; it sets the size of actions"""
    scale: str = "paper"
    """paper, compact or tiny"""
    family: str = "lewm"
    """the world model: a registered family, or package.module:FAMILY"""
    beside: Comma = ""
    """further families, planned over in the same run; for example fast-lewm"""
    engines: Comma = "eager,compiled,onnx"
    """LePlanner's engines, of eager, compiled, onnx"""
    rivals: Comma = "cem,icem,mppi,gradient,gcidm"
    """searches (cem, icem, mppi, gradient) and learned policies (gcidm, gcbc, gcivl, gciql)"""
    batches: Comma = "1,50"
    """how many problems to plan at once"""
    threads: int = field(default_factory=torch.get_num_threads)
    """CPU threads"""
    seconds: float = 10.0
    """how long each is measured after a warm-up; what takes longer is measured once"""
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        task, family, batches = find_task(self.task), find_family(self.family), integers(self.batches, "--batches")
        engines, rivals = names(self.engines), names(self.rivals)
        beside = [find_family(name).name for name in names(self.beside)]
        report = bench_plan(task, self.scale, family.name, engines, rivals, batches, self.seconds, note, beside)
        self.output.show(report, *plan_tables(report))


@dataclass(frozen=True)
class BenchWorld:
    """Frames/s of encoding and of a world training step on the CPU, beside one large matrix multiplication.

    Example: leplanner bench world pusht
    """

    task: TaskName
    """a registered task, or package.module:TASK; it sets the size of actions and may adjust the network"""
    scale: str
    """paper, compact or tiny"""
    family: str
    """the world model: a registered family, or package.module:FAMILY"""
    batch: int
    """windows in a batch"""
    repeats: int = 5
    """timed repetitions; the median counts"""
    threads: int = field(default_factory=torch.get_num_threads)
    """CPU threads"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> BenchWorld:
        choice = preselect(words, "tworoom")
        return BenchWorld(choice.task, choice.scale, choice.preset.family, choice.preset.world.optim.batch)

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        family = find_family(self.family).name
        report = bench_world(find_task(self.task), self.scale, family, self.batch, self.repeats)
        self.output.show(report, *world_tables(report))


@dataclass(frozen=True)
class BenchTrain:
    """Samples/s of a planner's training step on the CPU: plain eager fp32, and compiled as `leplanner train` runs it.

    Without the perturbed starts of some presets. The two take turns, and medians count. Weights are random: time does
    not depend on them. Compiling the fast step takes minutes the first time and seconds later; it is not counted.

    Example: leplanner bench train
    """

    task: TaskName
    """a registered task, or package.module:TASK; it sets the size of actions and the training preset"""
    scale: str
    """paper, compact or tiny"""
    family: str
    """the world model: a registered family, or package.module:FAMILY"""
    batch: int
    """problems in a batch"""
    beside: Comma = ""
    """further families, trained through in turns; for example fast-lewm"""
    repeats: int = 15
    """timed steps of each"""
    threads: int = field(default_factory=torch.get_num_threads)
    """CPU threads"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> BenchTrain:
        choice = preselect(words, "tworoom")
        return BenchTrain(choice.task, choice.scale, choice.preset.family, choice.preset.training.optim.batch)

    def run(self) -> None:
        torch.set_num_threads(self.threads)
        family = find_family(self.family).name
        beside = [find_family(name).name for name in names(self.beside)]
        report = bench_train(find_task(self.task), self.scale, family, self.batch, self.repeats, note, beside)
        self.output.show(report, *train_tables(report))
