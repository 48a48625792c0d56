"""`leplanner decoder`: train the probe that draws latents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..data.episodes import open_episodes
from ..diagnostics.decoder import DecoderConfig, train_decoder
from ..learning import TrainProgress
from ..planner.planner import load_bundle
from ..presets.scales import get_scale
from ..tasks import get_task
from .options import MaybeBundle, MaybePath, ScaleFloat, ScaleInt, TaskName, bundle_folder
from .progress import bar, console


def decoder(
    task: TaskName,
    bundle: MaybeBundle = None,
    data: MaybePath = None,
    out: MaybePath = None,
    scale: str = "compact",
    frames: ScaleInt = None,
    steps: ScaleInt = None,
    batch: ScaleInt = None,
    learning_rate: ScaleFloat = None,
    seed: ScaleInt = None,
    device: str = "auto",
) -> None:
    """Train a decoder from latents to pixels, to look at what a planner imagines; killed and started again it continues.

    A probe, trained after the fact: nothing that acts depends on it. `leplanner diagnose --decoder` draws with it. Says how far
    it can be trusted: its error on held-out frames beside that of drawing the mean frame.

    Example: leplanner decoder tworoom

    Args:
        task: tworoom, pusht, reacher or cube.
        bundle: whose world to decode: a shipped task's name, a bundle folder or a Hugging Face id (default:
            runs/TASK/planner, else the shipped one).
        data: frames to learn from (default: runs/TASK/data.h5).
        out: folder to make (default: runs/TASK/decoder).
        scale: paper, compact or tiny; sets the defaults of the options below.
        frames: of training episodes, at most.
        steps: training steps.
        batch: frames in a batch.
        learning_rate: peak of the one-cycle schedule.
        seed: of initialisation and batches.
        device: auto, cpu, cuda, mps.
    """
    base = Path("runs") / task
    world = load_bundle(bundle_folder(bundle, task)).world
    if world.spec.task != task:
        raise ValueError(f"The bundle is one for {world.spec.task}, not for {task}.")
    chosen = {"frames": frames, "steps": steps, "batch": batch, "learning_rate": learning_rate, "seed": seed}
    config = replace(
        get_scale(scale, task).decoder_train, **{name: value for name, value in chosen.items() if value is not None}
    )
    shape = DecoderConfig(latent=world.spec.model.latent, frame_size=world.spec.frame_size)
    out = out or base / "decoder"
    episodes = open_episodes(data or base / "data.h5", get_task(task))
    with bar(f"train decoder {task}", "steps") as update:

        def show(progress: TrainProgress) -> None:
            ratio = progress.metrics.get("held_out_ratio")
            update(progress.step, progress.steps, f"{ratio:.1f} times nearer than the mean frame" if ratio else "")

        def encoding(done: int, total: int) -> None:
            update(0, config.steps, f"encoding frames, {done}/{total}")

        trained = train_decoder(world, episodes, shape, config, out, device, encoding, show)
    found = trained.fidelity
    console.print(
        f"{out}  on {found['frames']} held-out frames: MSE {found['mse']:.2e}, mean frame {found['mean_image_mse']:.2e} "
        f"({found['ratio']:.1f} times), PSNR {found['psnr']:.1f} dB, SSIM {found['ssim']:.4f}"
    )
