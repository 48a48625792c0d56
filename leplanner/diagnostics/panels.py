"""What a planner imagined, decoded for people to look at, beside what really happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..artifacts import write_arrays
from ..control.policy import raw_actions
from ..evaluation.films import load_film
from ..evaluation.manifest import Trial
from ..planner.planner import TaskPlanner
from .closed_loop import executed_blindly, opening
from .decoder import Decoder

Array = np.ndarray


@dataclass(frozen=True)
class Panel:
    """One whole plan, executed without looking. Re-encoded against actual is the decoder's error; imagined against re-encoded is
    the world's."""

    goal: Array  # (S, S, 3) uint8
    actual: Array  # (H, S, S, 3) after each block
    reencoded: Array  # (H, S, S, 3) the actual frames, encoded and decoded
    imagined: Array  # (H, S, S, 3) decoded
    drift: Array  # (H,) mean squared difference of imagined and real latents
    terminal: Array  # (K+1, S, S, 3) where the plan ends after each correction, decoded
    terminal_distance: Array  # (K+1,) to the goal


@torch.no_grad()
def panel(planner: TaskPlanner, decoder: Decoder, sim: Any, trial: Trial) -> Panel:
    spec, size, draw = planner.world.spec, planner.world.spec.frame_size, decoder.model.frames
    start = np.array(trial.start_state)
    sim.set_state(np.array(trial.goal_state))
    goal = sim.render(size)
    problem = opening(planner, sim, start, goal)
    plans = planner.plan(problem, record="trace").plans
    actions = raw_actions(plans[-1].blocks, planner.model.box)[0]
    actual = executed_blindly(sim, start, actions, spec.block, size)
    real, imagined = planner.world.encode(actual), plans[-1].latents[0]
    return Panel(
        goal=goal,
        actual=actual,
        reencoded=draw(real),
        imagined=draw(imagined),
        drift=(imagined - real).square().mean(dim=-1).cpu().numpy(),
        terminal=draw(torch.stack([plan.latents[0, -1] for plan in plans])),
        terminal_distance=np.array([plan.distances[0, -1].item() for plan in plans]),
    )


def save_panels(panels: list[Panel], path: Path) -> None:
    write_arrays(path, {name: np.stack([getattr(one, name) for one in panels]) for name in Panel.__dataclass_fields__})


def draw_films(folder: Path, decoder: Decoder) -> int:
    """Decode what was imagined in an evaluation's films, into FOLDER/imagined; how many there were."""
    drawn = 0
    for path in sorted((folder / "films").glob("leplanner-*.npz")):
        imagined = load_film(path).thoughts.imagined
        if len(imagined):
            frames = decoder.model.frames(torch.from_numpy(imagined).flatten(0, 1))
            write_arrays(
                folder / "imagined" / path.name, {"frames": frames.reshape(*imagined.shape[:2], *frames.shape[1:])}
            )
            drawn += 1
    return drawn
