"""Trains a planner through a frozen world: no action is imitated, distances to goals are all it learns from."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..artifacts import digest_json, digest_tensors, read_json
from ..data.cache import LatentCache
from ..data.windows import PlanBatch
from ..density.mixture import Density
from ..learning import Learner, Metrics, TrainProgress, learn, parse_curriculum, stage_at
from ..precision import keep_freed_memory, pick_device, round_to_half
from ..world.fast_rollout import FastRollout
from ..world.world import World
from .actions import ActionBox
from .fast import FastPlanner
from .model import LePlanner, PlannerConfig
from .objectives import arrival_and_hold, deep_supervision, fixed_terminal, off_the_way, roughness, support_penalty
from .planner import TaskPlanner, load_bundle, save_bundle
from .problem import LatentDynamics, Plan, PlanProblem, imagination
from .validate import Sample, as_sample, block_scores, report_on

OBJECTIVES = ("arrival-hold", "fixed-terminal")
ENGINES = ("auto", "plain", "compiled")
Forward = Callable[..., tuple[Plan, ...]]  # (problem, imagine): the model, or its fast equal


@dataclass(frozen=True)
class PlannerTrainConfig:
    """Defaults are the paper's for PushT, Reacher and Cube."""

    objective: str = "arrival-hold"  # or fixed-terminal, the objective that procrastinates
    hold_weight: float = 0.5  # lambda_h
    path_weight: float = 0.0  # alpha, of fixed-terminal's path loss
    support_weight: float = 0.01  # lambda_sup
    way_weight: float = 0.0  # of being, before arrival, where the data was; not in the paper
    smooth_weight: float = 0.0  # of changes from one action to the next; not in the paper
    deviate_share: float = 0.0  # problems that begin one imagined block off the data's way; not in the paper
    retry_share: float = 0.0  # problems that begin where a played episode went astray; not in the paper
    far_share: float = 0.0  # problems whose goal is as far as the curriculum allows; not in the paper
    start_share: float = 0.0  # of the weights that a planner ends with: those that it began with; not in the paper
    curriculum: str = "0:2,0.25:3,0.5:5"  # from this share of the steps on, goals at most so many blocks away
    pad_share: float = 0.25  # contexts cut short as at an episode's start
    steps: int = 20_000
    batch: int = 128
    learning_rate: float = 3e-4
    weight_decay: float = 1e-4
    warmup_share: float | None = 0.05
    clip: float = 1.0
    optimizer: str = "adamw"  # or muon, for the matrices
    half_weights: bool = False  # end with weights that fp16 holds exactly
    seed: int = 0
    precision: str = "auto"
    engine: str = "auto"
    validate_every: int = 250
    checkpoint_minutes: float = 3.0


def pick_step_engine(wanted: str, device: torch.device) -> str:
    """Compiling pays where a compiler is: a C++ one with Python's headers for the CPU; for CUDA, Triton comes with torch."""
    if wanted not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}; got {wanted!r}.")
    if wanted != "auto":
        return wanted
    compiler = shutil.which(os.environ.get("CXX", "g++")) is not None
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    can_compile = device.type == "cuda" or (device.type == "cpu" and compiler and headers)
    return "compiled" if can_compile else "plain"


def planner_losses(
    plans: tuple[Plan, ...], sample: Sample, density: Density | None, config: PlannerTrainConfig, block: int
) -> dict[str, Tensor]:
    """The paper's whole objective: every plan supervised, corrected ones kept within the data's support. `block`: actions in
    a block, for the smoothness that compact planners are asked for besides."""
    if config.objective == "arrival-hold":
        by_k = [arrival_and_hold(plan.distances, sample.offset, config.hold_weight).mean() for plan in plans]
    else:
        by_k = [fixed_terminal(plan.distances, config.path_weight).mean() for plan in plans]
    losses = {"objective": deep_supervision(by_k)}
    total = losses["objective"]
    if density is not None and config.support_weight and len(plans) > 1:
        losses["support"] = support_penalty(block_scores(plans, sample.problem, density), density.threshold)
        total = total + config.support_weight * losses["support"]
    if config.way_weight:
        ways = [off_the_way(plan.latents, sample.way, sample.offset, sample.way_known).mean() for plan in plans]
        losses["way"] = deep_supervision(ways)
        total = total + config.way_weight * losses["way"]
    if config.smooth_weight:
        losses["roughness"] = deep_supervision([roughness(plan.blocks, block) for plan in plans])
        total = total + config.smooth_weight * losses["roughness"]
    return {"loss": total, **losses}


