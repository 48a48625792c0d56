"""Ablations: variants of one planner, trained through one world, run over the same trials, compared in pairs."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..artifacts import command_line, digest_json, folder_lock, provenance, read_artifact, read_json, write_json
from ..core.config import changed
from ..core.registry import match_name
from ..data.cache import open_cache
from ..data.windows import plan_windows
from ..density.mixture import load_density
from ..diagnostics.closed_loop import closed_loop_tables
from ..diagnostics.imagined import imagined_tables
from ..evaluation.manifest import Manifest, load_manifest
from ..evaluation.metrics import HEADLINE, metrics_of
from ..evaluation.runner import EvaluationConfig, evaluate
from ..evaluation.statistics import Rate, paired_over_seeds, rate_over_seeds
from ..execution.executor import Executor, make_executor
from ..planner.model import PlannerConfig
from ..planner.planner import load_bundle
from ..planner.train import PlannerTrainConfig, train_planner
from ..tasks import get_task
from ..training.loggers import last_step
from ..training.runtime import Runtime
from ..worlds import load_world
from ..worlds.pretraining import training_minutes
from .evaluating import MANIFEST
from .presets import Preset
from .stage import Show, silent

RESULT, ABLATION = "result.json", "ablation.json"
SHOWN = {"success": HEADLINE, "held": "held"}  # columns of the table, and their metrics
SECONDS_BETWEEN_LOOKS = 5.0
PROBLEMS = 256  # held-out, to look at in imagination
PATH_WEIGHT = 0.25  # alpha of the fixed-terminal variant with a path loss, for which the paper gives no value
FIT_TRIALS = 20  # for the fixed point of the closed loop


@dataclass(frozen=True)
class Variant:
    """What it changes in a preset's planner and its training."""

    name: str
    training: dict[str, Any] = field(default_factory=dict)
    planner: dict[str, Any] = field(default_factory=dict)

    def apply(self, shape: PlannerConfig, config: PlannerTrainConfig) -> tuple[PlannerConfig, PlannerTrainConfig]:
        """What the paper compares: no variant sees the reference trajectory, which would hide what
        its objective does by itself."""
        return replace(shape, **self.planner), changed(config, **{"tracking_weight": 0.0, **self.training})

    @property
    def folder(self) -> str:
        return self.name.replace(" ", "-").replace("=", "")

    @property
    def results(self) -> str:
        """Where results of all its seeds are, as a glob pattern."""
        return f"{self.folder}/seed*/{RESULT}"


REFERENCE = "arrival-hold"
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(REFERENCE),  # lambda_h 0.5, K 3
        Variant("hold 0", {"hold_weight": 0.0}),
        Variant("hold 0.25", {"hold_weight": 0.25}),
        Variant("hold 1", {"hold_weight": 1.0}),
        Variant("fixed-terminal path", {"objective": "fixed-terminal", "path_weight": PATH_WEIGHT}),
        Variant("fixed-terminal", {"objective": "fixed-terminal", "path_weight": 0.0}),  # alpha = 0
        Variant("no support", {"support_weight": 0.0}),
        Variant(
            "fixed-terminal path no support",  # of the objective that the paper started from
            {"objective": "fixed-terminal", "path_weight": PATH_WEIGHT, "support_weight": 0.0},
        ),
        Variant("K=0", planner={"refinements": 0}),
        Variant("K=1", planner={"refinements": 1}),
        Variant("K=2", planner={"refinements": 2}),
    )
}


@dataclass(frozen=True)
class Run:
    """A variant, trained once."""

    variant: Variant
    seed: int = 0


def get_variants(names: str) -> list[Variant]:
    """Of names separated by commas; the reference always comes first, since all are compared with it."""
    chosen = [match_name("variant", name, ["all", *VARIANTS]) for name in names.split(",")]
    chosen = list(VARIANTS) if "all" in chosen else chosen
    return [variant for name, variant in VARIANTS.items() if name in chosen or name == REFERENCE]


