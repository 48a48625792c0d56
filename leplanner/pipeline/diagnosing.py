"""Diagnoses a bundle: tables about its imagination and its closed loop, and pictures of what it imagines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..artifacts import command_line, folder_lock, provenance, read_json, write_json
from ..control.methods import methods_of
from ..data.cache import open_cache
from ..data.formats import open_episodes
from ..data.windows import plan_windows
from ..diagnostics.closed_loop import ClosedLoopTables, closed_loop_tables
from ..diagnostics.decoder import Decoder, load_decoder
from ..diagnostics.imagined import ImaginedTables, imagined_tables
from ..diagnostics.panels import draw_videos, panel, save_panels
from ..evaluation.manifest import default_budget
from ..planner.planner import Planner, load_bundle
from ..tasks import Task
from .evaluating import Draw, new_manifest
from .stage import Show, silent

PANELS = 4  # the first trials, whatever happens in them


@dataclass(frozen=True)
class DiagnosisConfig:
    problems: int = 256
    """held-out problems"""
    trials: int = 20
    """episodes in the environment; 0: none"""
    depth: int = 10
    """refinements to look at, beyond those the planner was trained with"""
    offset: int = 25
    """environment actions from start to goal in the data"""
    seed: int = 1000
    """of the problems and the trials; another than evaluations use"""


@dataclass(frozen=True)
class Diagnosis:
    planner: Planner
    imagined: ImaginedTables
    executed: ClosedLoopTables | None
    videos: int | None  # how many were drawn


def diagnose_bundle(
    task: Task,
    bundle: Path,
    data: Path,
    latents: Path,
    out: Path,
    config: DiagnosisConfig,
    decoder: Path | None = None,  # also draw what the first trials imagine
    videos: Path | None = None,  # an evaluation's folder whose videos get the planner's imagination drawn beside them
    show: Show = silent,
) -> Diagnosis:
    """Writes OUT/imagined.json, OUT/closed_loop.json and OUT/panels.npz, from which figures are drawn."""
    planner = load_bundle(bundle)
    if planner.world.spec.task != task.name:
        raise ValueError(f"{bundle} is a bundle for {planner.world.spec.task}, not for {task.name}.")
    episodes, cache = open_episodes(data, task, in_memory=False), open_cache(latents)
    _, held_out = plan_windows(planner.world, cache)
    batch = held_out.draw(np.random.default_rng(config.seed), config.problems, planner.model.config.horizon)
    probe = load_decoder(decoder, planner.world) if decoder else None
    drawn = _draw_videos(videos, probe, planner, bundle) if videos is not None else None
    about = {"task": task.name, "bundle": planner.digest, "seed": config.seed}
    about |= {"command": command_line(), "provenance": provenance()}
    with folder_lock(out):
        for stale in ("closed_loop.json", "panels.npz"):
            (out / stale).unlink(missing_ok=True)
        imagined = imagined_tables(planner.model, planner.world, batch, planner.density, config.depth)
        write_json(out / "imagined.json", about | {"data": cache.data_digest} | dataclasses.asdict(imagined))
        executed = None
        if config.trials:
            draw = Draw(config.trials, config.seed, offset=config.offset, budget=default_budget(config.offset))
            executed = _execute(task, planner, data, draw, probe, out, about | {"data": episodes.digest}, show)
    return Diagnosis(planner, imagined, executed, drawn)


def _execute(
    task: Task,
    planner: Planner,
    data: Path,
    draw: Draw,
    probe: Decoder | None,
    out: Path,
    about: dict[str, Any],
    show: Show,
) -> ClosedLoopTables:
    manifest = new_manifest(task, data, planner.world.spec, draw)
    sim = task.simulate(planner.world.spec.visuals)
    try:
        with show(f"diagnose {task.name}", "trials") as update:
            executed = closed_loop_tables(planner, sim, manifest, draw.trials, update)
        if probe is not None:
            trials = manifest.trials[: min(PANELS, draw.trials)]
            save_panels([panel(planner, probe, sim, trial) for trial in trials], out / "panels.npz")
    finally:
        sim.close()
    facts = {"manifest": manifest.digest, "decoder": probe.fidelity if probe else None}
    write_json(out / "closed_loop.json", about | facts | dataclasses.asdict(executed))
    return executed


def _draw_videos(folder: Path, probe: Decoder | None, planner: Planner, bundle: Path) -> int:
    if probe is None:
        raise ValueError("Drawing what videos imagined needs a decoder: leplanner decoder TASK, then --decoder DIR.")
    methods = read_json(folder / "summary.json")["methods"]
    recorded = {row["weights"] for row in methods if row["method"] in methods_of("ours")}
    if recorded != {planner.digest}:
        raise ValueError(f"The videos in {folder} are of another bundle than {bundle}. Give that one with --bundle.")
    return draw_videos(folder, probe)
