"""Trains a planner through a frozen world: no action is imitated, distances to goals are all it learns from."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..artifacts import digest_json, digest_tensors, is_whole, read_json
from ..core.dynamics import Dynamics, imagination
from ..core.problem import Plan, PlanProblem
from ..core.registry import match_name
from ..data.cache import LatentCache
from ..data.windows import PlanBatch, plan_windows
from ..density.mixture import Density
from ..training.loop import Metrics, OnProgress, TrainState, no_progress, parse_curriculum, stage_at, train_loop
from ..training.optim import OptimConfig
from ..training.precision import keep_freed_memory, round_to_half
from ..training.runtime import Runtime, seeded
from ..worlds.base import World
from .fast import FastPlanner, fast_dynamics
from .model import LePlanner, PlannerConfig
from .objectives import OBJECTIVES, TERMS, LossInputs, Sample, deep_supervision
from .planner import Planner, load_bundle, planner_for, save_bundle
from .validate import as_sample, report_on

STEP_ENGINES = ("auto", "plain", "compiled")
BUILT_IN_TERMS = ("support", "tracking", "smooth")  # loss terms whose weights are fields of their own
Forward = Callable[..., tuple[Plan, ...]]  # (problem, imagine): the model, or its fast equal


@dataclass(frozen=True)
class PlannerTrainConfig:
    """How the planner is trained. Without a preset: the paper's values for PushT, Reacher and Cube. What the paper
    leaves open is chosen here, and listed in docs/reference/paper.md."""

    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(steps=20_000, batch=128, learning_rate=3e-4, weight_decay=1e-4, warmup=0.05)
    )
    objective: str = "arrival-hold"
    """arrival-hold, or fixed-terminal, the objective that procrastinates"""
    hold_weight: float = 0.5
    """lambda_h, of staying at the goal"""
    path_weight: float = 0.0
    """alpha, of fixed-terminal's path loss"""
    support_weight: float = 0.01
    """lambda_sup, of leaving the data's support; 0 needs no density"""
    tracking_weight: float = 0.0
    """of following the reference trajectory before arrival; no action is imitated; not in the paper"""
    smooth_weight: float = 0.0
    """of changes from one action to the next, which a world that sees only ends of blocks
    cannot judge; not in the paper"""
    extra_terms: dict[str, float] = field(default_factory=dict[str, float])
    """weights of further registered loss terms, by name"""
    perturb_prob: float = 0.0
    """probability of a problem that begins one imagined block off the reference trajectory; not in the paper"""
    recovery_prob: float = 0.0
    """probability of a problem that begins where a planner's episode missed its goal; not in the paper"""
    far_goal_prob: float = 0.0
    """probability of a goal as far away as the curriculum and the episode allow; not in the paper"""
    init_average: float = 0.0
    """with --init, weight of the initial weights in the average that the planner ends with; not in the paper"""
    curriculum: str = "0:2,0.25:3,0.5:5"
    """farthest goals in blocks by share of the steps"""
    pad_prob: float = 0.25
    """probability of a context cut short as at an episode's start"""
    keep_best: bool = True
    """end with the weights whose held-out distance was least; else with the last"""
    engine: str = "auto"
    """of a training step: auto, plain, or compiled (faster; needs a C++ compiler, and minutes
    to compile the first time)"""

    def weight(self, term: str) -> float:
        if term in self.extra_terms:
            return self.extra_terms[term]
        return getattr(self, f"{term}_weight") if term in BUILT_IN_TERMS else 0.0


def pick_step_engine(requested: str, device: torch.device) -> str:
    """Compiling pays where a compiler is: a C++ one with Python's headers for the CPU; for
    CUDA, Triton comes with torch."""
    requested = match_name("engine", requested, STEP_ENGINES)
    if requested != "auto":
        return requested
    compiler = shutil.which(os.environ.get("CXX", "g++")) is not None
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    can_compile = device.type == "cuda" or (device.type == "cpu" and compiler and headers)
    return "compiled" if can_compile else "plain"


