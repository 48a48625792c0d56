"""`leplanner density`: fit the behaviour density."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..data.cache import open_cache
from ..density.train import train_density
from ..learning import TrainProgress
from ..presets.scales import get_scale
from ..world.world import load_world
from .options import MaybePath, ScaleFloat, ScaleInt, TaskName, world_folder
from .progress import bar, console


def density(
    task: TaskName,
    world: MaybePath = None,
    latents: MaybePath = None,
    out: MaybePath = None,
    scale: str = "compact",
    steps: ScaleInt = None,
    batch: ScaleInt = None,
    learning_rate: ScaleFloat = None,
    seed: ScaleInt = None,
    device: str = "auto",
) -> None:
    """Fit how probable an action block is under the data, given what was seen; killed and started again it continues.

    A planner is trained to stay among the blocks that this density supports: those that score below the 95th percentile
    of held-out real blocks.

    Example: leplanner density tworoom

    Args:
        task: tworoom, pusht, reacher or cube.
        world: world folder (default: runs/TASK/refined, else runs/TASK/world).
        latents: latent cache (default: runs/TASK/latents).
        out: folder to make (default: runs/TASK/density).
        scale: paper, compact or tiny; sets the defaults of the options below.
        steps: training steps.
        batch: blocks in a batch.
        learning_rate: of Adam, constant.
        seed: of initialisation and batches.
        device: auto, cpu, cuda, mps.
    """
    base = Path("runs") / task
    chosen = {"steps": steps, "batch": batch, "learning_rate": learning_rate, "seed": seed}
    config = get_scale(scale, task).density
    config = replace(config, **{name: value for name, value in chosen.items() if value is not None})
    frozen, cache = load_world(world_folder(world, task)), open_cache(latents or base / "latents")
    out = out or base / "density"
    with bar(f"fit density {task}", "steps") as update:

        def show(progress: TrainProgress) -> None:
            held_out = progress.metrics.get("held_out_score")
            update(progress.step, progress.steps, f"held-out score {held_out:.3f}" if held_out is not None else "")

        fitted = train_density(frozen, cache, config, out, device, show)
    console.print(f"{out}  density {fitted.digest[:12]}, c95 {fitted.threshold:.4f}")
