"""`leplanner demo`: the pipeline on one task at tiny scale, from nothing, as far as it goes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from rich.table import Table

from ..artifacts import read_json
from ..data.cache import build_cache
from ..data.collect import collect
from ..data.episodes import open_episodes
from ..density.train import train_density
from ..planner.train import train_planner
from ..presets.scales import get_scale
from ..tasks import get_task
from ..world.probe import probe_world
from ..world.train import train_world
from .options import MaybePath
from .progress import bar, console


def demo(task: str = "tworoom", scale: str = "tiny", out: MaybePath = None) -> None:
    """Collect, train a world, probe it, cache its latents, fit the density, train a planner: a minute at tiny scale.

    Example: leplanner demo

    Args:
        task: tworoom, pusht, reacher or cube.
        scale: tiny shows that everything runs; compact gives a good world and takes longer.
        out: folder for the artifacts (default: a temporary one).
    """
    preset, spec = get_scale(scale, task), get_task(task)
    base = out or Path(tempfile.mkdtemp(prefix="leplanner-demo-"))
    table = Table(title=f"{spec.title} at {scale} scale")
    for title in ("stage", "result", "seconds"):
        table.add_column(title, justify="right" if title == "seconds" else "left")
    clock = [time.monotonic()]

    def done(stage: str, result: str) -> None:
        clock.append(time.monotonic())
        table.add_row(stage, result, f"{clock[-1] - clock[-2]:.1f}")

    with bar("collect", "frames") as update:
        collect(preset.collect, base / "data.h5", progress=update)
    episodes = open_episodes(base / "data.h5", spec)
    done("collect", f"{len(episodes.lengths)} episodes, {episodes.rows} frames of {preset.collect.size} px")
    with bar("train world", "steps") as update:
        world = train_world(
            spec, episodes, preset.model, preset.train, base / "world", on_progress=lambda p: update(p.step, p.steps)
        )
    done(
        "train world",
        f"{sum(p.numel() for p in world.model.parameters()) / 1e6:.2f} M parameters, {preset.train.steps} steps",
    )
    report = probe_world(world, spec, episodes)
    errors = ", ".join(f"{name} {value:.3g}" for name, value in report.rmse.items())
    spread = ", ".join(f"{value:.3g}" for value in report.std.values())
    done("probe", f"held-out RMSE {errors} (spread {spread}; {report.unit})")
    with bar("cache", "frames") as update:
        cache = build_cache(
            episodes,
            world.latents,
            preset.model.latent,
            world.digest,
            base / "latents",
            progress=update,
        )
    done("cache", f"{cache.latents.shape[0]} latents of {cache.latents.shape[1]}")
    with bar("density", "steps") as update:
        density = train_density(
            world, cache, preset.density, base / "density", on_progress=lambda p: update(p.step, p.steps)
        )
    done(
        "density",
        f"{preset.density.components} components, 95 % of held-out blocks score below {density.threshold:.2f}",
    )
    with bar("train planner", "steps") as update:
        planner = train_planner(
            world,
            cache,
            density,
            preset.planner_for(preset.model),
            preset.planner_train,
            base / "planner",
            on_progress=lambda p: update(p.step, p.steps),
        )
    metrics = read_json(base / "planner" / "config.json")["training"]["metrics"]
    arrival = ", ".join(f"{distance / metrics['held_out_start']:.0%}" for distance in metrics["held_out_arrival"])
    done(
        "train planner",
        f"{sum(p.numel() for p in planner.model.parameters()) / 1e6:.2f} M parameters, {preset.planner_train.steps} steps; "
        f"held-out distance to the goal at arrival: {arrival} of the start's for k = 0, 1, ...",
    )
    console.print(table)
    console.print(f"artifacts: {base}")
