"""Scale x recipe x family: what to collect, how large world and planner are, and how they are trained. All of it data,
made by functions; a task may adjust each of them.

Scale is size: `paper` (LeWM as released, wants a GPU), `compact` (two CPU cores, from nothing), `tiny` (tests).
Recipe is how it is trained: `paper` (the paper's method and nothing else), `best` (whatever
helps; the model card names it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ..baselines.learned import BaselineTrainConfig
from ..control.methods import DEFAULT
from ..core.config import changed, has_field
from ..core.registry import match_name
from ..data.collect import CollectConfig
from ..density.train import DensityTrainConfig
from ..diagnostics.decoder import DecoderTrainConfig
from ..planner.model import PlannerConfig
from ..planner.train import PlannerTrainConfig
from ..tasks import Task
from ..training.loop import parse_curriculum, stage_at
from ..worlds import FAMILIES, WorldFamily
from ..worlds.finetune import FinetuneConfig
from ..worlds.train import WorldTrainConfig

TRAININGS = ("world", "finetune", "density", "training", "baselines", "decoder")  # what a preset trains
TEST_EPISODES = 400
BLOCK = 5  # f: environment actions in a block, unless a world says otherwise


@dataclass(frozen=True)
class OnPolicyConfig:
    """Rounds in which the planner collects, and world and planner are trained on what it did."""

    rounds: int = 0
    episodes: int = 0  # a round
    finetune_steps: int = 0  # of the world, a round
    steps: int = 0  # of the planner, a round


@dataclass(frozen=True)
class Preset:
    scale: str
    recipe: str
    family: str
    block: int  # f
    collect: CollectConfig
    network: Any  # the family's sizes
    objective: Any  # the family's loss weights
    world: WorldTrainConfig
    finetune: FinetuneConfig
    density: DensityTrainConfig
    planner: PlannerConfig
    training: PlannerTrainConfig
    baselines: BaselineTrainConfig
    decoder: DecoderTrainConfig
    on_policy: OnPolicyConfig = field(default_factory=OnPolicyConfig)
    controller: str = DEFAULT  # the method that is ours: how its planner is used
    effort: float = 1.0  # training steps, as a share of those that the scale and recipe say

    def with_effort(self, effort: float) -> Preset:
        """The same, trained for another share of the steps."""
        if not 0 < effort < float("inf"):
            raise ValueError(f"Effort is a share of the preset's training steps, above 0; got {effort}.")
        if effort == 1:
            return self
        parts = {name: getattr(self, name) for name in TRAININGS}

        def share(steps: int) -> int:
            return max(1, round(effort * steps)) if steps else 0  # a stage that is not left out stays one

        shorter = {name: changed(part, steps=share(part.optim.steps)) for name, part in parts.items()}
        rounds = replace(
            self.on_policy, finetune_steps=share(self.on_policy.finetune_steps), steps=share(self.on_policy.steps)
        )
        return replace(self, **shorter, on_policy=rounds, effort=effort * self.effort)

    @property
    def test_collect(self) -> CollectConfig:
        """Episodes that only trials are drawn from."""
        return replace(self.collect, episodes=min(TEST_EPISODES, self.collect.episodes), split="test")

    @property
    def on_policy_training(self) -> PlannerTrainConfig:
        """Of a planner that goes on from the one that collected: goals at all distances, and recovery problems. At a
        lower peak rate, since the first one's undoes what was learned, and less bound to the reference trajectory."""
        if not self.on_policy.rounds:
            return self.training
        return changed(
            self.training,
            steps=self.on_policy.steps,
            learning_rate=0.4 * self.training.optim.learning_rate,
            curriculum=f"0:{self.planner.horizon}",
            tracking_weight=self.training.tracking_weight / 3,
            recovery_prob=0.15,
            init_average=0.5,
        )

    @property
    def on_policy_finetune(self) -> FinetuneConfig:
        """Of a world that goes on: half of what it sees is what plans really did."""
        if not self.on_policy.rounds:
            return self.finetune
        begins = max(2, stage_at(parse_curriculum(self.finetune.horizon), 0.0))  # some families train all at once
        return changed(
            self.finetune,
            steps=self.on_policy.finetune_steps,
            learning_rate=0.6 * self.finetune.optim.learning_rate,
            horizon=f"0:{begins},0.3:{self.planner.horizon}",
            on_policy_prob=0.5,
        )

    @property
    def on_policy_collect(self) -> CollectConfig:
        """Twice as long as the evaluation's goals are away: arriving, or missing, and what comes after."""
        episodes = self.on_policy.episodes or self.collect.episodes
        return replace(self.collect, episodes=episodes, steps=10 * self.block)


