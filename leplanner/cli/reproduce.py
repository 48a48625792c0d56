"""`leplanner reproduce`: the paper's tables and figures of a task, each beside what the paper prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from rich.table import Table

from ..control.methods import SearchBudget
from ..pipeline.paths import RunPaths
from ..pipeline.presets import default_recipe
from ..pipeline.reproduction import PAGE, ReproduceOptions, plan_reproduction, reproduce
from ..tasks import find_task
from .options import (
    Columns,
    Comma,
    Compute,
    Flat,
    MaybePath,
    MaybeStr,
    Out,
    Output,
    TaskName,
    Workers,
    integers,
    names,
    span,
)
from .progress import bar, errors


@dataclass(frozen=True)
class Reproduce:
    """Make the paper's tables and figures of a task, each beside what the paper prints.

    One world, one set of planners and trials for everything. Planners are trained by the paper's recipe and nothing
    else; the world by the recipe that you name. Trials come from test episodes. Makes a file for each part and a page
    in runs/TASK/reproduction. Resumable: what is finished is kept, and parts can be made one by one.

    Parts: inputs (environment, data, networks, goals), claim (fixed-terminal against arrival-and-hold, and each part of
    the objective), symptom (more budget), arrival (when plans arrive), loop (where the closed loop settles), refinement
    (what refinements gain), success (every rival), wall-clock (seconds an episode), draws (other draws of trials),
    pictures (decoded plans, executed episodes). Claim and symptom are of PushT, as in the paper.

    Example: leplanner reproduce pusht

    Example: leplanner reproduce pusht --part claim --seeds 0,1,2

    Example: leplanner reproduce pusht --scale paper --world quentinll/lewm-pusht --data pusht_expert_train.h5
    """

    task: TaskName
    """a registered task, or package.module:TASK"""
    compute: Annotated[Compute, Flat]
    workers: Annotated[Workers, Flat]
    part: Comma = "all"
    """parts to make, separated by commas"""
    scale: str = "compact"
    """paper, compact or tiny: how large"""
    world_recipe: MaybeStr = None
    """how the world is trained: paper (from pixels and actions alone, not finetuned) or best (default: best, at paper
    scale paper)"""
    family: str = "lewm"
    """the world model: a registered family, or package.module:FAMILY"""
    effort: float = 1.0
    """training steps of every stage, as a fraction of the presets'"""
    world: MaybeStr = None
    """a released checkpoint (folder or Hugging Face id) to use instead of training a world; needs --data"""
    data: MaybePath = None
    """a dataset to use instead of collecting one; trials are then from its held-out episodes, and draws from all"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    base: MaybePath = None
    """folder of the task's artifacts (default: runs/TASK)"""
    trials: int = ReproduceOptions.trials
    """of every table"""
    search_trials: int = ReproduceOptions.search_trials
    """of the searches, which take seconds a decision"""
    samples: int = SearchBudget.samples
    """candidates per round of a search"""
    rounds: int = SearchBudget.rounds
    """rounds of a search"""
    compile_search: bool = False
    """searches imagine through a compiled rollout; needs a C++ compiler"""
    seeds: Comma = "0,1,2"
    """training seeds of the two main objectives; other variants are trained with the first"""
    draws: str = "43..53"
    """seeds FIRST..LAST of the draws of trials"""
    draw_trials: int = ReproduceOptions.draw_trials
    """trials in a draw"""
    timed_trials: int = ReproduceOptions.timed_trials
    """episodes of every method whose seconds are measured"""
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        task = self.named.of(find_task(self.task))
        options = ReproduceOptions(
            world=self.world,
            data=self.data,
            trials=self.trials,
            search_trials=self.search_trials,
            search=SearchBudget(self.samples, self.rounds, self.compile_search),
            seeds=integers(self.seeds, "--seeds"),
            draws=span(self.draws, "--draws"),
            draw_trials=self.draw_trials,
            timed_trials=self.timed_trials,
        )
        recipe = self.world_recipe or default_recipe(self.scale)
        paths, runtime, executor = RunPaths.of(task, self.base), self.compute.runtime, self.workers.executor
        reproduction = plan_reproduction(
            task, self.scale, self.family, self.effort, recipe, paths, options, runtime, executor, bar
        )
        chosen = () if self.part == "all" else names(self.part)
        found = reproduce(reproduction, chosen, errors.rule)
        page = reproduction.out / PAGE
        self.output.show({"parts": found, "report": page}, *map(_table, found.values()), f"report: {page}")


def _table(facts: dict[str, Any]) -> Table:
    table = Table(title=facts["title"])
    for column in ("what", "paper", "here"):
        table.add_column(column)
    for row in facts["beside"]:
        table.add_row(row["what"], row["paper"], row["here"])
    return table
