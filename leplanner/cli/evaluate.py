"""`leplanner evaluate`: every method over the same frozen trials, one table."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from rich.table import Table
from tyro.conf import arg

from ..artifacts import write_json
from ..data.episodes import open_episodes
from ..evaluation.latency import measure_latency
from ..evaluation.manifest import Manifest, default_budget, draw_manifest, load_manifest, save_manifest
from ..evaluation.methods import make_method
from ..evaluation.properties import SEARCH
from ..evaluation.runner import EvaluationConfig, TrialRow
from ..evaluation.runner import evaluate as run_evaluation
from ..evaluation.statistics import Rate
from ..evaluation.summary import MethodSummary, plain, summarise
from ..planner.engine import random_problem
from ..planner.planner import TaskPlanner, load_bundle
from ..tasks import get_task
from .options import Comma, Json, MaybeBundle, MaybeInt, MaybePath, TaskName, bundle_folder
from .progress import bar, console, errors


def evaluate(
    task: TaskName,
    bundle: MaybeBundle = None,
    methods: Comma = "leplanner-keep,leplanner,random,nothing,replay",
    protocol: str = "nontrivial",
    offset: int = 25,
    budget: MaybeInt = None,
    replan: Comma = "1,5",
    trials: int = 200,
    search_trials: MaybeInt = None,
    seed: int = 42,
    draws: Annotated[str | None, arg(metavar="43..53")] = None,
    data: MaybePath = None,
    baselines: MaybePath = None,
    out: MaybePath = None,
    reference: Annotated[str | None, arg(metavar="NAME")] = None,
    history: str = "padded",
    samples: int = 300,
    rounds: int = 30,
    compile_search: bool = False,
    films: int = 0,
    workers: MaybeInt = None,
    latency: bool = False,
    json_output: Json = False,
) -> int:
    """Run methods over the same trials: success with Wilson intervals, paired differences, cost.

    Trials are drawn once from the dataset and frozen in OUT/manifest.json; rows are appended to OUT/rows.jsonl as they
    finish; killed and started again it continues. Exits with 1 if a trial raised.

    Methods: leplanner (the paper's: the new plan always wins), leplanner-keep (goes on with the rest of the last plan where
    that is imagined to end nearer the goal; the same at m = 5, when plans are executed whole); cem, icem, mppi, gradient
    (search in the same world); gcidm, gcbc, gcivl, gciql (trained by `leplanner baselines`); random, nothing (floors); replay (the data's own actions, a ceiling).

    Example: leplanner evaluate tworoom --methods leplanner,cem,random,nothing,replay --trials 50

    Args:
        task: tworoom, pusht, reacher or cube.
        bundle: a shipped task's name, a bundle folder or a Hugging Face id (default: runs/TASK/planner, else the shipped one).
        methods: names, separated by commas.
        protocol: nontrivial (held-out, without pairs that are solved at once or by doing nothing), heldout, or official.
        offset: environment actions from start to goal in the data.
        budget: environment actions a trial may take (default: twice the offset).
        replan: blocks executed before planning again; several separated by commas.
        trials: how many.
        search_trials: how many for the searches, which take seconds a decision (default: all).
        seed: of the trials, and of methods that sample.
        draws: seeds FIRST..LAST: the same controller over several draws of trials; every draw is reported.
        data: dataset to draw trials from (default: runs/TASK/data.h5); not needed once the manifest exists, nor for the
            trials that a shipped bundle was measured on (nontrivial, offset 25, seed 42).
        baselines: folder of trained baselines (default: runs/TASK/baselines).
        out: folder for manifest, rows and summary (default: runs/TASK/evaluation/PROTOCOL-OFFSET-SEED).
        reference: the method that others are compared with (default: the first of --methods).
        history: padded (the first frame repeated), or real (from before the start, where the data has it).
        samples: candidates a round, of the searches.
        rounds: of the searches.
        compile_search: searches imagine through a compiled rollout: twice as fast, the same within 1e-5; needs a C++
            compiler, and minutes to compile the first time.
        films: keep frames of the first so many trials of every method, for `leplanner report`.
        workers: processes (default: one a core); each holds one environment.
        latency: afterwards time every method's decision alone, in one process, at batch 1 and 50.
        json_output: print JSON instead of tables.
    """
    spec = get_task(task)
    base = Path("runs") / task
    budget = default_budget(offset) if budget is None else budget
    if history not in ("padded", "real"):
        raise ValueError(f"--history must be padded or real; got {history!r}.")
    config = EvaluationConfig(
        methods=tuple(methods.split(",")),
        replan=_integers(replan, "--replan"),
        seed=seed,
        real_history=history == "real",
        samples=samples,
        rounds=rounds,
        trials=trials,
        search_trials=search_trials,
        compile_search=compile_search,
        films=films,
    )
    if trials is not None and trials < 1:
        raise ValueError(f"--trials must be at least 1; got {trials}.")
    if search_trials is not None and search_trials < 1:
        raise ValueError(
            f"--search-trials must be at least 1; got {search_trials}. Leave the searches out of --methods instead."
        )
    chosen = bundle_folder(bundle, task)
    trained = baselines or base / "baselines"
    trained = trained if trained.exists() else None
    reference = reference or config.methods[0]
    if reference not in config.methods:
        raise ValueError(f"The reference {reference!r} is not among --methods {methods}.")
    seeds = _draws(draws) if draws else [seed]
    reports = {}
    broken = 0
    for drawn in seeds:
        folder = out or base / "evaluation" / f"{protocol}-{offset}-{drawn}"
        folder = folder / f"draw-{drawn}" if out and draws else folder
        manifest = _manifest(folder, task, data or base / "data.h5", chosen, trials, drawn, protocol, offset, budget)
        with bar(f"evaluate {task}" + (f" draw {drawn}" if draws else ""), "trials") as update:
            solved: dict[str, list[bool]] = defaultdict(list)

            def show(row: TrialRow, done: int, total: int, solved=solved, update=update) -> None:
                if row.error is None:
                    solved[f"{row.method} m={row.replan}"].append(bool(row.success_any))
                running = "  ".join(f"{name} {np.mean(won):.0%}" for name, won in solved.items())
                update(done, total, running)

            rows = run_evaluation(
                chosen,
                folder / "manifest.json",
                dataclasses.replace(config, seed=drawn),
                folder / "rows.jsonl",
                trained,
                workers,
                show,
            )
        failed = [row for row in rows if row.error is not None]
        for row in failed[:5]:
            errors.print(f"trial {row.trial} of {row.method} raised: {row.error}", style="red", markup=False)
        broken += len(failed)
        summaries = summarise(rows, reference)
        reports[drawn] = plain(summaries, task, reference, manifest.digest, config.settings, rows)
        if not json_output:
            for table in _tables(summaries, manifest, spec.error_unit, reference):
                console.print(table)
        if latency:
            table, reports[drawn]["latency"] = _latency_table(
                config.methods, load_bundle(chosen), trained, manifest, config
            )
            if not json_output:
                console.print(table)
        write_json(folder / "summary.json", reports[drawn])
        if not json_output:
            console.print(f"{folder}  manifest {manifest.digest[:12]}, bundle {chosen}", soft_wrap=True)
    if json_output:
        print(json.dumps(reports if draws else reports[seeds[0]]))
    elif draws:
        console.print(_sweep(reports))
    if broken:
        errors.print(
            f"{broken} trials raised and count for no method; run the same command to try them again.", style="red"
        )
    return 1 if broken else 0


def _manifest(
    folder: Path, task: str, data: Path, bundle: Path, trials: int, seed: int, protocol: str, offset: int, budget: int
) -> Manifest:
    """The one that the folder has; else the one that the bundle brings, if it is of the same kind; else a new draw."""
    path, wanted = folder / "manifest.json", (task, protocol, offset, budget, seed)
    if path.exists():
        manifest = load_manifest(path)
        if manifest.setting != wanted or len(manifest.trials) < trials:
            raise ValueError(
                f"{path} holds {len(manifest.trials)} trials of {manifest.setting}; {trials} of {wanted} "
                "were asked for. Choose another --out."
            )
        return manifest
    if (bundle / "manifest.json").exists() and not data.exists():
        manifest = load_manifest(bundle / "manifest.json")
        if manifest.setting == wanted and len(manifest.trials) >= trials:
            save_manifest(manifest, path)
            return manifest
        raise ValueError(
            f"{trials} trials of {wanted} were asked for. There is no dataset at {data} to draw them from, and {bundle} brings "
            f"{len(manifest.trials)} of {manifest.setting}. Ask for those, or collect: leplanner collect {task}"
        )
    from ..tasks.swm_simulator import make_simulator

    spec, world = get_task(task), load_bundle(bundle).world.spec
    episodes = open_episodes(data, spec, in_memory=False)
    manifest = draw_manifest(
        spec,
        episodes,
        trials,
        seed,
        protocol,
        offset,
        budget,
        world.block,
        world.model.context,
        simulator=lambda: make_simulator(spec),
    )
    save_manifest(manifest, path)
    return manifest


def _integers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} takes integers separated by commas; got {text!r}.") from None


def _draws(text: str) -> list[int]:
    try:
        first, last = (int(part) for part in text.split(".."))
    except ValueError:
        raise ValueError(f"--draws takes FIRST..LAST, such as 43..53; got {text!r}.") from None
    if first > last:
        raise ValueError(f"--draws takes FIRST..LAST, the first not after the last; got {text!r}.")
    return list(range(first, last + 1))


def _tables(summaries: list[MethodSummary], manifest: Manifest, unit: str, reference: str) -> list[Table]:
    title = f"{manifest.task}, {manifest.protocol}, goals {manifest.offset} actions ahead, budget {manifest.budget}"
    success = _empty_table(f"{title}: success and its 95 % interval, %", "n", "any time", "final", "held 5", "strict")
    paired = _empty_table("any-time success, paired", "against", "difference", "95 %", "p")
    cost = _empty_table("a decision", "rows", "plan ms", "encode ms", "imagined", f"error, {unit}")
    for s in summaries:
        name, m = s.method, str(s.replan)
        rates = (_show(rate) for rate in (s.any_time, s.final, s.held, s.strict))
        success.add_row(name, m, str(s.any_time.trials), *rates)
        for other, d in s.differences.items():
            interval = f"{100 * d.low:+.1f} to {100 * d.high:+.1f}"
            paired.add_row(name, m, f"{reference} {other}", f"{100 * d.difference:+.1f}", interval, f"{d.p_value:.2g}")
        imagined = f"{s.imagined:.3f}" if s.imagined is not None else ""
        times = (f"{s.rows_a_plan:,.5g}", f"{s.plan_ms:.1f}", f"{s.encode_ms:.1f}")
        cost.add_row(name, m, *times, imagined, f"{s.final_error:.3g}")
    return [success, paired, cost] if paired.row_count else [success, cost]


def _latency_table(
    methods: tuple[str, ...], planner: TaskPlanner, baselines: Path | None, manifest: Manifest, config: EvaluationConfig
) -> tuple[Table, list[dict]]:
    """Random problems: time does not depend on them. A search takes one problem after another, so its batch of 50 is 50
    times its batch of 1 and not measured."""
    threads = torch.get_num_threads()
    table = _empty_table(f"milliseconds a decision, {threads} threads, warm", "plan", "p95", "encode", "p95", "rows")
    table.columns[1].header = "batch"
    found = []
    for batch in (1, 50):
        problem = random_problem(planner.model, batch=batch)
        for name in methods:
            if name in ("replay", "nothing", "random") or (batch > 1 and name in SEARCH):
                continue
            make = make_method(
                name, planner, baselines, manifest.budget, config.samples, config.rounds, config.compile_search
            )
            measured = measure_latency(make(manifest.trials[0]), planner.world, problem)
            found.append(dataclasses.asdict(measured))
            times = (measured.plan_ms, measured.plan_ms_p95, measured.encode_ms, measured.encode_ms_p95)
            table.add_row(name, str(batch), *(f"{ms:.1f}" for ms in times), str(measured.rows))
    return table, found


def _empty_table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    for column in ("method", "m", *columns):
        table.add_column(column, justify="left" if column in ("method", "m") else "right", no_wrap=True)
    return table


def _show(rate: Rate) -> str:
    return f"{100 * rate.value:.1f} {100 * rate.low:.0f}-{100 * rate.high:.0f}"  # with its 95 % interval


def _sweep(reports: dict[int, dict]) -> Table:
    """Every draw, its mean and its range; never the best alone."""
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    for report in reports.values():
        for method in report["methods"]:
            rates[method["method"], method["replan"]].append(100 * method["any_time"]["value"])
    table = Table(title="any-time success by draw, %")
    for title in ("method", "m", *map(str, reports), "mean", "range"):
        table.add_column(title, justify="left" if title in ("method", "m") else "right")
    for (method, m), values in rates.items():
        shown = [f"{value:.0f}" for value in values]
        table.add_row(method, str(m), *shown, f"{np.mean(values):.1f}", f"{min(values):.0f}-{max(values):.0f}")
    return table
