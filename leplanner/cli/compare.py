"""`leplanner compare`: families of world models on the same data, trials and budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ..control.methods import SearchBudget
from ..pipeline.comparing import CompareOptions, find_rivals, run_comparison
from ..pipeline.paths import RunPaths
from ..report.comparison import comparison_tables
from ..tasks import find_task
from ..worlds import FAMILIES
from .options import Columns, Comma, Compute, Flat, MaybePath, MaybeStr, Out, Output, TaskName, Workers, names
from .progress import bar, errors


@dataclass(frozen=True)
class Compare:
    """Which world model, and which planner through it? Train families on the same data, run them over the same trials.

    Each family gets the stages of a run (world, cache, finetuning, density, planner) in runs/TASK/families/NAME, and
    is measured with the planner of its authors and with LePlanner, replanning after one block and after a whole plan.
    Nothing is trained on policy, since planners would collect different data. Decisions are timed at the end, all
    families in turns in one process.

    Resumable: what is finished is skipped, also what the single verbs made with --base runs/TASK/families/NAME.
    Families and trials can be added later. Makes comparison.json, table.md and a figure in runs/TASK/comparison.

    Example: leplanner compare tworoom --families lewm,fast-lewm,pldm,dino-wm,tdmpc2

    Example: leplanner compare tworoom --families lewm,my_package.worlds:FAMILY --search-trials 0
    """

    task: TaskName
    """a registered task, or package.module:TASK"""
    compute: Annotated[Compute, Flat]
    workers: Annotated[Workers, Flat]
    families: Comma = field(default_factory=lambda: ",".join(FAMILIES))
    """registered families, or package.module:FAMILY; the first is the reference"""
    scale: str = "compact"
    """paper, compact or tiny: how large"""
    recipe: MaybeStr = None
    """paper or best: how worlds and planners are trained (default: best, at paper scale paper)"""
    effort: float = 1.0
    """training steps of every stage, as a fraction of the presets'"""
    base: MaybePath = None
    """folder of the task's artifacts (default: runs/TASK)"""
    data: MaybePath = None
    """the dataset of all families (default: runs/TASK/data.h5, collected if it is missing)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    out: MaybePath = None
    """folder for the results (default: runs/TASK/comparison), with a folder of rows for each family"""
    trials: int = 200
    """nontrivial held-out trials, the same for every family"""
    search_trials: int = 50
    """trials for searches, which take seconds a decision; 0: no searches"""
    offset: int = 25
    """environment actions from start to goal in the data"""
    samples: int = 300
    """candidates per round of a search"""
    rounds: int = 30
    """rounds of a search"""
    compile_search: bool = False
    """searches imagine through a compiled rollout; needs a C++ compiler"""
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        task = self.named.of(find_task(self.task))
        paths = RunPaths.of(task, self.base)
        rivals = find_rivals(task, names(self.families), self.scale, self.recipe, paths, self.effort)
        search, out = SearchBudget(self.samples, self.rounds, self.compile_search), self.out or paths.comparison
        options = CompareOptions(self.data, self.trials, self.search_trials, self.offset, search)
        runtime, executor = self.compute.runtime, self.workers.executor
        report = run_comparison(task, rivals, paths, out, options, runtime, executor, bar, errors.rule)
        tables = (table.rich for table in comparison_tables(report))
        self.output.show(report | {"path": out}, *tables, f"{out}  manifest {report['manifest'][:12]}")