def planner_losses(inputs: LossInputs, config: PlannerTrainConfig) -> dict[str, Tensor]:
    """The objective of every plan, deeply supervised, and all terms that have a weight."""
    objective = OBJECTIVES.get(config.objective)
    by_k = [objective.loss(plan.distances, inputs.sample.offset, config).mean() for plan in inputs.plans]
    losses = {"objective": deep_supervision(by_k)}
    total = losses["objective"]
    for term in TERMS.values():
        weight = config.weight(term.name)
        value = term.loss(inputs) if weight else None
        if value is not None:
            losses[term.name] = value
            total = total + weight * value
    return {"loss": total, **losses}


def fit_planner(
    model: LePlanner,
    dynamics: Dynamics,
    density: Density | None,
    draw: Callable[[np.random.Generator, int, int], PlanBatch],  # (generator, count, farthest offset)
    held_out: PlanBatch,
    config: PlannerTrainConfig,
    out: Path,
    run: str,
    runtime: Runtime | None = None,
    fast: tuple[Forward, Dynamics] | None = None,  # equals of model and dynamics, used for the steps
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
) -> tuple[TrainState, Metrics]:
    """The loop over any world model; validation always uses the plain model and dynamics."""
    optim = config.optim
    OBJECTIVES.get(config.objective)  # complains now
    for name in config.extra_terms:
        TERMS.get(name)
    stages = parse_curriculum(config.curriculum, model.config.horizon)
    state = TrainState(model, optim, runtime or Runtime(), run)
    forward, imagined = fast or (model, dynamics)
    fixed = as_sample(held_out, state.device)
    block = model.actions.block

    def losses(batch: PlanBatch, generator: torch.Generator) -> dict[str, Tensor]:
        sample = as_sample(batch, state.device)
        if config.perturb_prob:
            taken = torch.as_tensor(batch.first_block).to(state.device)
            sample = perturb_starts(sample, taken, dynamics, block, config.perturb_prob, generator)
        plans = forward(sample.problem, imagination(imagined, sample.problem))
        return planner_losses(LossInputs(plans, sample, dynamics, density, block), config)

    transitions = optim.batch * (model.config.refinements + 1) * model.config.horizon
    metrics = train_loop(
        state,
        out,
        draw=lambda rng, step: draw(rng, optim.batch, stage_at(stages, step / optim.steps)),
        losses=losses,
        validate=lambda: held_out_metrics(model, dynamics, fixed, density, config.objective),
        counted={"samples": optim.batch, "transitions": transitions},
        best_by="held_out_chosen_by" if config.keep_best else None,
        on_progress=on_progress,
        stop_after=stop_after,
    )
    return state, metrics


def held_out_metrics(
    model: LePlanner, dynamics: Dynamics, sample: Sample, density: Density | None, objective: str
) -> Metrics:
    report = report_on(model, dynamics, sample, density)
    chosen = getattr(report, OBJECTIVES.get(objective).chosen_by)
    metrics = dataclasses.asdict(report) | {"profile_minimum": report.profile_minimum, "chosen_by": chosen[-1]}
    return {f"held_out_{name}": value for name, value in metrics.items()}


