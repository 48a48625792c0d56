"""`leplanner collect`: make a dataset with a task's behaviour policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..data.collect import collect as run_collect
from ..presets.scales import get_scale
from .options import MaybeInt, MaybePath, ScaleInt, TaskName
from .progress import bar, console


def collect(
    task: TaskName,
    out: MaybePath = None,
    scale: str = "compact",
    episodes: ScaleInt = None,
    steps: ScaleInt = None,
    every: ScaleInt = None,
    size: ScaleInt = None,
    seed: ScaleInt = None,
    workers: MaybeInt = None,
) -> None:
    """Collect a dataset: TASK is tworoom, pusht, reacher or cube.

    Writes stable-worldmodel's HDF5 layout. Uses all cores; killed and started again it continues.

    Example: leplanner collect pusht --episodes 100 --out runs/pusht/data.h5

    Args:
        task: tworoom, pusht, reacher or cube.
        out: the file to make (default: runs/TASK/data.h5).
        scale: paper, compact or tiny; sets the defaults of the options below.
        episodes: how many episodes.
        steps: environment actions in an episode.
        every: render and keep one frame in this many; a row then holds as many actions.
        size: frame size in pixels.
        seed: episode i is a function of (seed, i).
        workers: processes (default: one a core).
    """
    config = get_scale(scale, task).collect
    chosen = {"episodes": episodes, "steps": steps, "every": every, "size": size, "seed": seed}
    config = replace(config, **{name: value for name, value in chosen.items() if value is not None})
    out = out or Path("runs") / task / "data.h5"
    with bar(f"collect {task}", "frames") as update:
        run_collect(config, out, workers, update)
    console.print(f"{out}  ({config.episodes} episodes of {config.steps} actions, {out.stat().st_size / 1e6:.0f} MB)")
