"""`leplanner evaluate`: every method over the same frozen trials, one table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any

from tyro.conf import arg

from ..artifacts import write_json
from ..control.methods import SearchBudget
from ..core.registry import match_name
from ..evaluation.latency import measure_methods
from ..evaluation.manifest import default_budget
from ..evaluation.protocols import PROTOCOLS
from ..evaluation.runner import EvaluationConfig
from ..pipeline.evaluating import Draw, evaluate_folder
from ..planner.planner import load_bundle
from ..report.terminal import evaluation_tables, latency_table, sweep_table
from .options import (
    Choice,
    Columns,
    Comma,
    Flat,
    MaybeBundle,
    MaybeInt,
    MaybePath,
    MaybeStr,
    Out,
    Output,
    Workers,
    integers,
    preselect,
    span,
)
from .progress import bar, errors, note


@dataclass(frozen=True)
class Evaluate:
    """Run methods over the same trials: success with Wilson intervals, paired differences, cost.

    Trials are frozen in OUT/manifest.json: those that the bundle was measured on where it brings them (shipped ones
    do), else drawn from the dataset. Rows are appended to OUT/rows.jsonl as they finish; resumable, and more --trials
    continue an earlier evaluation. Exits with 1 if a trial raised.

    Methods: leplanner (the paper's: the new plan always wins), leplanner-reuse (follows what remains of the last plan
    where that is imagined to end nearer the goal; the same where plans are executed whole); cem, icem, mppi, gradient
    (search in the same world); tdmpc2 (that family's own planner); gcidm, gcbc, gcivl, gciql (trained by `leplanner
    baselines`); random, no-op (floors); replay (the data's own actions, a ceiling).

    Example: leplanner evaluate tworoom --methods leplanner,cem,random,no-op,replay --trials 50
    """

    choice: Annotated[Choice, Flat]
    workers: Annotated[Workers, Flat]
    bundle: MaybeBundle = None
    """a shipped task's name, a bundle folder or a Hugging Face id (default: runs/TASK/planner, else the shipped one)"""
    methods: Comma = "leplanner-reuse,leplanner,random,no-op,replay"
    """names, separated by commas"""
    protocol: str = "nontrivial"
    """which trials: nontrivial (held-out, without pairs solved at the start or by doing nothing), heldout, official (as
    LeWM's own evaluation draws them), moderate or strict (CLEAR-LeWM's v0.9; moderate-v0.8 and strict-v0.8 start with
    the recorded velocities)"""
    offset: int = 25
    """environment actions from start to goal in the data"""
    budget: MaybeInt = None
    """environment actions a trial may take (default: twice the offset)"""
    replan: Annotated[str | None, arg(help_behavior_hint="", metavar="A,B")] = None
    """blocks executed before planning again, separated by commas (default: 1 and the whole plan)"""
    trials: int = 200
    """how many"""
    search_trials: MaybeInt = None
    """how many for the searches, which take seconds a decision (default: all)"""
    seed: int = 42
    """of the trials, and of methods that sample"""
    draws: Annotated[str | None, arg(help_behavior_hint="", metavar="43..53")] = None
    """seeds FIRST..LAST: the same controller over several draws of trials; every draw is reported"""
    data: MaybePath = None
    """draw trials from this dataset, also where the bundle brings its own (default: the bundle's trials if they are of
    this protocol, offset, budget and seed; else drawn from the test episodes in runs/TASK/test.h5, or without those
    from the held-out episodes in runs/TASK/data.h5)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    baselines: MaybePath = None
    """folder of trained baselines (default: runs/TASK/baselines)"""
    out: MaybePath = None
    """folder for manifest, rows and summary (default: runs/TASK/evaluation/PROTOCOL-OFFSET-SEED)"""
    reference: MaybeStr = None
    """the method that others are compared with (default: the first of --methods)"""
    history: str = "padded"
    """padded (the first frame repeated), or real (from before the start, where the data has it)"""
    samples: int = 300
    """candidates a round, of the searches"""
    rounds: int = 30
    """of the searches"""
    compile_search: bool = False
    """searches imagine through a compiled rollout: twice as fast, the same within 1e-5; needs a C++ compiler, and
    minutes to compile the first time"""
    device: str = "cpu"
    """that encodes and plans: cpu, cuda, mps, or auto; environments run on the CPU"""
    videos: int = 0
    """keep frames of the first so many trials of every method, for `leplanner report`"""
    latency: bool = False
    """afterwards time every method's decision alone, in one process, at batch 1 and 50"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Evaluate:
        return Evaluate(preselect(words), Workers())

    def run(self) -> int:
        task, paths = self.named.of(self.choice.spec), self.choice.paths
        protocol = PROTOCOLS.get(self.protocol).name
        history = match_name("history", self.history, ("padded", "real"))
        if self.trials < 1 or (self.search_trials is not None and self.search_trials < 1):
            raise ValueError(
                f"--trials and --search-trials must be at least 1; got {self.trials} and {self.search_trials}. Leave "
                "searches out of --methods instead."
            )
        seeds = span(self.draws, "--draws") if self.draws else [self.seed]
        bundle = self.choice.checked(paths.latest_bundle(task, self.bundle))
        horizon = load_bundle(bundle).model.config.horizon
        config = EvaluationConfig(
            methods=tuple(self.methods.split(",")),
            replan=integers(self.replan, "--replan") if self.replan else tuple(dict.fromkeys((1, horizon))),
            real_history=history == "real",
            search=SearchBudget(self.samples, self.rounds, self.compile_search),
            trials=self.trials,
            search_trials=self.search_trials,
            videos=self.videos,
            device=self.device,
        )
        trained = self.baselines or paths.baselines
        trained = trained if trained.exists() else None
        budget = default_budget(self.offset) if self.budget is None else self.budget
        reports: dict[int, dict[str, Any]] = {}
        shown: list[Any] = []
        broken = 0
        for seed in seeds:
            folder = self.out or paths.evaluation(protocol, self.offset, seed)
            folder = folder / f"draw-{seed}" if self.out and self.draws else folder
            draw = Draw(self.trials, seed, protocol, self.offset, budget)
            evaluated = evaluate_folder(
                task,
                bundle,
                self.data or paths.trials_data,
                draw,
                dataclasses.replace(config, seed=seed),
                folder,
                trained,
                self.reference,
                self.workers.executor,
                bar,
                f"evaluate {task.name}" + (f" draw {seed}" if self.draws else ""),
                named_data=self.data is not None,
                say=note,
            )
            reports[seed] = evaluated.report
            for row in evaluated.raised[:5]:
                errors.print(f"trial {row.trial} of {row.method} raised: {row.error}", style="red")
            broken += len(evaluated.raised)
            shown += evaluation_tables(
                evaluated.summaries, evaluated.manifest, task.error_unit, evaluated.report["reference"]
            )
            if self.latency:
                timed = measure_methods(config.methods, load_bundle(bundle), trained, budget, config.search)
                reports[seed]["latency"] = [dataclasses.asdict(latency) for latency in timed]
                write_json(folder / "summary.json", reports[seed])
                shown.append(latency_table(reports[seed]["latency"]))
            shown.append(f"{folder}  manifest {evaluated.manifest.digest[:12]}, bundle {bundle}")
            reports[seed] |= {"path": folder, "bundle": bundle}
        if self.draws:
            shown.append(sweep_table(reports))
        self.output.show(reports if self.draws else reports[seeds[0]], *shown)
        if broken:
            again = "run the same command to try them again."
            errors.print(f"{broken} trials raised and count for no method; {again}", style="red")
        return 1 if broken else 0
