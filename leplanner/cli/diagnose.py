"""`leplanner diagnose`: tables about a planner's imagination and its closed loop."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ..artifacts import command_line, provenance, read_json, write_json
from ..data.cache import open_cache
from ..data.episodes import open_episodes
from ..diagnostics.closed_loop import ClosedLoopTables, closed_loop_tables
from ..diagnostics.decoder import load_decoder
from ..diagnostics.imagined import ImaginedTables, imagined_tables
from ..diagnostics.panels import draw_films, panel, save_panels
from ..evaluation.manifest import draw_manifest
from ..evaluation.properties import OURS
from ..planner.planner import load_bundle
from ..tasks import get_task
from .options import Json, MaybeBundle, MaybePath, TaskName, bundle_folder
from .progress import bar, console

PANELS = 4  # the first trials, whatever happens in them


def diagnose(
    task: TaskName,
    bundle: MaybeBundle = None,
    data: MaybePath = None,
    latents: MaybePath = None,
    out: MaybePath = None,
    decoder: MaybePath = None,
    films: MaybePath = None,
    problems: int = 256,
    trials: int = 20,
    depth: int = 10,
    seed: int = 1000,
    json_output: Json = False,
) -> None:
    """When do plans arrive, what does each correction buy, where does the closed loop settle, how far does imagination drift?

    On held-out problems of the dataset and in the environment; trials are of another seed than evaluations use. Writes
    OUT/imagined.json and OUT/closed_loop.json, from which figures are drawn.

    Example: leplanner diagnose tworoom

    Args:
        task: tworoom, pusht, reacher or cube.
        bundle: a shipped task's name, a bundle folder or a Hugging Face id (default: runs/TASK/planner, else the shipped one).
        data: the dataset to draw trials from (default: runs/TASK/data.h5).
        latents: frames encoded by the bundle's world, for problems in imagination: leplanner cache (default: runs/TASK/latents).
        out: folder for the tables (default: runs/TASK/diagnostics).
        decoder: what `leplanner decoder` made: also draw what the first trials imagine, to OUT/panels.npz (default:
            runs/TASK/decoder, if there is one).
        films: an evaluation's folder whose films get the planner's imagination drawn beside them.
        problems: held-out problems.
        trials: episodes in the environment; 0: none.
        depth: corrections to look at, beyond those the planner was trained with.
        seed: of the problems and the trials.
        json_output: print JSON instead of tables.
    """
    base = Path("runs") / task
    chosen = bundle_folder(bundle, task)
    planner, spec, out = load_bundle(chosen), get_task(task), out or base / "diagnostics"
    if planner.world.spec.task != task:
        raise ValueError(f"{chosen} is a bundle for {planner.world.spec.task}, not for {task}.")
    file = data or base / "data.h5"
    episodes = open_episodes(file, spec, in_memory=False)
    cache = open_cache(latents or base / "latents")
    _, held_out = planner.world.plan_windows(cache)
    batch = held_out.draw(np.random.default_rng(seed), problems, planner.model.config.horizon)
    trained = decoder or (base / "decoder" if (base / "decoder" / "config.json").exists() else None)
    probe = load_decoder(trained, planner.world) if trained else None
    if films is not None:
        if probe is None:
            raise ValueError("Drawing what films imagined needs a decoder: leplanner decoder TASK, then --decoder DIR.")
        filmed = {row["weights"] for row in read_json(films / "summary.json")["methods"] if row["method"] in OURS}
        if filmed != {planner.digest}:
            raise ValueError(f"The films in {films} are of another bundle than {chosen}. Give that one with --bundle.")
        console.print(f"{films / 'imagined'}  {draw_films(films, probe)} films")
    about = {
        "task": task,
        "bundle": planner.digest,
        "seed": seed,
        "command": command_line(),
        "provenance": provenance(),
    }
    for stale in ("closed_loop.json", "panels.npz"):
        (out / stale).unlink(missing_ok=True)
    imagined = imagined_tables(planner.model, planner.world, batch, planner.density, depth)
    write_json(out / "imagined.json", about | {"data": cache.data_digest} | dataclasses.asdict(imagined))
    reports: dict[str, Any] = {"imagined": dataclasses.asdict(imagined)}
    executed = None
    if trials:
        from ..tasks.swm_simulator import Visuals, make_simulator

        sim = make_simulator(spec, Visuals.of(planner.world.spec.visuals))
        manifest = draw_manifest(spec, episodes, trials, seed, simulator=lambda: make_simulator(spec))
        with bar(f"diagnose {task}", "trials") as update:
            executed = closed_loop_tables(planner, sim, manifest, trials, update)
        if probe is not None:
            drawn = [panel(planner, probe, sim, trial) for trial in manifest.trials[: min(PANELS, trials)]]
            save_panels(drawn, out / "panels.npz")
        found = {"manifest": manifest.digest, "data": episodes.digest, "decoder": probe.fidelity if probe else None}
        write_json(out / "closed_loop.json", about | found | dataclasses.asdict(executed))
        reports["closed_loop"] = dataclasses.asdict(executed)
    if json_output:
        print(json.dumps(reports))
        return
    for table in _tables(imagined, executed):
        console.print(table)
    console.print(f"{out}  bundle {planner.digest[:12]}")


def _tables(imagined: ImaginedTables, executed: ClosedLoopTables | None) -> list[Table | str]:
    horizon = len(imagined.magnitudes)
    profile = Table(
        title=f"distance to the goal after each block, % of the start ({imagined.problems} held-out problems)"
    )
    for title in ("goal at q", "problems", *map(str, range(1, horizon + 1))):
        profile.add_column(title, justify="right")
    for q, (row, count) in enumerate(zip(imagined.profile, imagined.profile_counts, strict=True), start=1):
        if row is not None:
            profile.add_row(str(q), str(count), *(f"{100 * value / imagined.start:.2f}" for value in row))
    depth = Table(title=f"what a correction buys (trained with {imagined.trained_depth})")
    for title in ("k", "terminal", "arrival", "gain", "change"):
        depth.add_column(title, justify="right")
    for row in imagined.depth:
        rest = (f"{row.gain:+.5f}", f"{row.change:.4f}") if row.gain is not None else ("", "")
        depth.add_row(str(row.k), f"{row.terminal:.5f}", f"{row.arrival:.5f}", *rest)
    beside = imagined.beside_the_data
    lines = [
        "mean |action| by block, standardised: " + " ".join(f"{value:.3f}" for value in imagined.magnitudes),
        f"first block beside the data's: cosine {beside.cosine_mean:.3f} (median {beside.cosine_median:.3f}), differs by "
        f"{beside.difference:.3f} of {beside.magnitude:.3f}; nearer the goal than after the data's block: our plan in "
        f"{beside.plan_nearer:.1%}, our first block in {beside.our_block_nearer:.1%}",
    ]
    if imagined.off_support is not None:
        lines.append(f"blocks that the data does not support: {imagined.off_support:.1%}")
    if executed is not None:
        fit = executed.fit
        settles = (
            f"settles at {fit.fixed_point:.4f} ({fit.low:.4f} to {fit.high:.4f} in the {fit.settled:.0%} of resamples that settle)"
            if fit.fixed_point is not None and fit.low is not None
            else "does not settle"
        )
        lines.append(
            f"closed loop over {fit.pairs} replans of {fit.trials} trials: D' = {fit.c:.3f} D + {fit.b:.4f}, {settles}"
        )
        for name, drift, still in (
            ("our plans", executed.drift, executed.drift_of_copying),
            ("the data's actions from the same starts", executed.data_drift, executed.data_drift_of_copying),
        ):
            shares = " ".join(f"{100 * value / max(rest, 1e-12):.1f}" for value, rest in zip(drift, still, strict=True))
            lines.append(f"imagined against real latents after each block, % of copying, {name}: {shares}")
    return [profile, depth, *lines]
