"""`leplanner run`: every stage of a task, from nothing to a measured bundle."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from rich.table import Table
from tyro.conf import arg

from ..artifacts import atomic_path, read_json, write_json
from ..data.episodes import open_episodes
from ..evaluation.manifest import draw_manifest, save_manifest
from ..planner.planner import load_bundle
from ..presets.scales import get_scale
from ..report.card import model_card
from ..tasks import get_task
from . import baselines, cache, collect, density, evaluate, report, train, world
from .options import MaybePath, TaskName
from .progress import console

EASY_TRIALS, EASY_SEED, EASY_OFFSET = 10, 7, 15  # a working bundle must solve them; shipped with it


def run(
    task: TaskName,
    scale: str = "compact",
    world_source: Annotated[str | None, arg(name="world", help_behavior_hint="", metavar="SOURCE")] = None,
    data: MaybePath = None,
    out: MaybePath = None,
    trials: int = 200,
    search_trials: int = 50,
    device: str = "auto",
) -> int:
    """Everything for one task: collect, train the world, refine it, cache, density, planner, GC-IDM, evaluate, report.

    A stage whose artifact is there is skipped; killed and started again it continues. The artifact of other settings is never
    overwritten: choose another --out, or delete it. Ends with OUT/bundle, ready to load, with its model card.

    Example: leplanner run tworoom

    Example: leplanner run pusht --scale paper --world quentinll/lewm-pusht --data pusht_expert_train.h5

    Args:
        task: tworoom, pusht, reacher or cube.
        scale: paper, compact or tiny.
        world_source: a released LeWM checkpoint (folder or Hugging Face id) to use instead of training a world.
        data: a dataset to use instead of collecting one.
        out: folder for everything (default: runs/TASK).
        trials: of the evaluation.
        search_trials: how many of them CEM gets, which takes seconds a decision; 0: no CEM.
        device: auto, cpu, cuda, mps.
    """
    preset = get_scale(scale, task)
    base = out or Path("runs") / task
    file = data or base / "data.h5"
    first, used = base / "world", base / "world"
    stages: dict[str, Callable[[], object]] = {}
    if data is None:
        stages["collect"] = lambda: collect.collect(task, file, scale)
    if world_source is not None:
        stages["import world"] = lambda: _import_world(world_source, task, file, first)
    else:
        stages["train world"] = lambda: world.train(task, file, first, scale, device=device)
        if preset.refine.steps:
            used = base / "refined"
            stages["refine world"] = lambda: world.refine(task, first, file, used, scale, device=device)
    latents, supported, planner, rivals = (base / name for name in ("latents", "density", "planner", "baselines"))
    measured = base / "evaluation" / "nontrivial-25-42"
    methods = f"leplanner,{'cem,' if search_trials else ''}gcidm,random,nothing,replay"
    status: list[int] = []
    stages |= {
        "cache": lambda: cache.cache(task, used, file, latents, device=device),
        "density": lambda: density.density(task, used, latents, supported, scale, device=device),
        "train planner": lambda: train.train(task, used, latents, supported, planner, scale, device=device),
        "GC-IDM": lambda: baselines.baselines(task, "gcidm", used, latents, rivals, scale, device=device),
        "evaluate": lambda: status.append(
            evaluate.evaluate(
                task,
                str(planner),
                methods,
                trials=trials,
                search_trials=search_trials,
                data=file,
                baselines=rivals,
                out=measured,
                films=min(4, trials),
            )
        ),
        "bundle": lambda: make_bundle(base, measured, file, f"leplanner run {task} --scale {scale}"),
        "report": lambda: report.report((measured,), base / "report.html"),
    }
    spent: dict[str, float] = read_json(base / "run.json") if (base / "run.json").exists() else {}
    for number, (name, stage) in enumerate(stages.items(), start=1):
        console.rule(f"{number}/{len(stages)} {name}")
        began = time.monotonic()
        stage()
        spent[name] = spent.get(name, 0.0) + (time.monotonic() - began) / 60
        write_json(base / "run.json", spent)
    table = Table(title="minutes, over all calls")
    for name in stages:
        table.add_column(name, justify="right")
    table.add_row(*(f"{spent[name]:.1f}" for name in stages))
    console.print(table)
    console.print(f"bundle: {base / 'bundle'}   report: {base / 'report.html'}")
    return max(status)


def _import_world(source: str, task: str, data: Path, out: Path) -> None:
    if (out / "config.json").exists() and read_json(out / "config.json")["training"].get("source") == source:
        console.print(f"{out}  imported before")
        return
    world.import_(source, task, data, out=out)


def make_bundle(base: Path, evaluation: Path, data: Path, command: str) -> None:
    """BASE/bundle: the weights, what they were measured to do and on which trials, a few easy trials, and the card."""
    from ..tasks.swm_simulator import make_simulator

    planner = load_bundle(base / "planner")
    spec, world_spec = get_task(planner.world.spec.task), planner.world.spec
    folder = base / "bundle"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in [*sorted((base / "planner").glob("*.safetensors")), base / "planner" / "config.json"]:
        shutil.copyfile(path, folder / path.name)
    shutil.copyfile(evaluation / "manifest.json", folder / "manifest.json")
    shutil.copyfile(evaluation / "summary.json", folder / "evaluation.json")
    episodes = open_episodes(data, spec, in_memory=False)
    easy = draw_manifest(
        spec,
        episodes,
        EASY_TRIALS,
        EASY_SEED,
        offset=EASY_OFFSET,
        block=world_spec.block,
        context=world_spec.model.context,
        simulator=lambda: make_simulator(spec),
    )
    save_manifest(easy, folder / "easy.json")
    with atomic_path(folder / "README.md") as temporary:
        temporary.write_text(model_card(base, evaluation, command))
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    console.print(f"{folder}  {size:.1f} MB, planner {planner.digest[:12]}")
