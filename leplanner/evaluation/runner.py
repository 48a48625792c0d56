"""Runs every method over the same frozen trials: one live environment a worker, rows kept as they finish."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..artifacts import atomic_path, folder_lock
from ..control.controller import Controller
from ..control.methods import METHODS, MethodInputs, SearchBudget, methods_of, settings_of
from ..control.policy import Policy
from ..execution.executor import Executor, make_executor
from ..planner.engines import pick_engine
from ..planner.planner import Planner, load_bundle
from ..tasks import Task, get_task
from ..tasks.spec import Simulator
from ..training.precision import pick_device
from .capture import Camera, RecordingPolicy
from .manifest import Manifest, Trial, load_manifest
from .metrics import by_current_names, score_states
from .protocols import PROTOCOLS
from .videos import Video, save_video, video_path


@dataclass(frozen=True)
class EvaluationConfig:
    """All that decides a row, besides the manifest and the weights."""

    methods: tuple[str, ...] = ("leplanner-reuse", "leplanner", "random", "no-op", "replay")
    replan: tuple[int, ...] = (1, 5)  # m: blocks executed before planning again
    seed: int = 42
    real_history: bool = False  # contexts from before the start, instead of the first frame repeated; the same for all
    search: SearchBudget = field(default_factory=SearchBudget)
    trials: int | None = None  # only the first so many of the manifest
    search_trials: int | None = None  # searches are slow: only the first so many for them
    videos: int = 0  # of the first so many trials, frames are kept beside the rows
    device: str = "cpu"  # that encodes and plans; environments run on the CPU

    @property
    def settings(self) -> dict[str, Any]:
        return {"history": "real" if self.real_history else "padded", "search": str(self.search)}


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
    outcome: dict[str, Any] = field(default_factory=dict)  # by metric
    states: list[list[float]] | None = None  # that were executed, the start first: what the outcome is of
    decisions: int | None = None
    transitions: int | None = None  # of the predictor, all decisions together
    transitions_per_plan: float | None = None
    imagined: float | None = None  # where its plans end in imagination, mean over decisions, by one scorer for all
    encode_ms: float | None = None  # median a decision
    plan_ms: float | None = None
    environment_ms: float | None = None  # stepping and rendering, the whole trial
    seconds: float | None = None  # the whole episode, from its first frame to its last action, without the scorer
    error: str | None = None  # why the trial could not be run; it then counts for no method


def run_trial(
    task: Task,
    sim: Simulator,
    planner: Planner,
    policy: Policy,
    trial: Trial,
    manifest: Manifest,
    replan: int,
    config: EvaluationConfig,
    recorded: bool = False,
) -> tuple[dict[str, Any], Video | None]:
    """One trial of one method: what it did and what it cost, and if requested how it looked."""
    spec = planner.world.spec
    size, block = spec.frame_size, spec.actions.block
    start, goal = np.array(trial.start_state), np.array(trial.goal_state)
    seed = int(np.random.SeedSequence([config.seed, trial.index]).generate_state(1)[0])
    recording = RecordingPolicy(policy)
    controller = Controller(
        recording, planner.world, max(1, replan), manifest.budget, score=True, encode=planner.encode
    )
    looks = policy.frames > 0
    history = _history(sim, trial, size, block, task.action_dim) if looks and config.real_history else None
    controller.reset(_frame(sim, goal, size) if looks else torch.zeros(spec.latent.shape), history, seeds=(seed,))
    camera = Camera(task, sim, goal, manifest.budget) if recorded else None
    sim.set_state(start)
    states = [sim.state()]
    spent, started = 0.0, time.perf_counter()
    if camera:
        camera.capture(0)
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
            camera.capture(len(states) - 1)
    decisions = controller.decisions
    seconds = time.perf_counter() - started - sum(decision.score_ms for decision in decisions) / 1e3
    visited = np.stack(states)
    transitions = sum(decision.transitions for decision in decisions)
    imagined = [decision.imagined for decision in decisions if decision.imagined is not None]
    result = {
        "outcome": score_states(task, visited, goal),
        "states": visited.tolist(),
        "decisions": len(decisions),
        "transitions": transitions,
        "transitions_per_plan": transitions / len(decisions),
        "imagined": float(np.mean(imagined)) if imagined else None,
        "encode_ms": float(np.median([decision.encode_ms for decision in decisions])),
        "plan_ms": float(np.median([decision.plan_ms for decision in decisions])),
        "environment_ms": 1e3 * spent,
        "seconds": None if camera else seconds,  # a camera takes time of its own
    }
    if camera is None:
        return result, None
    return result, camera.video(visited, recording.trace(planner, replan * block))


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
    video_to: Path | None = field(default=None, compare=False)


_worker: dict[str, Any] = {}  # a process keeps its simulator, its weights and its policies between trials


def _run_job(
    bundle: str, manifest: str, baselines: str | None, config: EvaluationConfig, threads: int, job: _Job
) -> TrialRow:
    identity = (bundle, manifest, baselines, config)
    if _worker.get("identity") != identity:
        torch.set_num_threads(threads)
        if "sim" in _worker:
            _worker["sim"].close()
        planner, trials = load_bundle(bundle).to(pick_device(config.device)), load_manifest(Path(manifest))
        planner.warm_up()
        task = PROTOCOLS.get(trials.protocol).adapt(get_task(trials.task))
        inputs = MethodInputs(planner, trials.budget, Path(baselines) if baselines else None, config.search)
        _worker.update(identity=identity, planner=planner, manifest=trials, task=task, inputs=inputs)
        _worker.update(sim=task.simulate(planner.world.spec.visuals), methods={}, weights={})
    planner, trials, inputs = (_worker[name] for name in ("planner", "manifest", "inputs"))
    methods, weights, method = _worker["methods"], _worker["weights"], METHODS.get(job.method)
    if job.method not in weights:
        weights[job.method] = method.weights(inputs)
    common: dict[str, Any] = {"method": job.method, "replan": job.replan, "trial": job.trial, "seed": config.seed}
    common |= {"settings": settings_of(job.method, config.settings), "manifest": trials.digest}
    common |= {"weights": weights[job.method], "fingerprint": fingerprint(planner)}
    try:
        if job.method not in methods:
            methods[job.method] = method.make(inputs)
        trial = trials.trials[job.trial]
        task, sim, policy = _worker["task"], _worker["sim"], methods[job.method](trial)
        recorded = job.video_to is not None
        result, video = run_trial(task, sim, planner, policy, trial, trials, job.replan, config, recorded)
        if video is not None and job.video_to is not None:
            save_video(video, job.video_to)
        return TrialRow(**common, **result)
    except Exception as error:  # recorded, and the command fails at its end: never counted as the method's failure
        return TrialRow(**common, error=f"{type(error).__name__}: {error}")


def fingerprint(planner: Planner) -> dict[str, Any]:
    return {
        "engine": pick_engine(planner.requested, planner.dynamics, planner.model)[0],
        "leplanner": __version__,
        "torch": torch.__version__,
        "device": str(planner.world.device),
        "threads": torch.get_num_threads(),
        "gl": os.environ.get("MUJOCO_GL", ""),
        "machine": platform.machine(),
    }


def method_names(names: Sequence[str]) -> tuple[str, ...]:
    """As they are registered, whatever case was typed."""
    if not names:
        raise ValueError(f"Give at least one method: {', '.join(METHODS)}.")
    return tuple(METHODS.get(name).name for name in names)


def evaluate(
    bundle: Path,
    manifest_path: Path,
    config: EvaluationConfig,
    rows_path: Path,
    baselines: Path | None = None,
    executor: Executor | None = None,
    on_row: Callable[[TrialRow, int, int], None] = lambda row, done, total: None,
) -> list[TrialRow]:
    """Every row that is missing in `rows_path` is run and appended. Rows of trials that raised are tried again."""
    executor = executor or make_executor()
    config = dataclasses.replace(config, methods=method_names(config.methods))
    manifest = load_manifest(manifest_path)
    pick_device(config.device)  # a device that is not there is said at once
    planner = load_bundle(bundle)
    _check(manifest, manifest_path, planner, config)
    inputs = MethodInputs(planner, manifest.budget, baselines, dataclasses.replace(config.search, compiled=False))
    for name in config.methods:  # a method that cannot be made is said at once, not trial by trial
        METHODS.get(name).make(inputs)
    count = min(config.trials or len(manifest.trials), len(manifest.trials))
    identity = {"manifest": manifest.digest, "seed": config.seed, "settings": config.settings}
    weights = {name: METHODS.get(name).weights(inputs) for name in config.methods}
    searches = methods_of("search")

    def video_of(name: str, m: int, trial: int) -> Path:
        return video_path(rows_path.parent, name, m, trial, **identity, weights=weights[name])

    jobs = [
        _Job(name, m, trial, video_of(name, m, trial) if trial < config.videos else None)
        for name in config.methods
        for m in _replans(name, config)
        for trial in range(min(count, config.search_trials or count) if name in searches else count)
    ]
    with folder_lock(rows_path.parent):
        # a row and its video come from one run, so a trial without its video is run again
        again = {job for job in jobs if job.video_to and not job.video_to.exists()}
        kept = _readable_rows(rows_path, identity, weights, drop=again)
        done = {_job(row) for row in kept}
        missing = [job for job in jobs if job not in done]
        # of what OMP_NUM_THREADS allows, and whatever is left to do: a resumed run computes the same
        threads = max(1, torch.get_num_threads() // executor.concurrency)
        work = partial(
            _run_job, str(bundle), str(manifest_path), str(baselines) if baselines else None, config, threads
        )
        finished = len(jobs) - len(missing)
        with rows_path.open("a") as file:
            for row in executor.run(work, missing):
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")
                file.flush()
                os.fsync(file.fileno())
                kept.append(row)
                finished += 1
                on_row(row, finished, len(jobs))
    order = {job: i for i, job in enumerate(jobs)}
    mine = [row for row in kept if _job(row) in order]
    return sorted(mine, key=lambda row: order[_job(row)])


def _check(manifest: Manifest, path: Path, planner: Planner, config: EvaluationConfig) -> None:
    if manifest.task != planner.world.spec.task:
        raise ValueError(f"The manifest is {manifest.task}'s, the bundle {planner.world.spec.task}'s.")
    width = get_task(manifest.task).state_dim
    for trial in manifest.trials:
        if (sizes := {len(trial.start_state), len(trial.goal_state)}) != {width}:
            raise ValueError(
                f"{path}: trial {trial.index} has states of {min(sizes)} numbers, {manifest.task} has {width}."
            )
    horizon = planner.model.config.horizon
    if manifest.budget < 1 or any(m < 1 or m > horizon for m in config.replan):
        raise ValueError(f"--replan must lie in 1..{horizon} blocks; got {config.replan}.")


def _job(row: TrialRow) -> _Job:
    return _Job(row.method, row.replan, row.trial)


def _replans(name: str, config: EvaluationConfig) -> tuple[int, ...]:
    own = METHODS.get(name).replan
    return config.replan if own is None else (own,)


def read_rows(path: Path) -> list[TrialRow]:
    return [_row(line) for line in path.read_text().splitlines()] if path.exists() else []


def _row(line: str) -> TrialRow:
    row = TrialRow(**json.loads(line))
    return dataclasses.replace(row, outcome=by_current_names(row.outcome))


def _readable_rows(
    path: Path, identity: dict[str, Any], weights: dict[str, str], drop: Collection[_Job]
) -> list[TrialRow]:
    """What an earlier run left: a half-written last line and rows of trials that raised or
    must run again are dropped."""
    if not path.exists():
        return []
    text = path.read_text()
    lines = text.splitlines()
    rows = []
    for number, line in enumerate(lines):
        try:
            rows.append(_row(line))
        except (json.JSONDecodeError, TypeError) as error:
            if number < len(lines) - 1:
                raise ValueError(f"{path}, line {number + 1}, is not a trial's row. Choose another --out.") from error
    for row in rows:
        expected = identity | {
            "settings": settings_of(row.method, identity["settings"]),
            "weights": weights.get(row.method, row.weights),
        }
        actual = {name: getattr(row, name) for name in expected}
        other = [name for name in expected if actual[name] != expected[name]]
        if other:
            raise ValueError(
                f"{path} holds rows of {row.method} with another {' and '.join(other)}: {_listed(actual, other)}; now "
                f"{_listed(expected, other)}. Choose another --out, or delete that folder."
            )
    good = [row for row in rows if row.error is None and _job(row) not in drop]
    if len(good) < len(lines) or not text.endswith("\n"):
        with atomic_path(path) as temporary:
            temporary.write_text("".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in good))
    return good


def _listed(values: dict[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {str(values[name])[:80]}" for name in names)