# of a training, what a scale may choose in every recipe: how much of it there is, and how it is computed and stored
OF_SCALE = ("steps", "batch", "precision", "half_weights", "validate_every", "checkpoint_minutes")


def _paper_recipe(preset: Preset) -> Preset:
    """The paper's objective, optimizer, curriculum, density and controller; the world without state labels, and not
    finetuned. All defaults are the paper's."""
    return replace(
        preset,
        world=changed(preset.world, grounding=0.0),
        finetune=changed(preset.finetune, steps=0),
        density=_as_default(DensityTrainConfig(), preset.density),
        planner=replace(preset.planner, dropout=PlannerConfig().dropout),
        training=replace(_as_default(PlannerTrainConfig(), preset.training), engine=preset.training.engine),
        on_policy=OnPolicyConfig(),
        controller="leplanner",
    )


def _as_default(default: Any, scaled: Any) -> Any:
    """A training with its defaults, at another's scale."""
    return changed(default, **{name: getattr(scaled.optim, name) for name in OF_SCALE})


def _best_recipe(preset: Preset) -> Preset:
    """Smooth plans, and a density that neither repeated equal actions nor a strange batch can spoil."""
    density = changed(preset.density, min_std=0.05, clip=100.0)
    return replace(preset, training=changed(preset.training, smooth_weight=3e-3), density=density)


def _paper_scale(task: Task, recipe: str, family: str) -> Preset:
    """LeWM as released (ViT-tiny at 224 px, 18 M parameters) and the paper's planner (6.8 M); wants a GPU and the
    released datasets."""
    return _assembled(
        task,
        Preset(
            scale="paper",
            recipe=recipe,
            family=family,
            block=BLOCK,
            collect=CollectConfig(episodes=10_000, steps=200, every=1, size=224, native_visuals=True),
            network=None,
            objective=FAMILIES.get(family).objective("paper"),
            world=WorldTrainConfig(),
            finetune=FinetuneConfig(),
            density=DensityTrainConfig(),
            planner=PlannerConfig(),
            training=PlannerTrainConfig(),
            baselines=changed(BaselineTrainConfig(), steps=100_000, batch=1024),
            decoder=changed(DecoderTrainConfig(), steps=50_000, batch=128),
        ),
    )


def _compact_scale(task: Task, recipe: str, family: str) -> Preset:
    """An hour or two for everything, on two CPU cores."""
    half = {"half_weights": True}
    return _assembled(
        task,
        Preset(
            scale="compact",
            recipe=recipe,
            family=family,
            block=BLOCK,
            collect=CollectConfig(episodes=3000, size=64),
            network=None,
            objective=FAMILIES.get(family).objective("compact"),
            world=changed(WorldTrainConfig(), steps=2400, batch=64, learning_rate=5e-4, **half),
            finetune=changed(FinetuneConfig(), steps=8000, batch=128, horizon="0:1,0.6:2,0.85:5", **half),
            density=changed(DensityTrainConfig(), **half),
            planner=PlannerConfig(width=128, depth=2, heads=4, dropout=0.0),
            # fp32: what is learned at the end are distances of a thousandth of the start's
            training=changed(PlannerTrainConfig(), steps=3000, batch=64, precision="fp32", **half),
            baselines=BaselineTrainConfig(),
            decoder=changed(DecoderTrainConfig(), **half),
        ),
    )


