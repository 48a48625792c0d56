"""`leplanner cache`: encode a dataset once."""

from __future__ import annotations

from pathlib import Path

from ..data.cache import build_cache, open_cache
from ..data.episodes import open_episodes
from ..precision import pick_device
from ..tasks import get_task
from .options import MaybeBundle, MaybePath, TaskName, frozen_world
from .progress import bar, console


def cache(
    task: TaskName,
    world: MaybePath = None,
    bundle: MaybeBundle = None,
    data: MaybePath = None,
    out: MaybePath = None,
    known: MaybePath = None,
    batch: int = 256,
    device: str = "auto",
) -> None:
    """Encode every frame of a dataset to an fp16 latent cache; killed and started again it continues.

    Example: leplanner cache tworoom

    Args:
        task: tworoom, pusht, reacher or cube.
        world: world folder (default: runs/TASK/refined, else runs/TASK/world).
        bundle: instead of --world, the world of a shipped task's name, a bundle folder or a Hugging Face id.
        data: dataset (default: runs/TASK/data.h5).
        out: cache folder (default: runs/TASK/latents).
        known: a cache of data with which these begin, e.g. of those before practice: only what is new is encoded.
        batch: frames encoded at once.
        device: auto, cpu, cuda, mps.
    """
    base = Path("runs") / task
    frozen = frozen_world(world, bundle, task).to(pick_device(device))
    episodes = open_episodes(data or base / "data.h5", get_task(task), in_memory=False)
    out = out or base / "latents"
    with bar(f"cache {task}", "frames") as update:
        made = build_cache(
            episodes,
            frozen.latents,
            frozen.spec.model.latent,
            frozen.encoder_digest,
            out,
            open_cache(known) if known else None,
            batch,
            progress=update,
        )
    console.print(
        f"{out}  {made.latents.shape[0]} latents of {made.latents.shape[1]}, {made.latents.nbytes / 1e6:.1f} MB"
    )
