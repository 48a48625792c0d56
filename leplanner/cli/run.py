"""`leplanner run`: every stage of a task, from nothing to a measured bundle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from rich.table import Table

from ..pipeline.run import RunOptions, plan_run
from ..pipeline.stage import run_stages
from .options import Choice, Columns, Compute, Flat, MaybePath, MaybeStr, Out, Output, Workers, preselect
from .progress import bar, errors, note


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
    compute: Annotated[Compute, Flat]
    workers: Annotated[Workers, Flat]
    world: MaybeStr = None
    """a released checkpoint (folder or Hugging Face id) to use instead of training a world; needs --data"""
    data: MaybePath = None
    """a dataset to use instead of collecting one; with --world, the one that it was trained on"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    out: MaybePath = None
    """folder for everything (default: runs/TASK)"""
    trials: int = 200
    """of the evaluation"""
    search_trials: int = 50
    """how many of them a search gets, if the family's own planner is one (CEM, MPPI: seconds a decision); 0: none"""
    offset: int = 25
    """environment actions from start to goal in the data"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Run:
        return Run(preselect(words), Compute(), Workers())

    def run(self) -> None:
        choice, runtime, executor = self.choice, self.compute.runtime, self.workers.executor
        paths = type(choice.paths)(self.out) if self.out else choice.paths
        options = RunOptions(self.world, self.data, self.trials, self.search_trials, self.offset)
        plan = plan_run(self.named.of(choice.spec), choice.preset, paths, options, runtime, executor, bar)
        made: list[Any] = []

        def on_result(result: Any) -> None:
            note(str(result))
            made.append(result.plain)

        spent = run_stages(
            plan, paths.minutes, lambda number, stage: errors.rule(f"{number}/{len(plan)} {stage.name}"), on_result
        )
        table = Table(title="minutes, over all calls that ended by themselves")
        for name in spent:
            table.add_column(name, justify="right")
        table.add_row(*(f"{minutes:.1f}" for minutes in spent.values()))
        data = {"bundle": paths.bundle, "report": paths.report, "minutes": spent}
        stages = {stage.name: result for stage, result in zip(plan, made, strict=True)}
        self.output.show(data | {"stages": stages}, table, f"bundle: {paths.bundle}   report: {paths.report}")
