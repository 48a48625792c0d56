"""What a decision costs with every engine and every rival, what an ONNX export costs, and what a new process needs for
its first plan: all in one run."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..baselines.learned import LEARNED, BaselineNetwork, LearnedPolicy
from ..control.methods import METHODS, MethodInputs, methods_of
from ..control.policy import PlannerPolicy, Policy
from ..core.dynamics import capability
from ..core.registry import match_name, plugins
from ..evaluation.latency import measure_latency
from ..evaluation.limits import Machine, PlanWork, measure_machine, plan_work
from ..pipeline.presets import get_preset
from ..planner.engines import ENGINES, random_problem
from ..planner.engines.onnx import missing_packages, onnx_session
from ..planner.engines.onnx_models import encoder_model
from ..planner.engines.plan_graph import plan_graph
from ..planner.engines.traced import traced_encoder, traced_plan
from ..planner.planner import Planner, planner_for, save_bundle
from ..tasks import Task
from ..training.runtime import seeded
from ..worlds import World, WorldSpec
from . import Note, median_seconds, no_note
from .world import unit_actions

ENGINE_NAMES = ("eager", "compiled", "onnx")
RIVALS = ("cem", "icem", "mppi", "gradient", "gcidm")
BY_HAND, TRACED = "by hand", "traced"  # ways to an ONNX graph

# the first part of a deployment, in a process of its own: what it takes until there is a plan
_FIRST_PLAN = """
import json, pathlib, sys, time
began = time.perf_counter()
import leplanner as lp
imported = time.perf_counter() - began
import torch
torch.set_num_threads(int(sys.argv[2]))
from leplanner.core.registry import load_plugins
load_plugins(json.loads(sys.argv[3]))  # a family that the measuring process was given as package.module:FAMILY
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
from leplanner.planner.engines import random_problem
planner.plan(random_problem(planner.model))
planned = time.perf_counter()
print(json.dumps({"import_s": imported, "load_s": loaded - began, "first_plan_s": planned - loaded,
                  "resident_mb": beyond("VmRSS"), "peak_mb": beyond("VmHWM")}))
"""


@dataclass(frozen=True)
class Row:
    family: str
    method: str
    engine: str
    batch: int
    encode_ms: float
    encode_ms_p95: float
    plan_ms: float
    plan_ms_p95: float
    transitions: int  # of the predictor, a problem
    repeats: int
    calls: int | None = None  # predictor calls one after another, where the method says so


def random_planner(task: Task, scale: str, family: str = "lewm") -> Planner:
    """World and planner with the weights of seed 0: time does not depend on them."""
    preset = get_preset(task, scale, family=family)
    with seeded(0):
        world = World.build(WorldSpec(preset.family, task.name, preset.network, unit_actions(task, preset.block)))
        return Planner(world, planner_for(world, preset.planner))


def bench_plan(
    task: Task,
    scale: str = "paper",
    family: str = "lewm",
    engines: Sequence[str] = ENGINE_NAMES,
    rivals: Sequence[str] = RIVALS,
    batches: Sequence[int] = (1, 50),
    seconds: float = 10.0,
    note: Note = no_note,
    beside: Sequence[str] = (),
) -> dict[str, Any]:
    """On the CPU with torch's current threads; everything is warm and measured one after the other in this process.
    `seconds`: how long each is measured after a warm-up. `beside`: further families over which LePlanner plans, each
    engine right after `family`'s. Rivals encode frames as our last engine does. Searches get
    their published budgets and batch 1: they plan a batch one problem after another."""
    _check(engines, rivals, batches)
    planner = random_planner(task, scale, family)
    planners = {name: random_planner(task, scale, name) if name != family else planner for name in (family, *beside)}
    ours = {
        (engine, name): Planner(over.world, over.model, engine=engine)
        for engine in engines
        for name, over in planners.items()
    }
    searches = methods_of("search")
    machine = measure_machine()
    rows: list[Row] = []

    def measure(over: str, policy: Policy, engine: str, encoding: Planner, batch: int) -> None:
        problem = random_problem(encoding.model, batch=batch)
        latency = measure_latency(policy, encoding, problem, seconds, least=0 if policy.name in searches else 1)
        rows.append(Row(family=over, engine=engine, **dataclasses.asdict(latency)))

    for (engine, over), with_engine in ours.items():
        note(f"leplanner over {over}, {engine}")
        for reuse in (False, True):
            for batch in batches:
                measure(over, PlannerPolicy(with_engine, reuse), engine, with_engine, batch)
    encoding = ours[engines[-1], family] if engines else planner
    for name in rivals:
        note(name)
        policy = _rival(name, planner)
        for batch in batches:
            if batch == 1 or name not in searches:
                measure(family, policy, "torch", encoding, batch)
    note("ONNX export")
    export = bench_export(planner)
    note("the first plan of a new process")
    work = plan_work(planner)
    report = {"task": task.name, "scale": scale, "family": family}
    report |= {"threads": torch.get_num_threads(), "torch": torch.__version__}
    report |= {"machine": dataclasses.asdict(machine), "work": dataclasses.asdict(work)}
    report |= {"least_ms": machine.least_ms(work), "rows": [dataclasses.asdict(row) for row in rows]}
    of_family = [row for row in rows if row.family == family]
    compared = ratios(of_family, machine, work, planner.model.actions.block) | family_ratios(rows, family)
    report |= {"ratios": compared, "export": export}
    return report | {"first_plan": _first_plan(planner)}


def ratios(rows: Sequence[Row], machine: Machine, work: PlanWork, block: int) -> dict[str, float]:
    """Only those whose parts were measured. `block`: environment actions in a block, which a
    plan's first decision executes."""
    by_key = {(row.method, row.engine, row.batch): row for row in rows}
    fastest: dict[int, Row] = {}
    for row in rows:
        if row.method == "leplanner" and (row.batch not in fastest or row.plan_ms < fastest[row.batch].plan_ms):
            fastest[row.batch] = row
    if 1 not in fastest:
        return {}
    one = fastest[1]
    values = {"plan time / the machine's limit": one.plan_ms / machine.least_ms(work)}
    single = {row.method: row for row in rows if row.engine == "torch" and row.batch == 1}
    for name, row in single.items():
        values[f"{name} plan time / ours"] = row.plan_ms / one.plan_ms
    if ("leplanner", "eager", 1) in by_key:
        values["our eager / our fastest"] = by_key["leplanner", "eager", 1].plan_ms / one.plan_ms
    if ("leplanner-reuse", one.engine, 1) in by_key:
        values["with plan reuse / without"] = by_key["leplanner-reuse", one.engine, 1].plan_ms / one.plan_ms
    for batch in sorted(set(fastest) - {1}):
        values[f"plans/s at batch {batch} / at batch 1"] = batch * one.plan_ms / fastest[batch].plan_ms
    for name in single:
        if name in LEARNED:
            baseline, theirs = LEARNED.get(name), single[name]
            per_action = (theirs.encode_ms + theirs.plan_ms) / (baseline.replan * block or 1)
            key = f"{baseline.title} / ours, encode + plan per action (m = 1)"
            values[key] = per_action / ((one.encode_ms + one.plan_ms) / block)
    return values