@dataclass(frozen=True)
class Ablation:
    """What all variants share: artifacts by where they are, so that any process can open them."""

    task: str
    preset: Preset
    world: Path
    latents: Path
    density: Path
    trials: int  # of OUT/manifest.json
    out: Path

    @property
    def replans(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((1, self.preset.planner.horizon)))

    @cached_property
    def manifest(self) -> Manifest:
        return load_manifest(self.out / MANIFEST)

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Digests of what the variants are made from."""
        digests = {kind: read_artifact(getattr(self, kind), kind)["digest"] for kind in ("world", "density")}
        return digests | {"data": open_cache(self.latents).data_digest, "manifest": self.manifest.digest}

    def configs(self, run: Run) -> tuple[PlannerConfig, PlannerTrainConfig]:
        shape, config = run.variant.apply(self.preset.planner, self.preset.training)
        return shape, changed(config, seed=run.seed)

    def identity(self, run: Run) -> str:
        configs = [dataclasses.asdict(config) for config in self.configs(run)]
        return digest_json([*configs, self.inputs, self.trials])

    def folder(self, run: Run) -> Path:
        return self.out / run.variant.folder / f"seed{run.seed}"

    def result(self, run: Run) -> dict[str, Any] | None:
        """Of a run that was finished with these settings."""
        path = self.folder(run) / RESULT
        known = read_json(path) if path.exists() else {}
        return known if known.get("identity") == self.identity(run) else None

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        """Results of these settings by variant, in the order of the variants, each with its seeds in order."""
        found: dict[str, list[dict[str, Any]]] = {}
        for variant in VARIANTS.values():
            seeds = sorted(int(path.parent.name.removeprefix("seed")) for path in self.out.glob(variant.results))
            results = [known for seed in seeds if (known := self.result(Run(variant, seed))) is not None]
            if results:
                found[variant.name] = results
        return found


def run_ablation(
    ablation: Ablation,
    runs: Sequence[Run],
    runtime: Runtime | None = None,
    executor: Executor | None = None,
    show: Show = silent,
) -> dict[str, Any]:
    """Resumable; variants and seeds can be added later. Returns and keeps OUT/ablation.json."""
    executor = executor or make_executor()
    with folder_lock(ablation.out):
        missing = [run for run in runs if ablation.result(run) is None]
        for run in missing:
            if (ablation.folder(run) / RESULT).exists():
                raise ValueError(
                    f"{ablation.folder(run)} holds a variant of other settings. Choose another --out, or delete it to "
                    "run it again."
                )
        work = partial(_make, ablation, runtime or Runtime(), max(1, torch.get_num_threads() // executor.concurrency))
        with _shown_steps(ablation, missing, show):
            for _ in executor.run(work, missing):
                write_json(ablation.out / ABLATION, _compared(ablation))
        write_json(ablation.out / ABLATION, _compared(ablation))
    return read_json(ablation.out / ABLATION)


@contextlib.contextmanager
def _shown_steps(ablation: Ablation, runs: Sequence[Run], show: Show) -> Iterator[None]:
    """Progress of trainings that may run in other processes, read from their logs."""
    if not runs:
        yield
        return
    steps, ended = ablation.preset.training.optim.steps, threading.Event()
    with show("train and run variants", "steps") as update:

        def look() -> None:
            while not ended.wait(SECONDS_BETWEEN_LOOKS):
                done = [last_step(ablation.folder(run) / "planner") for run in runs]
                over = sum((ablation.folder(run) / RESULT).exists() for run in runs)
                update(sum(done), steps * len(runs), f"{over} of {len(runs)} finished")

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _make(ablation: Ablation, runtime: Runtime, threads: int, run: Run) -> None:
    """Train a variant, run it, look into it; writes its result."""
    torch.set_num_threads(threads)
    folder, task, (shape, config) = ablation.folder(run), get_task(ablation.task), ablation.configs(run)
    world, cache, manifest = load_world(ablation.world), open_cache(ablation.latents), ablation.manifest
    density = load_density(ablation.density)
    used = density if config.support_weight else None
    planner = train_planner(world, cache, used, shape, config, folder / "planner", runtime)
    rows = evaluate(
        folder / "planner",
        ablation.out / MANIFEST,
        EvaluationConfig(("leplanner",), ablation.replans, seed=manifest.seed, trials=ablation.trials),
        folder / "rows.jsonl",
        executor=make_executor("inline"),
    )
    raised = [row for row in rows if row.error is not None]
    if raised:
        raise ValueError(
            f"{len(raised)} trials of {run.variant.name} raised ({raised[0].error}). Run the same command again."
        )
    sim = task.simulate(world.spec.visuals)
    try:
        loop = closed_loop_tables(load_bundle(folder / "planner"), sim, manifest, min(FIT_TRIALS, ablation.trials))
    finally:
        sim.close()
    _, held_out = plan_windows(world, cache)
    batch = held_out.draw(np.random.default_rng(manifest.seed), PROBLEMS, shape.horizon)
    imagined = imagined_tables(planner.model.cpu(), world.to("cpu"), batch, density.to("cpu"))
    known = {m: [row for row in rows if row.replan == m] for m in ablation.replans}
    result = {
        "name": run.variant.name,
        "seed": run.seed,
        "identity": ablation.identity(run),
        "outcomes": {
            metric.name: {str(m): [bool(row.outcome[metric.name]) for row in of] for m, of in known.items()}
            for metric in metrics_of("rate")
            if rows[0].outcome.get(metric.name) is not None
        },
        "imagined": dataclasses.asdict(imagined),
        "executed": dataclasses.asdict(loop),
        "step_sizes": [float(eta) for eta in planner.model.eta.sigmoid()],
        "losses": {
            name: value
            for name, value in read_artifact(folder / "planner", "bundle")["training"]["metrics"].items()
            if name in ("loss", "objective", "support")
        },
        "minutes": training_minutes(folder / "planner"),
    }
    write_json(folder / RESULT, result)


def _compared(ablation: Ablation) -> dict[str, Any]:
    """Rates over seeds with intervals, and each variant against the reference on the same trials."""
    finished = ablation.finished()
    reference = finished.get(REFERENCE, [])
    rows = []
    for name, results in finished.items():
        first = results[0]
        row: dict[str, Any] = {"name": name, "seeds": [result["seed"] for result in results]}
        row |= {"fit": first["executed"]["fit"], "off_support": first["imagined"]["off_support"]}
        row |= {part: first["imagined"][part] for part in ("profile", "start")}
        for shown, metric in SHOWN.items():
            row[shown] = {
                str(m): rate | {"by_seed": [float(np.mean(result["outcomes"][metric][str(m)])) for result in results]}
                for m in ablation.replans
                if (rate := _plain(rate_over_seeds(_outcomes(results, metric, m))))
            }
        row["difference"] = {
            str(m): dataclasses.asdict(
                paired_over_seeds(_outcomes(results, HEADLINE, m), _outcomes(reference, HEADLINE, m))
            )
            for m in ablation.replans
            if reference
        }
        rows.append(row)
    about = {"task": ablation.task, "trials": ablation.trials, "reference": REFERENCE}
    about |= {name: ablation.inputs[name] for name in ("manifest", "world")}
    about |= {"steps": ablation.preset.training.optim.steps, "variants": rows, "command": command_line()}
    return about | {"provenance": provenance(**ablation.inputs)}


def _outcomes(results: Sequence[dict[str, Any]], metric: str, m: int) -> np.ndarray:
    return np.array([result["outcomes"][metric][str(m)] for result in results])


def _plain(rate: Rate) -> dict[str, Any]:
    return dataclasses.asdict(rate) | {"value": rate.value}
