"""`leplanner train`: train a planner through a frozen world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.table import Table

from ..artifacts import read_json
from ..data.cache import open_cache
from ..density.mixture import load_density
from ..learning import Metrics, TrainProgress
from ..planner.planner import load_bundle
from ..planner.train import train_planner
from ..presets.scales import get_scale
from ..world.world import load_world
from .options import MaybePath, ScaleFloat, ScaleInt, ScaleStr, TaskName, world_folder
from .progress import bar, console


def train(
    task: TaskName,
    world: MaybePath = None,
    latents: MaybePath = None,
    density: MaybePath = None,
    out: MaybePath = None,
    start: MaybePath = None,
    scale: str = "compact",
    objective: ScaleStr = None,
    steps: ScaleInt = None,
    batch: ScaleInt = None,
    learning_rate: ScaleFloat = None,
    optimizer: ScaleStr = None,
    refinements: ScaleInt = None,
    hold_weight: ScaleFloat = None,
    path_weight: ScaleFloat = None,
    support_weight: ScaleFloat = None,
    way_weight: ScaleFloat = None,
    smooth_weight: ScaleFloat = None,
    deviate_share: ScaleFloat = None,
    retry_share: ScaleFloat = None,
    start_share: ScaleFloat = None,
    far_share: ScaleFloat = None,
    curriculum: ScaleStr = None,
    seed: ScaleInt = None,
    precision: ScaleStr = None,
    engine: ScaleStr = None,
    device: str = "auto",
) -> None:
    """Train a planner on a latent cache through the frozen world; killed and started again it continues where it was.

    Needs a world, its latent cache and a density (`leplanner world train`, `cache`, `density`). Makes a bundle: a folder
    that `lp.load` reads, with the weights whose held-out arrival distance was best.

    Example: leplanner train tworoom

    Args:
        task: tworoom, pusht, reacher or cube.
        world: world folder (default: runs/TASK/refined, else runs/TASK/world).
        latents: latent cache (default: runs/TASK/latents).
        density: behaviour density (default: runs/TASK/density).
        out: bundle folder to make (default: runs/TASK/planner).
        start: a bundle whose planner to begin with, e.g. after practice; its world must have the same encoder.
        scale: paper, compact or tiny; sets the defaults of the options below. With --start, tasks
            that practise (PushT) get goals at all distances at once, and second attempts.
        objective: arrival-hold, or fixed-terminal to see what it cures.
        steps: training steps.
        batch: problems in a batch.
        learning_rate: peak of the one-cycle schedule.
        optimizer: adamw, or muon for the matrices of linear layers: fewer steps, each a little longer.
        refinements: K, how often a plan is corrected.
        hold_weight: lambda_h, of staying at the goal.
        path_weight: alpha, of fixed-terminal's path loss.
        support_weight: lambda_sup, of leaving the data's support; 0 needs no density.
        way_weight: of being, before arrival, where the data was; no action is imitated.
        smooth_weight: of changes from one action to the next, which a world that sees only ends of blocks cannot judge.
        deviate_share: share of problems that begin one imagined block off the data's way.
        retry_share: share of problems that begin where a played episode went astray (`leplanner practice`), with its goal.
        start_share: with --start, share of its weights in the mean of start and end that the planner ends with: what was learned
            anew, without forgetting.
        far_share: share of the other problems whose goal is as far away as the curriculum and the episode allow.
        curriculum: farthest goals in blocks by share of the steps, e.g. 0:2,0.25:3,0.5:5.
        seed: of initialisation, batches and dropout.
        precision: auto (measured), fp32 or bf16.
        engine: auto, plain or compiled (faster; needs a C++ compiler, and minutes to compile the first time).
        device: auto, cpu, cuda, mps.
    """
    base, preset = Path("runs") / task, get_scale(scale, task)
    chosen = {"objective": objective, "steps": steps, "batch": batch, "learning_rate": learning_rate}
    chosen |= {"optimizer": optimizer}
    chosen |= {"hold_weight": hold_weight, "path_weight": path_weight, "support_weight": support_weight}
    chosen |= {
        "deviate_share": deviate_share,
        "retry_share": retry_share,
        "start_share": start_share,
        "far_share": far_share,
        "way_weight": way_weight,
        "smooth_weight": smooth_weight,
        "curriculum": curriculum,
        "seed": seed,
        "precision": precision,
        "engine": engine,
    }
    settings = preset.practised_train if start is not None else preset.planner_train
    config = replace(settings, **{name: value for name, value in chosen.items() if value is not None})
    if start_share and (start is None or not 0 <= start_share <= 1):
        raise ValueError(
            f"--start-share {start_share} of the weights would be the start's, from {start}: give --start, and a share of 0 to 1."
        )
    frozen, cache = load_world(world_folder(world, task)), open_cache(latents or base / "latents")
    supported = load_density(density or base / "density") if config.support_weight else None
    shape = preset.planner_for(frozen.spec.model)
    if refinements is not None:
        shape = replace(shape, refinements=refinements)
    begun = load_bundle(start) if start is not None else None
    if begun is not None and begun.world.encoder_digest != frozen.encoder_digest:
        raise ValueError(
            f"The planner at {start} reads another encoder's latents ({begun.world.encoder_digest[:12]}, this world's is "
            f"{frozen.encoder_digest[:12]}). Start from one of this encoder, or from nothing."
        )
    out = out or base / "planner"
    with bar(f"train planner {task}", "steps") as update:

        def show(progress: TrainProgress) -> None:
            metrics = progress.metrics
            note = f"loss {metrics['loss']:.4f}"
            if "held_out_arrival" in metrics:
                note += (
                    f"  held-out arrival {metrics['held_out_arrival'][-1] / metrics['held_out_start']:.2%} of the start"
                )
            update(progress.step, progress.steps, note)

        planner = train_planner(
            frozen, cache, supported, shape, config, out, device, show, start=begun.model if begun else None
        )
    console.print(_table(read_json(out / "config.json")["training"]["metrics"], task))
    console.print(f"{out}  bundle {planner.digest[:12]}")


def _table(metrics: Metrics, task: str) -> Table:
    """Mean held-out distance of the final plan after each block, by how far away the goal was."""
    start, profile = metrics["held_out_start"], metrics["held_out_profile"]
    by_k = ", ".join(f"{distance / start:.2%}" for distance in metrics["held_out_arrival"])
    title = f"{task}: held-out distance after each block, in % of the start's {start:.3f} (step {metrics['step']})"
    table = Table(title=f"{title}\narrival by k: {by_k}")
    table.add_column("goal at q")
    for block in range(len(profile)):
        table.add_column(f"block {block + 1}", justify="right")
    for q, (row, best) in enumerate(zip(profile, metrics["held_out_profile_minimum"], strict=True), start=1):
        if row is None:  # no held-out goal lies so far away
            continue
        cells = [f"{100 * distance / start:.2f}" for distance in row]
        cells[best - 1] = f"[bold]{cells[best - 1]}[/bold]"
        table.add_row(str(q), *cells)
    return table