def family_ratios(rows: Sequence[Row], family: str) -> dict[str, float]:
    """Of plans over further families, engine by engine, at batch 1."""
    single = {(row.family, row.engine): row.plan_ms for row in rows if row.method == "leplanner" and row.batch == 1}
    return {
        f"plan time over {other} / over {family}, {engine}": ms / single[family, engine]
        for (other, engine), ms in single.items()
        if other != family
    }


def bench_export(planner: Planner, repeats: int = 20) -> dict[str, Any]:
    """The plan and the encoder as ONNX graphs, each laid out by hand, where the world can, and traced by torch: seconds
    to make, size, time at batch 1, and how far the results are from torch's and from each other."""
    lacking = missing_packages()
    if lacking:
        return {"error": lacking}
    world, model = planner.world, planner.model
    problem, size = random_problem(model), world.spec.frame_size
    frames = torch.randint(0, 256, (1, size, size, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    lay_out = capability(world, "onnx_rollout")
    makers: list[tuple[str, str, Callable[[], Any]]] = []
    if lay_out is not None:
        makers.append(("plan", BY_HAND, lambda: plan_graph(model, lay_out, "B", {})))
    makers.append(("plan", TRACED, lambda: traced_plan(world, model, "B", {})))
    if capability(world, "onnx_encoder") is not None:
        makers.append(("encoder", BY_HAND, lambda: encoder_model(world, "B", {})))
    makers.append(("encoder", TRACED, lambda: traced_encoder(world, "B", {})))
    runs: dict[str, Callable[[Any], Tensor]] = {
        "plan": lambda engine: engine.plan(problem).blocks,
        "encoder": lambda engine: engine.encode(frames),
    }
    eager = ENGINES.get("eager").make(world, model)
    with torch.no_grad():
        expected = {graph: run(eager) for graph, run in runs.items()}
    rows: list[dict[str, Any]] = []
    results: dict[str, dict[str, Tensor]] = {graph: {} for graph in runs}
    for graph, way, make in makers:
        began = time.perf_counter()
        try:
            data = make().SerializeToString()
        except ValueError as error:  # what torch cannot trace
            rows.append({"graph": graph, "way": way, "error": str(error)})
            continue
        seconds = time.perf_counter() - began
        engine: Any = ENGINES.get("onnx").make(world, model)
        engine.sessions[graph] = onnx_session(data)
        results[graph][way] = runs[graph](engine)
        deviation = _deviation((results[graph][way], expected[graph]))
        ms = 1e3 * median_seconds(lambda engine=engine, run=runs[graph]: run(engine), repeats)
        row = {"graph": graph, "way": way, "seconds": seconds, "size_mb": len(data) / 1e6, "ms": ms}
        rows.append(row | {"deviation_from_torch": deviation})
    return {"rows": rows, "deviation": {graph: _deviation(ways.values()) for graph, ways in results.items()}}


def _deviation(pair: Iterable[Tensor]) -> float | None:
    """The largest difference of two results; None where there is only one."""
    tensors = list(pair)
    return float((tensors[0] - tensors[1]).abs().max()) if len(tensors) == 2 else None


def _check(engines: Sequence[str], rivals: Sequence[str], batches: Sequence[int]) -> None:
    for engine in engines:
        ENGINES.get(engine)
    for rival in rivals:
        match_name("rival", rival, (*methods_of("search"), *LEARNED))
    if not batches or min(batches) < 1:
        raise ValueError(f"Batches to plan must be at least 1; got {', '.join(map(str, batches)) or 'none'}.")


def _rival(name: str, planner: Planner) -> Policy:
    """Learned baselines with new weights, like the planner."""
    if name not in LEARNED:
        return METHODS.get(name).make(MethodInputs(planner, budget=50))(None)  # no search looks at its trial
    baseline, spec = LEARNED.get(name), planner.world.spec
    network = BaselineNetwork(baseline, baseline.config(), spec.latent, spec.actions.block_dim, spec.actions.block)
    return LearnedPolicy(network, spec.actions)


def _first_plan(planner: Planner) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        save_bundle(planner, Path(folder))
        command = [sys.executable, "-c", _FIRST_PLAN, folder, str(torch.get_num_threads()), json.dumps(plugins())]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout)
    return {"error": (done.stderr.strip() or "the process was killed").splitlines()[-1]}