def fit_planner(
    model: LePlanner,
    dynamics: LatentDynamics,
    density: Density | None,
    draw: Callable[[np.random.Generator, int, int], PlanBatch],  # (generator, count, farthest offset)
    held_out: PlanBatch,
    config: PlannerTrainConfig,
    out: Path,
    run: str,
    device: torch.device,
    fast: tuple[Forward, LatentDynamics] | None = None,  # equals of model and dynamics, used for the steps
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
) -> tuple[Learner, Metrics]:
    """The loop over any world model; validation always uses the plain model and dynamics."""
    if config.objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}; got {config.objective!r}.")
    stages = parse_curriculum(config.curriculum, model.config.horizon)
    learner = Learner(model, config, device, run, config.optimizer)
    forward, imagined = fast or (model, dynamics)
    fixed = as_sample(held_out, device)

    def losses(batch: PlanBatch, generator: torch.Generator) -> dict[str, Tensor]:
        sample = as_sample(batch, device)
        if config.deviate_share:
            taken = torch.from_numpy(batch.first_block).to(device)
            sample = deviate(sample, taken, dynamics, model.box.block, config.deviate_share, generator)
        plans = forward(sample.problem, imagination(imagined, sample.problem))
        return planner_losses(plans, sample, density, config, model.box.block)

    rows = config.batch * (model.config.refinements + 1) * model.config.horizon
    metrics = learn(
        learner,
        out,
        draw=lambda rng, step: draw(rng, config.batch, stage_at(stages, step / config.steps)),
        losses=losses,
        validate=lambda: held_out_metrics(model, dynamics, fixed, density, config.objective),
        counted={"samples": config.batch, "rows": rows},
        best_by="held_out_chosen_by",
        on_progress=on_progress,
        stop_after=stop_after,
    )
    return learner, metrics


def held_out_metrics(
    model: LePlanner, dynamics: LatentDynamics, sample: Sample, density: Density | None, objective: str
) -> Metrics:
    report = report_on(model, dynamics, sample, density)
    chosen = report.arrival if objective == "arrival-hold" else report.terminal
    metrics = dataclasses.asdict(report) | {"profile_minimum": report.profile_minimum, "chosen_by": chosen[-1]}
    return {f"held_out_{name}": value for name, value in metrics.items()}


