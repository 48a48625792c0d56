"""What the experiment is made of: environment, data, networks, and the goals that planners are trained on."""

from __future__ import annotations

import numpy as np

from ...artifacts import write_arrays
from ...data.cache import open_cache
from ...data.formats import open_episodes
from ...data.windows import plan_windows
from ...density.mixture import load_density
from ...planner.planner import load_bundle
from ...worlds import load_world
from .part import Facts, Part, beside, drawing, percent, sheet
from .setting import Reproduction

SHOWN = 4  # trials of the environment's figure, the first ones
SAMPLES = 4000  # goals, as many as the paper counts


def _inputs(reproduction: Reproduction) -> Facts:
    task, world = reproduction.task, load_world(reproduction.world)
    episodes = open_episodes(reproduction.data, task, in_memory=False)
    density = load_density(reproduction.paths.density)
    planner = load_bundle(reproduction.planner())
    parameters = sum(p.numel() for p in planner.model.parameters())
    measured = {
        "episodes": f"{len(episodes.starts):,}",
        "frames": f"{episodes.rows:,}",
        "numbers in an action": str(task.action_dim),
        "numbers in a block": str(world.spec.actions.block * task.action_dim),
        "c95": f"{density.threshold:.4f}",
        "planner parameters": f"{parameters / 1e6:.2f} M",
        "mixture components": str(density.model.config.components),
    }
    measured |= {f"q = {q}": percent(share) for q, share in enumerate(_goals(reproduction), start=1)}
    config, spec = planner.model.config, world.spec
    training = reproduction.preset.training
    stack = sheet(
        "The stack",
        ("part", "what"),
        ("here",),
        [
            ("world", "family", spec.family),
            ("world", "parameters", f"{sum(p.numel() for p in world.model.parameters()) / 1e6:.2f} M"),
            ("world", "frame", f"{spec.frame_size} px"),
            ("world", "latent", " x ".join(map(str, world.latent.shape))),
            ("world", "frames of context", str(spec.context)),
            ("planner", "width, depth, heads", f"{config.width}, {config.depth}, {config.heads}"),
            ("planner", "blocks, refinements", f"{config.horizon}, {config.refinements}"),
            ("planner", "imagined steps a plan", str(config.horizon * (config.refinements + 1))),
            ("training", "steps, batch", f"{training.optim.steps:,}, {training.optim.batch}"),
            ("training", "goals", training.curriculum),
        ],
    )
    _keep_frames(reproduction)
    return {
        "beside": beside("inputs", task.name, measured),
        "sheets": [stack],
        "drawings": [drawing("environments", "Starts above, goals below", {"file": "environments.npz"})],
    }


def _goals(reproduction: Reproduction) -> list[float]:
    """How often a training goal is q blocks ahead, once all offsets are allowed."""
    windows, _ = plan_windows(load_world(reproduction.world), open_cache(reproduction.paths.latents))
    horizon = reproduction.preset.planner.horizon
    offset = windows.draw(np.random.default_rng(0), SAMPLES, horizon).offset
    return [float((offset == q).mean()) for q in range(1, horizon + 1)]


def _keep_frames(reproduction: Reproduction) -> None:
    spec = load_world(reproduction.world).spec
    sim = reproduction.task.simulate(spec.visuals)
    frames: dict[str, list[np.ndarray]] = {"start": [], "goal": []}
    try:
        for trial in reproduction.ablation.manifest.trials[:SHOWN]:
            for name, state in (("start", trial.start_state), ("goal", trial.goal_state)):
                sim.set_state(np.array(state))
                frames[name].append(sim.render(spec.frame_size))
    finally:
        sim.close()
    write_arrays(reproduction.out / "environments.npz", {name: np.stack(each) for name, each in frames.items()})


INPUTS = Part(
    "inputs",
    "Environment, data, networks",
    "What the experiment is made of. q is how many blocks ahead a training goal is, over 4,000 draws after the "
    "curriculum's end.",
    _inputs,
)
