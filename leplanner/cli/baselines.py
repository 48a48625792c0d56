"""`leplanner baselines`: train the learned baselines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from ..baselines.learned import LEARNED, train_baseline
from ..data.cache import open_cache
from ..learning import TrainProgress
from ..presets.scales import get_scale
from .options import MaybeBundle, MaybePath, ScaleInt, TaskName, frozen_world
from .progress import bar, console


def baselines(
    task: TaskName,
    methods: Annotated[str, arg(metavar="A,B")] = ",".join(LEARNED),
    world: MaybePath = None,
    bundle: MaybeBundle = None,
    latents: MaybePath = None,
    out: MaybePath = None,
    scale: str = "compact",
    steps: ScaleInt = None,
    seed: ScaleInt = None,
    device: str = "auto",
) -> None:
    """Train the learned baselines on the same latent cache; killed and started again it continues.

    gcidm: inverse dynamics given the goal and the time that remains. gcbc: behaviour cloning. gcivl, gciql: offline
    reinforcement learning.

    Example: leplanner baselines tworoom --methods gcidm,gcbc

    Args:
        task: tworoom, pusht, reacher or cube.
        methods: names, separated by commas.
        world: world folder (default: runs/TASK/refined, else runs/TASK/world).
        bundle: instead of --world, the world of a shipped task's name, a bundle folder or a Hugging Face id.
        latents: latent cache (default: runs/TASK/latents).
        out: folder for one folder a method (default: runs/TASK/baselines).
        scale: paper, compact or tiny; sets the defaults of the options below.
        steps: training steps.
        seed: of initialisation and batches.
        device: auto, cpu, cuda, mps.
    """
    base = Path("runs") / task
    chosen = {"steps": steps, "seed": seed}
    config = replace(get_scale(scale, task).baselines, **{k: v for k, v in chosen.items() if v is not None})
    frozen, cache = frozen_world(world, bundle, task), open_cache(latents or base / "latents")
    folder = out or base / "baselines"
    for name in methods.split(","):
        with bar(f"train {name} {task}", "steps") as update:

            def show(progress: TrainProgress, update=update) -> None:
                error = progress.metrics.get("held_out_error")
                update(progress.step, progress.steps, f"held-out error {error:.3f}" if error is not None else "")

            train_baseline(name, frozen, cache, config, folder / name, device, show)
        console.print(f"{folder / name}")
