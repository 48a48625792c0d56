"""Runs every method over the same frozen trials: in processes, one live environment each, rows kept as they finish."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..artifacts import atomic_path
from ..control.controller import Controller
from ..control.policy import Policy
from ..parallel import in_processes
from ..planner.engine import pick_engine
from ..planner.planner import TaskPlanner, load_bundle
from ..tasks import Task, get_task
from ..tasks.spec import Simulator
from .camera import Camera, Remembered
from .films import Film, film_path, save_film
from .manifest import Manifest, Trial, load_manifest
from .methods import OWN_PACE, PolicyFor, check_methods, make_method, method_digest
from .metrics import judge
from .properties import SEARCH, settings_of


@dataclass(frozen=True)
class EvaluationConfig:
    """All that decides a row, besides the manifest and the weights."""

    methods: tuple[str, ...] = ("leplanner-keep", "leplanner", "random", "nothing", "replay")
    replan: tuple[int, ...] = (1, 5)  # m: blocks executed before planning again
    seed: int = 42
    real_history: bool = False  # contexts from before the start, instead of the first frame repeated; the same for all
    samples: int = 300  # of the searches, a round
    rounds: int = 30
    trials: int | None = None  # only the first so many of the manifest
    search_trials: int | None = None  # searches are slow: only the first so many for them
    compile_search: bool = False  # searches imagine through a compiled rollout
    films: int = 0  # of the first so many trials, frames are kept beside the rows

    @property
    def settings(self) -> dict[str, Any]:
        search = f"{self.samples} x {self.rounds}" + (", compiled" if self.compile_search else "")
        return {"history": "real" if self.real_history else "padded", "search": search}


@dataclass(frozen=True)
class TrialRow:
    method: str
    replan: int  # m, blocks executed before planning again; 0: it decides before every action
    trial: int
    seed: int
    settings: dict[str, Any]  # what else decided this row: history, search budget
    manifest: str  # digest
    weights: str  # digest of what the method decides with
    fingerprint: dict[str, Any]
    success_any: bool | None = None
    success_final: bool | None = None
    success_held: bool | None = None
    strict: bool | None = None
    first_success: int | None = None
    final_error: float | None = None
    decisions: int | None = None
    rows: int | None = None  # predictor transitions, all decisions together
    rows_a_plan: float | None = None
    imagined: float | None = None  # where its plans end in imagination, mean over decisions, by one scorer for all
    encode_ms: float | None = None  # median a decision
    plan_ms: float | None = None
    environment_ms: float | None = None  # stepping and rendering, the whole trial
    error: str | None = None  # why the trial could not be run; it then counts for no method


def run_trial(
    task: Task,
    sim: Simulator,
    planner: TaskPlanner,
    policy: Policy,
    trial: Trial,
    manifest: Manifest,
    replan: int,
    config: EvaluationConfig,
    filmed: bool = False,
) -> tuple[dict[str, Any], Film | None]:
    """One trial of one method: what it did and what it cost, and if wanted how it looked."""
    size, block = planner.world.spec.frame_size, planner.world.spec.block
    start, goal = np.array(trial.start_state), np.array(trial.goal_state)
    seed = int(np.random.SeedSequence([config.seed, trial.index]).generate_state(1)[0])
    remembered = Remembered(policy)
    controller = Controller(remembered, planner.world, execute=max(1, replan), budget=manifest.budget, score=True)
    looks = policy.frames > 0
    history = _history(sim, trial, size, block, task.action_dim) if looks and config.real_history else None
    controller.reset(_frame(sim, goal, size) if looks else _no_goal(planner), history, seeds=(seed,))
    camera = Camera(task, sim, goal, manifest.budget) if filmed else None
    sim.set_state(start)
    states = [sim.state()]
    spent = 0.0
    if camera:
        camera.look(0)
    for _ in range(manifest.budget):
        began = time.perf_counter()
        frame = sim.render(size) if controller.needs_frame else None
        spent += time.perf_counter() - began
        action = controller.act(frame)
        began = time.perf_counter()
        sim.step(action)
        spent += time.perf_counter() - began
        states.append(sim.state())
        if camera:
            camera.look(len(states) - 1)
    made = controller.decisions
    visited = np.stack(states)
    outcome = dataclasses.asdict(judge(task, visited, goal))
    rows = sum(decision.rows for decision in made)
    imagined = [decision.imagined for decision in made if decision.imagined is not None]
    outcome |= {
        "decisions": len(made),
        "rows": rows,
        "rows_a_plan": rows / len(made),
        "imagined": float(np.mean(imagined)) if imagined else None,
        "encode_ms": float(np.median([decision.encode_ms for decision in made])),
        "plan_ms": float(np.median([decision.plan_ms for decision in made])),
        "environment_ms": 1e3 * spent,
    }
    if camera is None:
        return outcome, None
    return outcome, camera.film(visited, remembered.thoughts(planner, replan * block))


def _no_goal(planner: TaskPlanner) -> torch.Tensor:
    """A goal for policies that look at nothing."""
    return torch.zeros(planner.world.spec.model.latent)


def _frame(sim: Simulator, state: np.ndarray, size: int) -> np.ndarray:
    sim.set_state(state)
    return sim.render(size)


def _history(
    sim: Simulator, trial: Trial, size: int, block: int, action_dim: int
) -> tuple[np.ndarray, np.ndarray] | None:
    if not trial.history_states:
        return None
    frames = np.stack([_frame(sim, np.array(state), size) for state in trial.history_states])
    return frames, np.array(trial.history_actions, np.float32).reshape(-1, block, action_dim)


@dataclass(frozen=True)
class _Job:
    method: str
    replan: int
    trial: int
    film_to: Path | None = field(default=None, compare=False)


_worker: dict[str, Any] = {}  # a process keeps its simulator, its weights and its policies between trials


def _run_job(
    bundle: str, manifest: str, baselines: str | None, config: EvaluationConfig, threads: int, job: _Job
) -> TrialRow:
    from ..tasks.swm_simulator import Visuals, make_simulator

    if _worker.get("identity") != (bundle, manifest, baselines, config):
        torch.set_num_threads(threads)
        planner, trials = load_bundle(bundle), load_manifest(Path(manifest))
        task = get_task(trials.task)
        _worker.update(identity=(bundle, manifest, baselines, config), planner=planner, manifest=trials, task=task)
        _worker.update(sim=make_simulator(task, Visuals.of(planner.world.spec.visuals)), methods={}, weights={})
    planner, trials, methods, weights = (_worker[name] for name in ("planner", "manifest", "methods", "weights"))
    folder = Path(baselines) if baselines else None
    common: dict[str, Any] = {"method": job.method, "replan": job.replan, "trial": job.trial, "seed": config.seed}
    if job.method not in weights:
        weights[job.method] = method_digest(job.method, planner, folder)
    common |= {
        "settings": settings_of(job.method, config.settings),
        "manifest": trials.digest,
        "weights": weights[job.method],
    }
    common |= {"fingerprint": fingerprint(planner)}
    try:
        if job.method not in methods:
            methods[job.method] = make_method(
                job.method, planner, folder, trials.budget, config.samples, config.rounds, config.compile_search
            )
        make: PolicyFor = methods[job.method]
        trial = trials.trials[job.trial]
        task, sim = _worker["task"], _worker["sim"]
        filmed = job.film_to is not None
        done, film = run_trial(task, sim, planner, make(trial), trial, trials, job.replan, config, filmed)
        if film is not None and job.film_to is not None:
            save_film(film, job.film_to)
        return TrialRow(**common, **done)
    except Exception as error:  # recorded, and the command fails at its end: never counted as the method's failure
        return TrialRow(**common, error=f"{type(error).__name__}: {error}")


def fingerprint(planner: TaskPlanner) -> dict[str, Any]:
    return {
        "engine": pick_engine(planner.asked, planner.world, planner.model)[0],
        "leplanner": __version__,
        "torch": torch.__version__,
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "gl": os.environ.get("MUJOCO_GL", ""),
        "machine": platform.machine(),
    }


def evaluate(
    bundle: Path,
    manifest_path: Path,
    config: EvaluationConfig,
    rows_path: Path,
    baselines: Path | None = None,
    workers: int | None = None,
    on_row: Callable[[TrialRow, int, int], None] = lambda row, done, total: None,
) -> list[TrialRow]:
    """Every row that is missing in `rows_path` is run and appended. Rows of trials that raised are tried again."""
    check_methods(config.methods)
    manifest = load_manifest(manifest_path)
    planner = load_bundle(bundle)
    if manifest.task != planner.world.spec.task:
        raise ValueError(f"The manifest is {manifest.task}'s, the bundle {planner.world.spec.task}'s.")
    width = get_task(manifest.task).state_dim
    for trial in manifest.trials:
        if (found := {len(trial.start_state), len(trial.goal_state)}) != {width}:
            raise ValueError(
                f"{manifest_path}: trial {trial.index} has states of {min(found)} numbers, {manifest.task} has {width}."
            )
    if manifest.budget < 1 or any(m < 1 or m > planner.model.config.horizon for m in config.replan):
        raise ValueError(f"--replan must lie in 1..{planner.model.config.horizon} blocks; got {config.replan}.")
    for name in config.methods:  # a method that cannot be made is said at once, not trial by trial
        make_method(name, planner, baselines, manifest.budget, config.samples, config.rounds)
    count = min(config.trials or len(manifest.trials), len(manifest.trials))
    identity = {"manifest": manifest.digest, "seed": config.seed, "settings": config.settings}
    weights = {name: method_digest(name, planner, baselines) for name in config.methods}

    def film_of(name: str, m: int, trial: int) -> Path:
        return film_path(rows_path.parent, name, m, trial, **identity, weights=weights[name])

    wanted = [
        _Job(name, m, trial, film_of(name, m, trial) if trial < config.films else None)
        for name in config.methods
        for m in _replans(name, config)
        for trial in range(min(count, config.search_trials or count) if name in SEARCH else count)
    ]
    # a row and its film come from one run, so a trial without its film is run again
    again = {job for job in wanted if job.film_to and not job.film_to.exists()}
    kept = _readable_rows(rows_path, identity, weights, drop=again)
    done = {_job(row) for row in kept}
    missing = [job for job in wanted if job not in done]
    processes = workers or os.cpu_count() or 1
    # of what OMP_NUM_THREADS allows, and whatever is left to do: a resumed run computes the same
    threads = max(1, torch.get_num_threads() // processes)
    work = partial(_run_job, str(bundle), str(manifest_path), str(baselines) if baselines else None, config, threads)
    finished = len(wanted) - len(missing)
    with rows_path.open("a") as file:
        for row in in_processes(work, missing, processes):
            file.write(json.dumps(dataclasses.asdict(row)) + "\n")
            file.flush()
            os.fsync(file.fileno())
            kept.append(row)
            finished += 1
            on_row(row, finished, len(wanted))
    order = {job: i for i, job in enumerate(wanted)}
    mine = [row for row in kept if _job(row) in order]
    return sorted(mine, key=lambda row: order[_job(row)])


def _job(row: TrialRow) -> _Job:
    return _Job(row.method, row.replan, row.trial)


def _replans(name: str, config: EvaluationConfig) -> tuple[int, ...]:
    return (OWN_PACE[name],) if name in OWN_PACE else config.replan


def read_rows(path: Path) -> list[TrialRow]:
    return [TrialRow(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def _readable_rows(
    path: Path, identity: dict[str, Any], weights: dict[str, str], drop: Collection[_Job]
) -> list[TrialRow]:
    """What an earlier run left: a half-written last line and rows of trials that raised or must run again are dropped."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return []
    text = path.read_text()
    lines = text.splitlines()
    rows = []
    for number, line in enumerate(lines):
        try:
            rows.append(TrialRow(**json.loads(line)))
        except (json.JSONDecodeError, TypeError) as error:
            if number < len(lines) - 1:
                raise ValueError(f"{path}, line {number + 1}, is not a trial's row. Choose another --out.") from error
    for row in rows:
        wanted = identity | {
            "settings": settings_of(row.method, identity["settings"]),
            "weights": weights.get(row.method, row.weights),
        }
        found = {name: getattr(row, name) for name in wanted}
        if found != wanted:
            raise ValueError(
                f"{path} holds rows of {row.method} with another manifest, seed, setting or other weights ({found}; now {wanted}). "
                "Choose another --out."
            )
    good = [row for row in rows if row.error is None and _job(row) not in drop]
    if len(good) < len(lines) or not text.endswith("\n"):
        with atomic_path(path) as temporary:
            temporary.write_text("".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in good))
    return good
