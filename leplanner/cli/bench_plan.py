"""`leplanner bench plan`: what a decision costs by every engine and every rival, in one run."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from ..baselines.gcidm import GCIDM, GCIDMConfig
from ..baselines.learned import LearnedPolicy
from ..control.policy import PlannerPolicy, Policy
from ..core.actions import ActionBox
from ..evaluation.latency import Latency, measure_latency
from ..evaluation.limits import Machine, PlanWork, measure_machine, plan_work
from ..evaluation.methods import make_method
from ..evaluation.properties import SEARCH
from ..pipeline.presets import BLOCK, get_scale
from ..planner.engines.engine import ENGINES, OnnxEncoder, random_problem
from ..planner.model import LePlanner
from ..planner.planner import TaskPlanner, save_bundle
from ..worlds.lewm.model import LeWM
from ..worlds.world import World, WorldSpec
from .options import Comma, Json, MaybeInt, TaskName
from .progress import console, errors

# the first part of a deployment, in a process of its own: what it takes until there is a plan
_FIRST_PLAN = """
import json, pathlib, sys, time
began = time.perf_counter()
import leplanner as lp
imported = time.perf_counter() - began
import torch
torch.set_num_threads(int(sys.argv[2]))
def memory(field):
    status = pathlib.Path("/proc/self/status")  # Linux's
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith(field)), None)
def beyond(field):
    now = memory(field)
    return None if now is None else now - before
before, began = memory("VmRSS"), time.perf_counter()
planner = lp.load(sys.argv[1])
loaded = time.perf_counter()
from leplanner.planner.engine import random_problem
planner.plan(random_problem(planner.model))
planned = time.perf_counter()
print(json.dumps({"import_s": imported, "load_s": loaded - began, "first_plan_s": planned - loaded,
                  "resident_mb": beyond("VmRSS"), "peak_mb": beyond("VmHWM")}))
