"""`leplanner practice`: let a planner play, and add what its plans really did to the data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..control.practice import Practice
from ..data.collect import collect
from ..presets.scales import get_scale
from .options import MaybeInt, MaybePath, ScaleInt, TaskName
from .progress import bar, console


def practice(
    task: TaskName,
    planner: MaybePath = None,
    data: MaybePath = None,
    out: MaybePath = None,
    scale: str = "compact",
    episodes: ScaleInt = None,
    steps: ScaleInt = None,
    seed: ScaleInt = None,
    workers: MaybeInt = None,
) -> None:
    """Let a planner play towards goals of its data, and write the data with these episodes added.

    A plan goes where the world imagines well of it, and so to what the world has wrong. `leplanner run` does all that follows:
    encode the new file (`cache --data ... --known ...`), refine the world on it, fit a density for that world, and train the planner on
    (`train --start ...`). Starts and goals are rows of training episodes. On PushT a part of the episodes shows instead how a missed
    goal is corrected: round the block, a small push, and back. Killed and started again it continues.

    Example: leplanner practice pusht --episodes 4000

    Args:
        task: tworoom, pusht, reacher or cube.
        planner: the bundle that plays (default: runs/TASK/planner).
        data: the dataset to start from and to add to (default: runs/TASK/data.h5).
        out: the file to make (default: runs/TASK/practised.h5).
        scale: paper, compact or tiny; sets the defaults of the options below.
        episodes: how many episodes to play.
        steps: environment actions in an episode.
        seed: episode i is a function of (seed, i), the planner and the data.
        workers: processes (default: one a core).
    """
    base, preset = Path("runs") / task, get_scale(scale, task)
    if episodes is None and not preset.practice_rounds:
        raise ValueError(f"The {scale} scale does not practise {task}. Give --episodes to practise all the same.")
    data, out = data or base / "data.h5", out or base / "practised.h5"
    chosen = {"episodes": episodes, "steps": steps, "seed": seed}
    config = replace(preset.practice, **{name: value for name, value in chosen.items() if value is not None})
    with bar(f"practice {task}", "frames") as update:
        collect(config, out, workers, update, Practice(planner or base / "planner", data), onto=data)
    console.print(
        f"{out}  ({config.episodes} episodes of {config.steps} actions added, {out.stat().st_size / 1e6:.0f} MB)"
    )
