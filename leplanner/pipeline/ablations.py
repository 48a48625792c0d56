"""Ablations: variants of one planner, trained through one world, run over the same trials, compared in pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import command_line, digest_json, folder_lock, provenance, read_json, write_json
from ..core.config import changed
from ..core.registry import match_name
from ..data.cache import LatentCache
from ..data.windows import plan_windows
from ..density.mixture import Density
from ..diagnostics.closed_loop import closed_loop_tables
from ..diagnostics.imagined import imagined_tables
from ..evaluation.manifest import Manifest
from ..evaluation.runner import EvaluationConfig, evaluate
from ..evaluation.statistics import paired_difference, wilson
from ..execution.executor import Executor
from ..planner.model import PlannerConfig
from ..planner.planner import load_bundle
from ..planner.train import PlannerTrainConfig
from ..tasks import Task
from ..training.runtime import Runtime
from ..worlds import World
from .presets import Preset
from .stage import Show, silent
from .stages import train_planner_shown

PATH_WEIGHT = 0.25  # alpha of the fixed-terminal variant with a path loss
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
        Variant("K=0", planner={"refinements": 0}),
        Variant("K=1", planner={"refinements": 1}),
        Variant("K=2", planner={"refinements": 2}),
    )
}


def get_variants(names: str) -> list[Variant]:
    """Of names separated by commas; the reference always comes first, since all are compared with it."""
    chosen = [match_name("variant", name, ["all", *VARIANTS]) for name in names.split(",")]
    chosen = list(VARIANTS) if "all" in chosen else chosen
    return [variant for name, variant in VARIANTS.items() if name in chosen or name == REFERENCE]


@dataclass(frozen=True)
class Ablation:
    """What all variants share."""

    task: Task
    world: World
    cache: LatentCache
    density: Density
    preset: Preset
    manifest: Manifest
    trials: int
    out: Path

    @property
    def replans(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((1, self.preset.planner.horizon)))

    def configs(self, variant: Variant) -> tuple[PlannerConfig, PlannerTrainConfig]:
        return variant.apply(self.preset.planner, self.preset.training)

    def identity(self, variant: Variant) -> str:
        configs = [dataclasses.asdict(config) for config in self.configs(variant)]
        parts = [self.world.digest, self.cache.data_digest, self.density.digest, self.manifest.digest, self.trials]
        return digest_json([*configs, *parts])

    def result(self, variant: Variant) -> dict[str, Any] | None:
        """Of a variant that was finished with these settings."""
        path = self.out / variant.folder / "result.json"
        known = read_json(path) if path.exists() else {}
        return known if known.get("identity") == self.identity(variant) else None


def run_ablation(
    ablation: Ablation,
    variants: list[Variant],
    runtime: Runtime | None = None,
    executor: Executor | None = None,
    show: Show = silent,
) -> dict[str, Any]:
    """Resumable; variants can be added later. Returns and keeps OUT/ablation.json."""
    with folder_lock(ablation.out):
        for variant in variants:
            if ablation.result(variant) is None:
                _run_variant(variant, ablation, runtime or Runtime(), executor, show)
            finished = [known for other in VARIANTS.values() if (known := ablation.result(other)) is not None]
            write_json(ablation.out / "ablation.json", _compared(finished, ablation))
    return read_json(ablation.out / "ablation.json")


def _run_variant(variant: Variant, ablation: Ablation, runtime: Runtime, executor: Executor | None, show: Show) -> None:
    folder = ablation.out / variant.folder
    if (folder / "result.json").exists():
        raise ValueError(
            f"{folder} holds a variant of other settings. Choose another --out, or delete it to run it again."
        )
    world, cache, density, manifest = ablation.world, ablation.cache, ablation.density, ablation.manifest
    trials, (shape, config) = ablation.trials, ablation.configs(variant)
    with show(f"train {variant.name}", "steps") as update:
        used = density if config.support_weight else None
        planner = train_planner_shown(world, cache, used, shape, config, folder / "planner", runtime, update)
    evaluation = EvaluationConfig(("leplanner",), ablation.replans, seed=manifest.seed, trials=trials)
    with show(f"evaluate {variant.name}", "trials") as update:
        rows = evaluate(
            folder / "planner",
            ablation.out / "manifest.json",
            evaluation,
            folder / "rows.jsonl",
            executor=executor,
            on_row=lambda row, done, total: update(done, total),
        )
    raised = [row for row in rows if row.error is not None]
    if raised:
        raise ValueError(
            f"{len(raised)} trials of {variant.name} raised ({raised[0].error}). Run the same command again."
        )
    sim = ablation.task.simulate(world.spec.visuals)
    with show(f"diagnose {variant.name}", "trials") as update:
        loop = closed_loop_tables(load_bundle(folder / "planner"), sim, manifest, min(FIT_TRIALS, trials), update)
    sim.close()
    _, held_out = plan_windows(world, cache)
    batch = held_out.draw(np.random.default_rng(manifest.seed), 256, shape.horizon)
    imagined = imagined_tables(planner.model, world, batch, density, shape.refinements)

    def outcomes(metric: str) -> dict[str, list[bool]]:
        return {str(m): [bool(r.outcome[metric]) for r in rows if r.replan == m] for m in ablation.replans}

    result = {
        "name": variant.name,
        "identity": ablation.identity(variant),
        "outcomes": outcomes("any"),
        "held": outcomes("held"),
        "fit": dataclasses.asdict(loop.fit),
        "off_support": imagined.off_support,
        "profile": imagined.profile,
        "start": imagined.start,
    }
    write_json(folder / "result.json", result)


def _compared(results: list[dict[str, Any]], ablation: Ablation) -> dict[str, Any]:
    """Rates with intervals, and each variant against the reference on the same trials."""
    reference = next(result for result in results if result["name"] == REFERENCE)
    rows = []
    for result in results:
        row = {name: result[name] for name in ("name", "fit", "off_support", "profile", "start")}
        for kind, outcomes in (("success", result["outcomes"]), ("held", result["held"])):
            rates = {m: wilson(sum(won), len(won)) for m, won in outcomes.items()}
            row[kind] = {m: dataclasses.asdict(rate) | {"value": rate.value} for m, rate in rates.items()}
        row["difference"] = {
            m: dataclasses.asdict(paired_difference(np.array(won), np.array(reference["outcomes"][m])))
            for m, won in result["outcomes"].items()
        }
        rows.append(row)
    manifest, world = ablation.manifest.digest, ablation.world.digest
    about = {"task": ablation.task.name, "manifest": manifest, "world": world, "trials": ablation.trials}
    about |= {"steps": ablation.preset.training.optim.steps, "variants": rows, "command": command_line()}
    return about | {"provenance": provenance(manifest=manifest, world=world)}