"""


@dataclass(frozen=True)
class Row:
    method: str
    engine: str
    batch: int
    encode_ms: float
    encode_ms_p95: float
    plan_ms: float
    plan_ms_p95: float
    rows: int
    repeats: int


def plan(
    task: TaskName = "pusht",
    scale: str = "paper",
    engines: Comma = "eager,compiled,onnx",
    rivals: Comma = "cem,icem,mppi,gradient,gcidm",
    batches: Comma = "1,50",
    threads: MaybeInt = None,
    seconds: float = 10.0,
    json_output: Json = False,
) -> None:
    """Milliseconds of a decision on the CPU: ours by every engine, stable-worldmodel's searches and GC-IDM on the same
    world, and how far ours is from what the machine can do. Rivals encode frames as our last engine does.

    Random weights: time does not depend on them. Everything is warm and measured one after the other in this process;
    compiling takes minutes the first time. Searches get their published budgets (300 candidates, 30 rounds) and
    batch 1: they plan a batch one row after another.

    Example: leplanner bench plan --scale compact

    Args:
        task: tworoom, pusht, reacher or cube; it sets the action size.
        scale: paper, compact or tiny.
        engines: ours, of eager, compiled, onnx.
        rivals: of cem, icem, mppi, gradient, gcidm.
        batches: problems planned at once.
        threads: CPU threads (default: torch's).
        seconds: how long each is measured after a warm-up; what takes longer is measured once.
        json_output: print JSON instead of tables.
    """
    if threads:
        torch.set_num_threads(threads)
    wanted = [name for name in engines.split(",") if name]
    others = [name for name in rivals.split(",") if name]
    known = (*SEARCH, "gcidm")
    if not set(others) <= set(known) or not set(wanted) <= set(ENGINES):
        raise ValueError(
            f"--engines are of {', '.join(ENGINES)}, --rivals of {', '.join(known)}; got {engines} and {rivals}."
        )
    if not all(size.isdigit() and int(size) > 0 for size in batches.split(",")):
        raise ValueError(f"--batches takes positive integers separated by commas; got {batches!r}.")
    sizes = [int(size) for size in batches.split(",")]
    planner = random_planner(task, scale)

    def note(what: str) -> None:
        if not json_output:
            errors.print(f"{what} ...", highlight=False)

    machine = measure_machine()
    rows: list[Row] = []
    for engine in wanted:
        note(f"leplanner, {engine}")
        ours = TaskPlanner(planner.world, planner.model, engine=engine)
        planner.world.encoder = OnnxEncoder(planner.world) if engine == "onnx" else None
        rows += [
            _row(PlannerPolicy(ours, keep), engine, planner, size, seconds) for keep in (False, True) for size in sizes
        ]
    for name in others:
        note(name)
        rows += [
            _row(_rival(name, planner), "torch", planner, size, seconds)
            for size in sizes
            if size == 1 or name not in SEARCH
        ]
    note("the first plan of a new process")
    report = {"task": task, "scale": scale, "threads": torch.get_num_threads(), "torch": torch.__version__}
    work = plan_work(planner)
    report |= {"machine": dataclasses.asdict(machine), "work": dataclasses.asdict(work)}
    report |= {"least_ms": machine.least_ms(work), "rows": [dataclasses.asdict(row) for row in rows]}
    report |= {"ratios": ratios(rows, machine, work), "first_plan": _first_plan(planner)}
    if json_output:
        print(json.dumps(report))
    else:
        _print(report, rows)


def random_planner(task: str, scale: str) -> TaskPlanner:
    preset = get_scale(scale, task)
    size = preset.model.block_dim // BLOCK
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        spec = WorldSpec(task, preset.model, BLOCK, (0.0,) * size, (1.0,) * size)
        return TaskPlanner(
            World(LeWM(preset.model), spec), LePlanner(preset.planner_for(preset.model), ActionBox.of(spec))
        )


def _rival(name: str, planner: TaskPlanner) -> Policy:
    if name == "gcidm":
        spec = planner.world.spec
        return LearnedPolicy(
            GCIDM(spec.model.latent, spec.model.block_dim, spec.block, GCIDMConfig()), ActionBox.of(spec)
        )
    return make_method(name, planner, None, budget=50)(None)  # type: ignore[arg-type]  # no search looks at its trial


def _row(policy: Policy, engine: str, planner: TaskPlanner, batch: int, seconds: float) -> Row:
    problem = random_problem(planner.model, batch=batch)
    least = 0 if policy.name in SEARCH else 1
    latency: Latency = measure_latency(policy, planner.world, problem, seconds, least)
    return Row(policy.name, engine, **{k: v for k, v in dataclasses.asdict(latency).items() if k != "method"})


def ratios(rows: list[Row], machine: Machine, work: PlanWork) -> dict[str, float]:
    """Only those whose parts were measured."""
    found = {(row.method, row.engine, row.batch): row for row in rows}
    ours = [row for row in rows if row.method == "leplanner"]
    best = {
        size: min((r for r in ours if r.batch == size), key=lambda r: r.plan_ms) for size in {r.batch for r in ours}
    }
    if 1 not in best:
        return {}
    one = best[1]
    made = {"plan time / the machine's limit": one.plan_ms / machine.least_ms(work)}
    for name in (*SEARCH, "gcidm"):
        if (name, "torch", 1) in found:
            made[f"{name} plan time / ours"] = found[name, "torch", 1].plan_ms / one.plan_ms
    if ("leplanner", "eager", 1) in found:
        made["our eager / our fastest"] = found["leplanner", "eager", 1].plan_ms / one.plan_ms
    if ("leplanner-reuse", one.engine, 1) in found:
        made["keeping the last plan where it is nearer / always the new one"] = (
            found["leplanner-reuse", one.engine, 1].plan_ms / one.plan_ms
        )
    for size in sorted(set(best) - {1}):
        made[f"plans/s at batch {size} / at batch 1"] = size * one.plan_ms / best[size].plan_ms
    if ("gcidm", "torch", 1) in found:
        idm = found["gcidm", "torch", 1]
        made["GC-IDM / ours, encode + plan per action (m = 1)"] = (idm.encode_ms + idm.plan_ms) / (
            (one.encode_ms + one.plan_ms) / BLOCK
        )
    return made


def _first_plan(planner: TaskPlanner) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        save_bundle(planner, Path(folder))
        command = [sys.executable, "-c", _FIRST_PLAN, folder, str(torch.get_num_threads())]
        done = subprocess.run(command, capture_output=True, text=True)
    return (
        json.loads(done.stdout)
        if done.returncode == 0
        else {"error": (done.stderr.strip() or "the process was killed").splitlines()[-1]}
    )


def _print(report: dict[str, Any], rows: list[Row]) -> None:
    machine, work = report["machine"], report["work"]
    table = Table(
        title=f"a decision, {report['scale']} scale, {report['threads']} threads, milliseconds (median and 95 %)"
    )
    for title in ("method", "engine", "batch", "encode", "95 %", "plan", "95 %", "rows", "repeats"):
        table.add_column(title, justify="left" if title in ("method", "engine") else "right")
    for row in rows:
        times = (f"{ms:.3g}" if ms < 1000 else f"{ms:,.0f}" for ms in dataclasses.astuple(row)[3:7])
        table.add_row(row.method, row.engine, str(row.batch), *times, f"{row.rows:,}", str(row.repeats))
    console.print(table)
    console.print(
        f"one plan: {work['gflop']:.2f} GFLOP, {work['weights_mb']:.0f} MB of weights read; here a matrix multiplication "
        f"reaches {machine['matmul_gflop_per_s']:.0f} GFLOP/s and a copy moves {machine['copy_gb_per_s']:.1f} GB/s: "
        f"{report['least_ms']:.1f} ms at that speed"
    )
    shown = Table(show_header=False, title="ratios")
    for name, value in report["ratios"].items():
        shown.add_row(name, f"{value:,.1f}")
    console.print(shown)
    first = report["first_plan"]
    if "error" in first:
        errors.print(f"the first plan of a new process failed: {first['error']}", style="red", markup=False)
        return
    memory = "" if first["resident_mb"] is None else f", {first['resident_mb']:.0f} MB resident beyond torch"
    memory += "" if first["peak_mb"] is None else f" ({first['peak_mb']:.0f} at the peak)"
    console.print(
        f"new process: import {first['import_s']:.2f} s, load {first['load_s']:.2f} s after torch's import, first plan "
        f"{first['first_plan_s']:.2f} s{memory}"
    )