def train_planner(
    world: World,
    cache: LatentCache,
    density: Density | None,
    shape: PlannerConfig,
    config: PlannerTrainConfig,
    out: Path,
    device: str = "auto",
    on_progress: Callable[[TrainProgress], None] = lambda progress: None,
    stop_after: int | None = None,
    start: LePlanner | None = None,
) -> TaskPlanner:
    """Train to `out`, or continue the run that `out` holds; ends as a bundle with the best held-out weights. `start`: weights
    to begin with, of a planner through a world with the same encoder."""
    keep_freed_memory()
    check_density(density, world, config)
    train, held_out = world.plan_windows(cache, config.pad_share, config.retry_share, config.far_share)
    chosen_device = pick_device(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = LePlanner(shape, ActionBox.of(world.spec))
    inputs = {"world": world.digest, "data": cache.data_digest} | ({"density": density.digest} if density else {})
    if start is not None:
        if (start.config, start.box) != (shape, model.box):
            raise ValueError(f"A planner of {start.config} cannot start one of {shape} with actions in {model.box}.")
        inputs["start"] = digest_tensors(start.state_dict())
        model.load_state_dict(start.state_dict())
    # a share of the start changes how a run ends, not its course
    course = dataclasses.asdict(config) | {"start_share": 0.0}
    run = digest_json([dataclasses.asdict(shape), course, inputs])
    world.to(chosen_device)
    if density is not None:
        density.to(chosen_device)
    engine = pick_step_engine(config.engine, chosen_device)
    fast = (FastPlanner(model), FastRollout(world.model, compiled=True)) if engine == "compiled" else None
    fixed = held_out.draw(np.random.default_rng(0), 512, shape.horizon)
    learner, metrics = fit_planner(
        model,
        world,
        density,
        lambda rng, count, farthest: train.draw(rng, count, farthest, shape.horizon),
        fixed,
        config,
        out,
        run,
        chosen_device,
        fast,
        on_progress,
        stop_after,
    )
    if (out / "config.json").exists():
        ended = read_json(out / "config.json")["training"]["config"]["start_share"]
        if ended != config.start_share:
            raise ValueError(
                f"{out} holds this run's planner, ended with a share of {ended} of its start; {config.start_share} was asked for. To end it "
                f"anew from its last checkpoint delete {out / 'config.json'}, or choose another --out."
            )
        return load_bundle(out)
    planner = TaskPlanner(world, model, density)
    if learner.done == config.steps:
        mixed = start if config.start_share else None
        if mixed is not None:
            begun = mixed.to(chosen_device).state_dict()
            model.load_state_dict(
                {name: torch.lerp(end, begun[name], config.start_share) for name, end in model.state_dict().items()}
            )
        if config.half_weights:
            round_to_half(model)
        if mixed is not None:
            metrics |= held_out_metrics(model, world, as_sample(fixed, chosen_device), density, config.objective)
        history = {"config": dataclasses.asdict(config), "precision": learner.precision, "engine": engine}
        history |= {"metrics": metrics, "best_held_out": learner.best_score}
        save_bundle(planner, out, history, **inputs)
    return planner


@torch.no_grad()
def deviate(
    sample: Sample, taken: Tensor, dynamics: LatentDynamics, steps: int, share: float, generator: torch.Generator
) -> Sample:
    """A share of the problems begins elsewhere: the data's next block, pushed aside by a random constant, is imagined
    first. A controller in closed loop is never quite where the data was, and must find back."""
    batch = len(taken)
    size = taken.shape[1] // steps
    aside = torch.randn(batch, size, generator=generator) * torch.rand(batch, 1, generator=generator)
    chosen = torch.rand(batch, generator=generator) < share
    block = taken + aside.to(taken).repeat(1, steps)
    problem = sample.problem
    latent = dynamics.rollout(problem.context, problem.past_blocks, block.unsqueeze(1))
    context = torch.cat([problem.context[:, 1:], latent], dim=1)
    past = torch.cat([problem.past_blocks[:, 1:], block.unsqueeze(1)], dim=1)
    mask = chosen.to(taken.device).view(-1, 1, 1)
    moved = PlanProblem(
        torch.where(mask, context, problem.context), torch.where(mask, past, problem.past_blocks), problem.goal
    )
    return replace(sample, problem=moved, way_known=sample.way_known & ~chosen.to(taken.device))


def check_density(density: Density | None, world: World, config: PlannerTrainConfig) -> None:
    if density is None:
        if config.support_weight:
            raise ValueError(
                f"The support penalty (weight {config.support_weight}) needs a density. Fit one (leplanner density TASK), or set "
                "--support-weight 0."
            )
        return
    model = world.spec.model
    for name in ("latent", "block_dim", "context"):
        theirs, ours = getattr(density.model.config, name), getattr(model, name)
        if theirs != ours:
            raise ValueError(
                f"The density was fitted for {name} {theirs}, the planner's world has {ours}. Fit it on this world's "
                "latents: leplanner density TASK --out DIR"
            )
    if density.world_digest != world.digest:
        raise ValueError(
            f"The density was fitted on the latents of another world ({density.world_digest[:12]}, this one is "
            f"{world.digest[:12]}). Fit it again: leplanner density TASK --out DIR"
        )
