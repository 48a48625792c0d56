"""What a planner imagined, decoded for people to look at, beside what really happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..artifacts import write_arrays
from ..core.actions import Array
from ..core.dynamics import pairwise_distance
from ..evaluation.manifest import Trial
from ..evaluation.videos import load_video
from ..planner.planner import Planner
from ..tasks.spec import Simulator
from .closed_loop import open_loop_frames, opening
from .decoder import Decoder


@dataclass(frozen=True)
class Panel:
    """One whole plan, executed without looking. Re-encoded against actual is the decoder's error; imagined against
    re-encoded is the world's."""

    goal: Array  # (S, S, 3) uint8
    actual: Array  # (H, S, S, 3) after each block
    reencoded: Array  # (H, S, S, 3) the actual frames, encoded and decoded
    imagined: Array  # (H, S, S, 3) decoded
    drift: Array  # (H,) distance of imagined and real latents, in the world's own measure
    terminal: Array  # (K+1, S, S, 3) where the plan ends after each refinement, decoded
    terminal_distance: Array  # (K+1,) to the goal


@torch.no_grad()
def panel(planner: Planner, decoder: Decoder, sim: Simulator, trial: Trial) -> Panel:
    spec, draw = planner.world.spec, decoder.model.frames
    start = np.array(trial.start_state)
    sim.set_state(np.array(trial.goal_state))
    goal = sim.render(spec.frame_size)
    problem = opening(planner, sim, start, goal)
    plans = planner.plan(problem, record="trace").plans
    imagined = plans[-1].latents  # (1, H, *Z)
    actual = open_loop_frames(
        sim, start, spec.actions.raw_actions(plans[-1].blocks)[0], spec.actions.block, spec.frame_size
    )
    real = planner.encode(actual)
    return Panel(
        goal=goal,
        actual=actual,
        reencoded=draw(real),
        imagined=draw(imagined[0]),
        drift=pairwise_distance(planner.dynamics, imagined, real.unsqueeze(0))[0].cpu().numpy(),
        terminal=draw(torch.stack([plan.latents[0, -1] for plan in plans])),
        terminal_distance=np.array([plan.distances[0, -1].item() for plan in plans]),
    )


def save_panels(panels: list[Panel], path: Path) -> None:
    write_arrays(path, {name: np.stack([getattr(one, name) for one in panels]) for name in Panel.__dataclass_fields__})


def draw_videos(folder: Path, decoder: Decoder) -> int:
    """Decode the plan traces of an evaluation's videos, into FOLDER/imagined; how many videos have one."""
    drawn = 0
    for path in sorted((folder / "videos").glob("*.npz")):
        imagined = load_video(path).trace.imagined  # (n, H, *Z); empty for methods without plan traces
        if len(imagined):
            frames = decoder.model.frames(torch.from_numpy(imagined).flatten(0, 1))
            write_arrays(
                folder / "imagined" / path.name, {"frames": frames.reshape(*imagined.shape[:2], *frames.shape[1:])}
            )
            drawn += 1
    return drawn
