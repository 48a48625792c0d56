"""`leplanner run`: every stage of a task, from nothing to a measured bundle."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import torch
from rich.table import Table
from tyro.conf import arg

from ..artifacts import read_json, write_json
from ..data.collect import check_continues
from ..data.episodes import open_episodes
from ..planner.train import pick_step_engine
from ..presets.scales import get_scale
from ..report.card import Making
from ..report.page import check_installed
from ..tasks import get_task
from . import baselines, cache, collect, density, evaluate, practice, report, train
from . import world as worlds
from .bundle import make_bundle
from .options import MaybePath, TaskName
from .progress import console

Stages = dict[str, Callable[[], object]]
FILMED = 4  # trials of every method


def run(
    task: TaskName,
    scale: str = "compact",
    world: Annotated[str | None, arg(help_behavior_hint="", metavar="SOURCE")] = None,
    data: MaybePath = None,
    out: MaybePath = None,
    trials: int = 200,
    search_trials: int = 50,
    device: str = "auto",
) -> None:
    """Everything for one task: collect, train the world, cache, refine it, density, planner, GC-IDM, evaluate, report.

    PushT practises in between: the planner plays, the world is refined on what its plans really did, and the
    planner is trained on through it.

    A stage whose artifact is there is skipped; killed and started again it continues. The artifact of other settings is never
    overwritten: choose another --out, or delete that stage's folder. Ends with OUT/bundle, ready to load, with its model card.

    Example: leplanner run tworoom

    Example: leplanner run pusht --scale paper --world quentinll/lewm-pusht --data pusht_expert_train.h5

    Args:
        task: tworoom, pusht, reacher or cube.
        scale: paper, compact or tiny.
        world: a released LeWM checkpoint (folder or Hugging Face id) to use instead of training a world; needs --data.
        data: a dataset to use instead of collecting one; with --world, the one that it was trained on.
        out: folder for everything (default: runs/TASK).
        trials: of the evaluation.
        search_trials: how many of them CEM gets, which takes seconds a decision; 0: no CEM.
        device: auto, cpu, cuda, mps.
    """
    if world is not None and data is None:
        raise ValueError(
            "--world needs --data: a released world comes without the statistics of the actions it was trained on. Give the "
            "dataset of that training."
        )
    preset = get_scale(scale, task)
    base = out or Path("runs") / task
    file = data or base / "data.h5"
    first, measured, rivals = base / "world", base / "measured", base / "baselines"
    stages: Stages = {}
    if data is None:
        stages["collect"] = lambda: collect.collect(task, file, scale)
    if world is not None:
        stages["import world"] = lambda: _import_world(world, task, file, first)
    else:
        stages["train world"] = lambda: worlds.train(task, file, first, scale, device=device)
    rounds = preset.practice_rounds if world is None else 0
    if rounds and data is not None:
        check_continues(data, preset.practice)  # now, not when hours of training are done
    folders = [*(base / f"round-{number}" for number in range(rounds)), base]  # the last round's planner is the task's
    for earlier, folder in pairwise(folders):
        _check_unmade(earlier, folder)
    _check_ending(task, data, trials, search_trials)
    files = [file, *(folder / "practised.h5" for folder in folders[1:])]
    parts, used = {"World": first}, first
    refines = world is None and preset.refine.steps > 0
    for number, (folder, seen) in enumerate(zip(folders, files, strict=True)):
        earlier = folders[number - 1] if number else None
        round_ = f", round {number}" if number else ""
        if earlier is not None:
            stages["practice" + round_] = partial(
                practice.practice, task, earlier / "planner", files[number - 1], seen, scale, seed=number
            )
        learned = _learned(task, scale, device, used, seen, folder, refines, earlier)
        stages |= {name + round_: stage for name, stage in learned.stages.items()}
        parts |= {title + round_: made for title, made in learned.parts.items()}
        used = learned.world
    parts |= {"GC-IDM, for comparison": rivals / "gcidm"}
    making = Making(_command(task, scale, world, data, trials, search_trials), scale, file, parts, tuple(files[1:]))
    planner, latents = base / "planner", base / "latents"
    stages |= {
        "GC-IDM": partial(
            baselines.baselines, task, "gcidm", used, latents=latents, out=rivals, scale=scale, device=device
        ),
        "evaluate": lambda: _evaluate(task, planner, file, rivals, measured, trials, search_trials),
        "bundle": lambda: _bundle(task, planner, measured, file, making, base / "bundle"),
        "report": lambda: report.report((measured,), base / "report.html"),
    }
    times = base / "run.json"
    spent: dict[str, float] = read_json(times) if times.exists() else {}
    for number, (name, stage) in enumerate(stages.items(), start=1):
        console.rule(f"{number}/{len(stages)} {name}")
        began = time.monotonic()
        try:
            stage()
        finally:
            spent[name] = spent.get(name, 0.0) + (time.monotonic() - began) / 60
            write_json(times, spent)
    table = Table(title="minutes, over all calls that ended by themselves")
    for name in stages:
        table.add_column(name, justify="right")
    table.add_row(*(f"{spent[name]:.1f}" for name in stages))
    console.print(table)
    console.print(f"bundle: {base / 'bundle'}   report: {base / 'report.html'}")


@dataclass(frozen=True)
class _Learned:
    """The stages from a world and a dataset to a planner, and what they make."""

    stages: Stages
    parts: dict[str, Path]
    world: Path


def _learned(
    task: str,
    scale: str,
    device: str,
    world: Path,
    file: Path,
    folder: Path,
    refines: bool,
    earlier: Path | None = None,
) -> _Learned:
    """`earlier`: where the planner that practised and its latents are."""
    used = folder / "refined" if refines else world
    latents, supported, planner = (folder / name for name in ("latents", "density", "planner"))
    known, start = (earlier / "latents", earlier / "planner") if earlier else (None, None)
    stages: Stages = {"cache": lambda: cache.cache(task, world, None, file, latents, known, device=device)}
    if refines:
        stages["refine world"] = lambda: worlds.refine(task, world, latents, used, scale, device=device)
    stages |= {
        "density": lambda: density.density(task, used, latents, supported, scale, device=device),
        "train planner": lambda: train.train(task, used, latents, supported, planner, start, scale, device=device),
    }
    parts = ({"Predictor refined": used} if refines else {}) | {"Density": supported, "Planner": planner}
    return _Learned(stages, parts, used)


def _check_ending(task: str, data: Path | None, trials: int, search_trials: int) -> None:
    """What would stop the last stages is found out before hours of training."""
    if trials < 1 or search_trials < 0:
        raise ValueError(
            f"--trials must be at least 1 and --search-trials at least 0 (no CEM); got {trials} and {search_trials}."
        )
    check_installed()
    if data is not None and open_episodes(data, get_task(task), in_memory=False).states is None:
        raise ValueError(
            f"{data} has no physical states, from which trials are set up: it can train a planner (leplanner train), but a run ends "
            "with an evaluation. Give a dataset with a 'state' column."
        )


def _check_unmade(earlier: Path, folder: Path) -> None:
    """What is made of practised data cannot be there before them, nor they before who played: it would be refused, but only after an
    hour."""
    made = [folder / name for name in ("practised.h5", "latents", "refined", "density", "planner")]
    needed = [earlier / "planner" / "config.json", folder / "practised.h5"]
    for missing, of_it in ((needed[0], made), (needed[1], made[1:])):
        found = [str(path) for path in of_it if path.exists()]
        if found and not missing.exists():
            raise ValueError(
                f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} of another run: this one makes them last, from {missing}, which "
                "is not there yet. Choose another --out, or move them away."
            )


def _command(task: str, scale: str, world: str | None, data: Path | None, trials: int, search_trials: int) -> str:
    words = ["leplanner", "run", task, "--scale", scale]
    words += ["--world", world] if world else []
    words += ["--data", data.name] if data else []
    words += ["--trials", str(trials)] if trials != 200 else []
    words += ["--search-trials", str(search_trials)] if search_trials != 50 else []
    return shlex.join(words)


def _import_world(source: str, task: str, data: Path, out: Path) -> None:
    if (out / "config.json").exists():
        config = read_json(out / "config.json")
        found = (config["training"].get("source"), config["provenance"]["inputs"].get("data"))
        wanted = (source, open_episodes(data, get_task(task), in_memory=False).digest)
        if found != wanted:
            raise ValueError(f"{out} holds a world of {found}, asked for {wanted}. Choose another --out, or delete it.")
        console.print(f"{out}  imported before")
        return
    worlds.import_(source, task, data, out=out)


def _evaluate(task: str, planner: Path, data: Path, rivals: Path, out: Path, trials: int, search_trials: int) -> None:
    raised = evaluate.evaluate(
        task,
        str(planner),
        f"leplanner-keep,leplanner,{'cem,' if search_trials else ''}gcidm,random,nothing,replay",
        trials=trials,
        search_trials=search_trials or None,
        compile_search=pick_step_engine("auto", torch.device("cpu")) == "compiled",
        data=data,
        baselines=rivals,
        out=out,
        films=min(FILMED, trials),
    )
    if raised:
        raise ValueError("Trials raised an error (see above); run the same command to try them again.")


def _bundle(task: str, planner: Path, measured: Path, data: Path, making: Making, out: Path) -> None:
    made = make_bundle(planner, measured, open_episodes(data, get_task(task), in_memory=False), making, out)
    console.print(f"{made}  {sum(path.stat().st_size for path in made.iterdir()) / 1e6:.1f} MB")
