"""`leplanner ablate`: train variants of one planner, run them over the same trials, compare them in pairs."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ..artifacts import command_line, digest_json, provenance, read_json, write_json
from ..data.cache import LatentCache, open_cache
from ..data.episodes import open_episodes
from ..density.mixture import Density, load_density
from ..diagnostics.closed_loop import closed_loop_tables
from ..diagnostics.imagined import imagined_tables
from ..evaluation.manifest import Manifest, draw_manifest, load_manifest, save_manifest
from ..evaluation.runner import EvaluationConfig, evaluate
from ..evaluation.statistics import paired_difference, wilson
from ..learning import TrainProgress
from ..planner.model import PlannerConfig
from ..planner.planner import load_bundle
from ..planner.train import PlannerTrainConfig, train_planner
from ..presets.ablations import REFERENCE, VARIANTS, Variant, get_variants
from ..presets.scales import Scale, get_scale
from ..tasks import get_task
from ..world.world import World, load_world
from .options import Comma, Json, MaybeInt, MaybePath, ScaleInt, TaskName, world_folder
from .progress import bar, console

REPLANS = (1, 5)
FIT_TRIALS = 20  # for the fixed point of the closed loop


def ablate(
    task: TaskName,
    variants: Comma = "all",
    world: MaybePath = None,
    data: MaybePath = None,
    latents: MaybePath = None,
    density: MaybePath = None,
    out: MaybePath = None,
    scale: str = "compact",
    steps: ScaleInt = None,
    trials: int = 100,
    seed: int = 1000,
    workers: MaybeInt = None,
    json_output: Json = False,
) -> None:
    """Which part does the work? Train variants of the planner through one world, and run them over the same trials.

    Variants: arrival-hold (the reference), hold 0, hold 0.25, hold 1, fixed-terminal, fixed-terminal path, no support, K=0, K=1,
    K=2. Success at m = 1 and m = 5 with paired tests against the reference, where the closed loop settles (D*), and how often plans
    leave the data's support. All are trained by the scale's preset (far goals, deviations, smoothness), but none is shown the data's way,
    which would hide what its objective does by itself. Killed and started again it continues; variants can be added later.

    Example: leplanner ablate tworoom --variants "fixed-terminal,hold 0" --steps 1000

    Args:
        task: tworoom, pusht, reacher or cube.
        variants: names separated by commas, or all.
        world: world folder (default: the refined one, from before practice where there was any, else runs/TASK/world).
        data: dataset to draw trials from (default: runs/TASK/data.h5).
        latents: latent cache (default: runs/TASK/latents).
        density: behaviour density (default: runs/TASK/density).
        out: folder for the variants and ablation.json (default: runs/TASK/ablation).
        scale: paper, compact or tiny; sets the defaults of the options below.
        steps: training steps of every variant.
        trials: nontrivial held-out trials, the same for every variant.
        seed: of the trials; another than evaluations use.
        workers: processes for the trials (default: one a core).
        json_output: print JSON instead of a table.
    """
    base, preset = Path("runs") / task, get_scale(scale, task)
    out = out or base / "ablation"
    if steps is not None:
        preset = replace(preset, planner_train=replace(preset.planner_train, steps=steps))
    # a world that practised knows the plans of the reference and of no other variant
    before = base / "round-0"
    made = before if before.exists() else base
    refined = before / "refined" if before.exists() else None
    frozen, cache = load_world(world_folder(world or refined, task)), open_cache(latents or made / "latents")
    supported = load_density(density or made / "density")
    manifest = _manifest(out, task, data or base / "data.h5", trials, seed)
    settings = _Settings(frozen, cache, supported, preset, manifest, trials, out, workers)
    for variant in get_variants(variants):
        _one(variant, settings)
        finished = [found for other in VARIANTS.values() if (found := settings.result(other)) is not None]
        write_json(out / "ablation.json", _compared(finished, settings))
    report = read_json(out / "ablation.json")
    if json_output:
        print(json.dumps(report))
        return
    console.print(_table(report))
    console.print(f"{out}  world {frozen.digest[:12]}, manifest {manifest.digest[:12]}")


def _manifest(out: Path, task: str, data: Path, trials: int, seed: int) -> Manifest:
    path = out / "manifest.json"
    if path.exists():
        manifest = load_manifest(path)
        if (manifest.task, manifest.seed) != (task, seed) or len(manifest.trials) < trials:
            raise ValueError(
                f"{path} holds {len(manifest.trials)} trials of {manifest.task}, seed {manifest.seed}; {trials} of {task}, seed {seed} were asked for. "
                "Choose another --out."
            )
        return manifest
    from ..tasks.swm_simulator import make_simulator

    spec = get_task(task)
    episodes = open_episodes(data, spec, in_memory=False)
    manifest = draw_manifest(spec, episodes, trials, seed, simulator=lambda: make_simulator(spec))
    save_manifest(manifest, path)
    return manifest


@dataclass(frozen=True)
class _Settings:
    """What all variants share."""

    world: World
    cache: LatentCache
    density: Density
    preset: Scale
    manifest: Manifest
    trials: int
    out: Path
    workers: int | None

    def configs(self, variant: Variant) -> tuple[PlannerConfig, PlannerTrainConfig]:
        return variant.apply(self.preset.planner_for(self.world.spec.model), self.preset.planner_train)

    def identity(self, variant: Variant) -> str:
        configs = [dataclasses.asdict(config) for config in self.configs(variant)]
        parts = [self.world.digest, self.cache.data_digest, self.density.digest, self.manifest.digest, self.trials]
        return digest_json([*configs, *parts])

    def result(self, variant: Variant) -> dict[str, Any] | None:
        """Of a variant that was finished with these settings."""
        path = self.out / variant.folder / "result.json"
        found = read_json(path) if path.exists() else {}
        return found if found.get("identity") == self.identity(variant) else None


def _one(variant: Variant, settings: _Settings) -> None:
    """Train, run and diagnose one variant; what is finished is not repeated."""
    folder = settings.out / variant.folder
    if settings.result(variant) is not None:
        return
    if (folder / "result.json").exists():
        raise ValueError(
            f"{folder} holds a variant of other settings. Choose another --out, or delete it to run it again."
        )
    world, cache, density, manifest = settings.world, settings.cache, settings.density, settings.manifest
    trials, (shape, config) = settings.trials, settings.configs(variant)
    with bar(f"train {variant.name}", "steps") as update:

        def show(progress: TrainProgress) -> None:
            update(progress.step, progress.steps, f"loss {progress.metrics['loss']:.4f}")

        used = density if config.support_weight else None
        planner = train_planner(world, cache, used, shape, config, folder / "planner", on_progress=show)
    evaluation = EvaluationConfig(("leplanner",), REPLANS, seed=manifest.seed, trials=trials)
    with bar(f"evaluate {variant.name}", "trials") as update:
        rows = evaluate(
            folder / "planner",
            settings.out / "manifest.json",
            evaluation,
            folder / "rows.jsonl",
            workers=settings.workers,
            on_row=lambda row, done, total: update(done, total),
        )
    raised = [row for row in rows if row.error is not None]
    if raised:
        raise ValueError(
            f"{len(raised)} trials of {variant.name} raised ({raised[0].error}). Run the same command again."
        )
    from ..tasks.swm_simulator import Visuals, make_simulator

    sim = make_simulator(get_task(manifest.task), Visuals.of(world.spec.visuals))
    with bar(f"diagnose {variant.name}", "trials") as update:
        loop = closed_loop_tables(load_bundle(folder / "planner"), sim, manifest, min(FIT_TRIALS, trials), update)
    sim.close()
    _, held_out = world.plan_windows(cache)
    batch = held_out.draw(np.random.default_rng(manifest.seed), 256, shape.horizon)
    imagined = imagined_tables(planner.model, world, batch, density, shape.refinements)
    result = {
        "name": variant.name,
        "identity": settings.identity(variant),
        "outcomes": {str(m): [bool(row.success_any) for row in rows if row.replan == m] for m in REPLANS},
        "held": {str(m): [bool(row.success_held) for row in rows if row.replan == m] for m in REPLANS},
        "fit": dataclasses.asdict(loop.fit),
        "off_support": imagined.off_support,
        "profile": imagined.profile,
        "start": imagined.start,
    }
    write_json(folder / "result.json", result)


def _compared(results: list[dict[str, Any]], settings: _Settings) -> dict[str, Any]:
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
    manifest, world = settings.manifest.digest, settings.world.digest
    about = {"task": settings.manifest.task, "manifest": manifest, "world": world, "trials": settings.trials}
    about |= {"steps": settings.preset.planner_train.steps, "variants": rows, "command": command_line()}
    return about | {"provenance": provenance(manifest=manifest, world=world)}


def _table(report: dict[str, Any]) -> Table:
    table = Table(title=f"{report['task']}, {report['trials']} trials, {report['steps']} training steps each")
    for title in ("variant", "m = 1", "p", "held", "m = 5", "p", "D*", "off support"):
        table.add_column(title, justify="left" if title == "variant" else "right")
    for row in report["variants"]:
        cells = []
        for m in map(str, REPLANS):
            p = "" if row["name"] == REFERENCE else f"{row['difference'][m]['p_value']:.2g}"
            cells.append((f"{100 * row['success'][m]['value']:.0f}", p))
        fixed = row["fit"]["fixed_point"]
        held = f"{100 * row['held']['1']['value']:.0f}"
        settles = f"{fixed:.4f}" if fixed is not None else "none"
        # without corrections nothing is kept within the data's support
        outside = f"{row['off_support']:.1%}" if row["off_support"] is not None else "none"
        table.add_row(row["name"], *cells[0], held, *cells[1], settles, outside)
    return table