def _tiny_scale(task: Task, recipe: str, family: str) -> Preset:
    """Everything in a minute: for tests and for seeing the pipeline run, not for results. Compact, made small."""
    preset = _compact_scale(task, recipe, family)
    often, on_policy = {"validate_every": 50}, preset.on_policy
    few = {"steps": 100, "batch": 64, "components": 4, "width": 32, "half_weights": False}
    density = changed(preset.density, **few, **often)
    training = changed(PlannerTrainConfig(), steps=100, batch=32, learning_rate=1e-3, precision="fp32", **often)
    tiny = replace(
        preset,
        scale="tiny",
        collect=CollectConfig(episodes=48, steps=50, size=32),
        objective=FAMILIES.get(family).objective("tiny"),
        world=changed(preset.world, steps=200, batch=32, learning_rate=2e-3, **often),
        finetune=changed(preset.finetune, steps=min(100, preset.finetune.optim.steps), batch=32, **often),
        density=density,
        planner=replace(preset.planner, width=32, depth=1, heads=2),
        training=replace(training, engine="plain"),
        baselines=changed(BaselineTrainConfig(), steps=50, batch=64, validate_every=25),
        decoder=changed(DecoderTrainConfig(), steps=100, batch=16, **often),
        on_policy=OnPolicyConfig(
            rounds=2 * min(on_policy.rounds, 1),  # rounds go on from rounds: one would not show it
            episodes=min(on_policy.episodes, 16),
            finetune_steps=min(on_policy.finetune_steps, 100),
            steps=min(on_policy.steps, 100),
        ),
    )
    adjust = task.scales.get("tiny")
    tiny = adjust(tiny) if adjust else tiny
    return replace(tiny, network=_network(task, tiny, FAMILIES.get(family)))


def _assembled(task: Task, preset: Preset) -> Preset:
    """What the task changes in the scale, the recipe, what the task and the family change in that, and the family's
    network last: its frames are as large as those that are collected."""
    family = FAMILIES.get(preset.family)
    for adjust in (task.scales.get(preset.scale), RECIPES[preset.recipe], task.recipes.get(preset.recipe)):
        preset = adjust(preset) if adjust else preset
    preset = family.adjust(preset)
    return replace(preset, network=_network(task, preset, family))


def _network(task: Task, preset: Preset, family: WorldFamily) -> Any:
    """The family's network with the sizes that the task wants otherwise; families do not all have the same ones."""
    sizes = task.networks.get(preset.scale, {})

    def build(kind: WorldFamily) -> Any:
        return kind.network(preset.scale, preset.block * task.action_dim, preset.collect.size)

    network = build(family)
    missing = [name for name in sizes if not has_field(network, name)]
    for name in missing:
        if not any(has_field(build(kind), name) for kind in FAMILIES.values()):
            raise ValueError(
                f"The task {task.name!r} sets the size {name!r} of networks at {preset.scale} scale, and no registered "
                "family has a size of that name. Check its spelling in Task.networks."
            )
    return changed(network, **{name: size for name, size in sizes.items() if name not in missing})


RECIPES: dict[str, Callable[[Preset], Preset]] = {"paper": _paper_recipe, "best": _best_recipe}
SCALES: dict[str, Callable[[Task, str, str], Preset]] = {
    "paper": _paper_scale,
    "compact": _compact_scale,
    "tiny": _tiny_scale,
}
DEFAULT_RECIPES = {"paper": "paper"}  # of a scale; best elsewhere


def default_recipe(scale: str) -> str:
    return DEFAULT_RECIPES.get(scale.casefold(), "best")


def get_preset(
    task: Task, scale: str = "compact", recipe: str | None = None, family: str = "lewm", effort: float = 1.0
) -> Preset:
    scale = match_name("scale", scale, SCALES)
    recipe = match_name("recipe", recipe or default_recipe(scale), RECIPES)
    return SCALES[scale](task, recipe, FAMILIES.get(family).name).with_effort(effort)
