"""`leplanner run`: every stage of a task, from nothing to a measured bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rich.table import Table

from ..pipeline.run import RunOptions, plan_run
from ..pipeline.stage import run_stages
from .options import Choice, Compute, MaybePath, MaybeStr, Workers
from .progress import bar, console
from .stages import Flat, show_result


@dataclass(frozen=True)
class Run:
    """Everything for one task: collect, train the world, cache, finetune it, density,
    planner, GC-IDM, evaluate, report.

    PushT also trains on policy: the planner collects, the world is finetuned on what its plans really did, and the
    planner is trained on through it.

    Resumable: a stage whose artifact is there is skipped. The artifact of other settings is never overwritten: choose
    another --out, or delete that stage's folder. Ends with OUT/bundle, ready to load, with its model card.

    Example: leplanner run tworoom

    Example: leplanner run pusht --scale paper --world quentinll/lewm-pusht --data pusht_expert_train.h5
    """

    choice: Annotated[Choice, Flat]
    on: Annotated[Compute, Flat]
    spread: Annotated[Workers, Flat]
    world: MaybeStr = None
    """a released checkpoint (folder or Hugging Face id) to use instead of training a world; needs --data"""
    data: MaybePath = None
    """a dataset to use instead of collecting one; with --world, the one that it was trained on"""
    out: MaybePath = None
    """folder for everything (default: runs/TASK)"""
    trials: int = 200
    """of the evaluation"""
    search_trials: int = 50
    """how many of them CEM gets, which takes seconds a decision; 0: no CEM"""
    offset: int = 25
    """environment actions from start to goal in the data"""

    @staticmethod
    def default(choice: Choice, words: list[str]) -> Run:
        return Run(choice, Compute(), Workers())

    def run(self) -> None:
        choice = self.choice
        paths = type(choice.paths)(self.out) if self.out else choice.paths
        options = RunOptions(self.world, self.data, self.trials, self.search_trials, self.offset)
        plan = plan_run(choice.spec, choice.preset, paths, options, self.on.runtime, self.spread.executor, bar)
        spent = run_stages(
            plan,
            paths.minutes,
            lambda number, stage: console.rule(f"{number}/{len(plan)} {stage.name}"),
            show_result,
        )
        table = Table(title="minutes, over all calls that ended by themselves")
        for name in spent:
            table.add_column(name, justify="right")
        table.add_row(*(f"{minutes:.1f}" for minutes in spent.values()))
        console.print(table)
        console.print(f"bundle: {paths.bundle}   report: {paths.report}")
