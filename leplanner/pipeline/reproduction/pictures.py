"""What a planner imagines, decoded; and episodes as they were executed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...diagnostics.panels import panel, save_panels
from ...evaluation.videos import load_video, video_path
from ...planner.planner import load_bundle
from ...worlds import load_world
from ..stages import make_decoder
from .part import Facts, Part, beside, drawing
from .setting import RECORDED, Reproduction

PANELS = 2  # the first trials, whatever happens in them


def _pictures(reproduction: Reproduction) -> Facts:
    task, world = reproduction.task, load_world(reproduction.world)
    config, folder = reproduction.preset.decoder, reproduction.paths.decoder
    _, decoder = make_decoder(task, world, reproduction.data, config, folder, reproduction.runtime, reproduction.show)
    planner, trials = load_bundle(reproduction.planner()), reproduction.ablation.manifest.trials[:PANELS]
    sim = task.simulate(world.spec.visuals)
    try:
        panels = [panel(planner, decoder, sim, trial) for trial in trials]
    finally:
        sim.close()
    save_panels(panels, reproduction.out / "panels.npz")
    fidelity = decoder.fidelity
    measured = {
        "mean frame's MSE over the decoder's": f"{fidelity['ratio']:.1f}",
        "PSNR": f"{fidelity['psnr']:.1f} dB",
        "SSIM": f"{fidelity['ssim']:.4f}",
    }
    drawings = [drawing("imagined", "A plan, block by block, and where it ends", {"file": "panels.npz"})]
    recorded = _recorded(reproduction)
    notes = [
        "Trials shown: the first of the manifest. Its protocol leaves out pairs that are solved at the start, so each "
        "start is farther from the goal than the tolerance; no outcome was consulted."
    ]
    if recorded:
        drawings.append(drawing("strips", "Executed episodes at ten replans, the target outlined", {"files": recorded}))
        drawings.append(drawing("trajectory", "The first trial over the floor plan", {"files": recorded}))
    return {"beside": beside("pictures", task.name, measured), "notes": notes, "drawings": drawings}


def _recorded(reproduction: Reproduction) -> list[dict[str, Any]]:
    """Videos of our planner at m = 1, of the first trials."""
    evaluated = reproduction.scoreboard
    videos = []
    for row in evaluated.rows:
        if (row.method, row.replan) == ("leplanner", 1) and row.trial < RECORDED:
            path = video_path(
                reproduction.out / "scoreboard",
                row.method,
                1,
                row.trial,
                row.manifest,
                row.seed,
                row.settings,
                row.weights,
            )
            if path.exists():
                reached = bool(np.any(load_video(path).reached[1:]))
                videos.append({"file": str(path.relative_to(reproduction.out)), "trial": row.trial, "reached": reached})
    return videos


PICTURES = Part(
    "pictures",
    "What plans imagine, and what was executed",
    "A decoder draws latents for people to look at; nothing that acts depends on it.",
    _pictures,
)