def train_planner(
    world: World,
    cache: LatentCache,
    density: Density | None,
    shape: PlannerConfig,
    config: PlannerTrainConfig,
    out: Path,
    runtime: Runtime | None = None,
    on_progress: OnProgress = no_progress,
    stop_after: int | None = None,
    init: Planner | None = None,
) -> Planner:
    """Train to `out`, or continue the run that `out` holds; ends as a bundle with the best held-out weights. `init`: a
    planner whose weights to begin with, of a world with the same encoder."""
    keep_freed_memory()
    runtime = runtime or Runtime()
    check_density(density, world, config)
    if not 0.0 <= config.init_average <= 1.0:
        raise ValueError(f"--init-average is a weight from 0 to 1; got {config.init_average}.")
    train, held_out = plan_windows(world, cache, config.pad_prob, config.recovery_prob, config.far_goal_prob)
    device = runtime.torch_device
    with seeded(config.optim.seed):
        model = planner_for(world, shape)
    inputs = {"world": world.digest, "data": cache.data_digest} | ({"density": density.digest} if density else {})
    if init is not None:
        _check_init(init, world, model)
        inputs["init"] = digest_tensors(init.model.state_dict())
        model.load_state_dict(init.model.state_dict())
    elif config.init_average:
        raise ValueError(
            f"--init-average {config.init_average} needs --init: there are no initial weights to average with."
        )
    # averaging changes how a run ends, not its course
    course = dataclasses.asdict(config) | {"init_average": 0.0}
    if config.keep_best:
        del course["keep_best"]  # so that runs from before there was a choice can be continued
    run = digest_json([dataclasses.asdict(shape), course, inputs])
    world.to(device)
    if density is not None:
        density.to(device)
    engine = pick_step_engine(config.engine, device)
    fast = (FastPlanner(model), fast_dynamics(world)) if engine == "compiled" else None
    fixed = held_out.draw(np.random.default_rng(0), 512, shape.horizon)

    def draw(rng: np.random.Generator, count: int, farthest: int) -> PlanBatch:
        return train.draw(rng, count, farthest, shape.horizon)

    state, metrics = fit_planner(
        model, world, density, draw, fixed, config, out, run, runtime, fast, on_progress, stop_after
    )
    if is_whole(out):
        ended = read_json(out / "config.json")["training"]["config"]["init_average"]
        if ended != config.init_average:
            raise ValueError(
                f"{out} holds this run's planner, ended with init_average {ended}; "
                f"{config.init_average} was requested. To end it anew from its last checkpoint delete "
                f"{out / 'config.json'}, or choose another --out."
            )
        return load_bundle(out)
    planner = Planner(world, model, density)
    if state.finished:
        averaged = init is not None and config.init_average > 0
        if averaged:
            assert init is not None
            begun = init.model.to(device).state_dict()
            model.load_state_dict(
                {name: torch.lerp(end, begun[name], config.init_average) for name, end in model.state_dict().items()}
            )
        if config.optim.half_weights:
            round_to_half(model)
        if averaged:
            metrics |= held_out_metrics(model, world, as_sample(fixed, device), density, config.objective)
        history = {"config": dataclasses.asdict(config), "precision": state.precision, "engine": engine}
        history |= {"metrics": metrics, "best_held_out": state.best_score if config.keep_best else None}
        save_bundle(planner, out, history, **inputs)
    return planner


@torch.no_grad()
def perturb_starts(
    sample: Sample, taken: Tensor, dynamics: Dynamics, steps: int, prob: float, generator: torch.Generator
) -> Sample:
    """Some of the problems begin elsewhere: the data's next block, pushed aside by a random constant, is imagined
    first. A controller in closed loop is never quite where the data was, and must find back."""
    batch = len(taken)
    size = taken.shape[1] // steps
    aside = torch.randn(batch, size, generator=generator) * torch.rand(batch, 1, generator=generator)
    chosen = torch.rand(batch, generator=generator) < prob
    block = taken + aside.to(taken).repeat(1, steps)
    problem = sample.problem
    latent = dynamics.rollout(problem.context, problem.past_blocks, block.unsqueeze(1))
    context = torch.cat([problem.context[:, 1:], latent], dim=1)
    past = torch.cat([problem.past_blocks, block.unsqueeze(1)], dim=1)[:, 1:]
    mask = chosen.to(taken.device)

    def where(moved: Tensor, stayed: Tensor) -> Tensor:
        return torch.where(mask.view(-1, *[1] * (moved.ndim - 1)), moved, stayed)

    moved = PlanProblem(where(context, problem.context), where(past, problem.past_blocks), problem.goal)
    return replace(sample, problem=moved, reference_known=sample.reference_known & ~mask)


def check_density(density: Density | None, world: World, config: PlannerTrainConfig) -> None:
    if density is None:
        if config.support_weight:
            raise ValueError(
                f"The support penalty (weight {config.support_weight}) needs a density. Fit one (leplanner density "
                "TASK), or set --support-weight 0."
            )
        return
    spec, model = world.spec, density.model
    expected = {"latent": spec.latent, "context": spec.context, "block_dim": spec.actions.block_dim}
    for name, ours in expected.items():
        theirs = getattr(model, name)
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


def _check_init(init: Planner, world: World, model: LePlanner) -> None:
    if init.world.encoder_digest != world.encoder_digest:
        raise ValueError(
            f"The planner to start from reads another encoder's latents ({init.world.encoder_digest[:12]}, this "
            f"world's is {world.encoder_digest[:12]}). Start from one of this encoder, or from nothing."
        )
    if (init.model.config, init.model.actions) != (model.config, model.actions):
        raise ValueError(
            f"A planner of {init.model.config} cannot start one of {model.config} with actions in {model.actions}."
        )
