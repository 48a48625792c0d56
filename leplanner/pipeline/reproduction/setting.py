"""What all parts of a reproduction share: one task, one world, one set of planners and trials, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ... import baselines  # noqa: F401  (registers the learned baselines)
from ...artifacts import digest_json, read_artifact, to_dict
from ...baselines.learned import LEARNED
from ...control.methods import SearchBudget
from ...data.formats import open_episodes
from ...evaluation.manifest import default_budget
from ...evaluation.runner import EvaluationConfig
from ...execution.executor import Executor
from ...tasks import Task
from ...training.runtime import Runtime
from ...worlds import load_world
from ..ablations import REFERENCE, VARIANTS, Ablation, Run, run_ablation
from ..evaluating import Draw, Evaluated, evaluate_folder, find_manifest
from ..learning import collect, collect_test, prepare, train_world
from ..paths import RunPaths
from ..presets import Preset, get_preset
from ..stage import Show, Stage, silent
from ..stages import import_world, make_baselines

OFFSET = 25  # environment actions to the goal, in all of the paper's trials
FIXED = "fixed-terminal path"  # the objective that the paper started from
SEARCHES = ("cem", "icem", "mppi", "gradient")
SCOREBOARD = ("leplanner", *SEARCHES, *LEARNED, "random", "no-op", "replay")
RECORDED = 4  # trials whose videos are kept


@dataclass(frozen=True)
class ReproduceOptions:
    """What a reproduction is told besides its task and scale."""

    world: str | None = None  # a released checkpoint to use instead of training a world; needs `data`
    data: Path | None = None  # a dataset to use instead of collecting one; trials are then from its held-out episodes
    trials: int = 200
    search_trials: int = 50
    search: SearchBudget = field(default_factory=SearchBudget)
    seeds: tuple[int, ...] = (0, 1, 2)  # of the two objectives' planners; other variants are trained with the first
    draws: tuple[int, ...] = tuple(range(43, 54))
    draw_trials: int = 50
    timed_trials: int = 2


@dataclass(frozen=True)
class Reproduction:
    task: Task
    preset: Preset  # the paper's recipe for planners; the world's may be another
    paths: RunPaths  # of what is made here
    data: Path
    test_data: Path
    options: ReproduceOptions
    runtime: Runtime = field(default_factory=Runtime)
    executor: Executor | None = None
    show: Show = silent

    @property
    def out(self) -> Path:
        return self.paths.base

    @property
    def replans(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((1, self.preset.planner.horizon)))

    @property
    def finetunes(self) -> bool:
        return self.options.world is None and self.preset.finetune.optim.steps > 0

    @property
    def world(self) -> Path:
        return self.paths.finetuned if self.finetunes else self.paths.world

    def stages(self) -> list[Stage]:
        """Data, world, latents, density."""
        task, preset, paths, runtime, show = self.task, self.preset, self.paths, self.runtime, self.show
        plan: list[Stage] = []
        if self.options.data is None:
            plan.append(collect(task, preset, self.data, self.executor, show))
            plan.append(collect_test(task, preset, self.test_data, self.executor, show))
        if self.options.world is not None:
            run = partial(import_world, self.options.world, task, preset.family, paths.world, self.data)
            plan.append(Stage("import world", (self.data,), paths.world, run))
        else:
            plan.append(train_world(task, preset, self.data, paths.world, runtime, show))
        return plan + prepare(task, preset, paths.world, self.data, paths, self.finetunes, runtime, show)

    @property
    def identity(self) -> str:
        """Of all that decides what parts find: what they were made from, and what was asked."""
        asked = {name: str(value) for name, value in vars(self.options).items() if name not in ("world", "data")}
        training = to_dict(self.preset.training) | to_dict(self.preset.planner)
        return digest_json([self.ablation.inputs, training, asked])

    @property
    def draw(self) -> Draw:
        return Draw(self.options.trials, offset=OFFSET, budget=default_budget(OFFSET))

    @cached_property
    def ablation(self) -> Ablation:
        """Planners of all objectives, on one manifest: that of all tables but the draws'."""
        find_manifest(self.paths.ablation, self.task, self.test_data, None, self.draw)
        made = (self.world, self.paths.latents, self.paths.density)
        return Ablation(self.task.name, self.preset, *made, self.options.trials, self.paths.ablation)

    def variants(self, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
        """Results of planners trained with these objectives, a list over seeds; what is missing is trained and run."""
        runs = {name: [Run(VARIANTS[name], seed) for seed in seeds] for name in names}
        every = [run for group in runs.values() for run in group]
        if any(self.ablation.result(run) is None for run in every):
            run_ablation(self.ablation, every, self.runtime, self.executor, self.show)
        return {name: [self.ablation.result(run) or {} for run in group] for name, group in runs.items()}

    def planner(self, variant: str = REFERENCE) -> Path:
        """Of the first seed."""
        self.variants([variant], self.options.seeds[:1])
        return self.ablation.folder(Run(VARIANTS[variant], self.options.seeds[0])) / "planner"

    @cached_property
    def scoreboard(self) -> Evaluated:
        """The paper's planner beside every rival, on the trials of all tables."""
        config = EvaluationConfig(
            SCOREBOARD,
            self.replans,
            search=self.options.search,
            trials=self.options.trials,
            search_trials=self.options.search_trials,
            videos=min(RECORDED, self.options.trials),
        )
        self.train_rivals()
        return self.evaluate(self.planner(), self.draw, config, "scoreboard", shared=True)

    def train_rivals(self) -> None:
        world, folder = load_world(self.world), self.paths.baselines
        config = self.preset.baselines
        make_baselines(self.task, tuple(LEARNED), world, self.paths.latents, config, folder, self.runtime, self.show)

    def evaluate(
        self,
        bundle: Path,
        draw: Draw,
        config: EvaluationConfig,
        name: str,
        shared: bool = False,  # the trials of all tables
        executor: Executor | None = None,
    ) -> Evaluated:
        evaluated = evaluate_folder(
            self.task,
            bundle,
            self.test_data,
            draw,
            config,
            self.out / name,
            self.paths.baselines if self.paths.baselines.exists() else None,
            executor=executor or self.executor,
            show=self.show,
            title=f"evaluate {name}",
            shared=self.ablation.out if shared else None,
        )
        evaluated.require_all()
        return evaluated

    @property
    def differs(self) -> list[str]:
        """What the experiment here is of, in sentences: how it differs from the paper's."""
        spec = load_world(self.world).spec
        data, trials = (open_episodes(path, self.task, in_memory=False) for path in (self.data, self.test_data))
        training, planner = self.preset.training.optim, self.preset.planner
        labels = (
            "state labels helped to train its encoder" if spec.grounded else "trained from pixels and actions alone"
        )
        finetuned = ", its predictor finetuned over several blocks" if self.finetunes else ""
        imported = read_artifact(self.paths.world, "world")["training"].get("source")
        origin = f"imported from {imported}" if imported else labels + finetuned
        held_out = "test episodes" if trials.for_trials_only else "held-out episodes"
        return [
            f"Data: {len(data.starts):,} episodes, {data.rows:,} frames of {data.frames.shape[1]} px; trials from "
            f"{held_out}.",
            f"World: {spec.family}, frames of {spec.frame_size} px; {origin}.",
            f"Planner: width {planner.width}, depth {planner.depth}; {training.steps:,} steps, batch {training.batch}.",
            f"Trials: {self.options.trials}, {self.options.search_trials} of searches ({self.options.search}).",
        ]


def plan_reproduction(
    task: Task,
    scale: str,
    family: str,
    effort: float,
    world_recipe: str,
    paths: RunPaths,
    options: ReproduceOptions,
    runtime: Runtime | None = None,
    executor: Executor | None = None,
    show: Show = silent,
) -> Reproduction:
    """The planner's recipe is always the paper's; the world's can be another."""
    if options.world is not None and options.data is None:
        raise ValueError("A released world needs the dataset it was trained on: give it with --data.")
    for name in ("trials", "search_trials", "draw_trials", "timed_trials"):
        if (given := getattr(options, name)) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1; got {given}.")
    if not options.seeds or not options.draws:
        raise ValueError("Give at least one of --seeds and one of --draws.")
    preset = get_preset(task, scale, "paper", family, effort)
    other = get_preset(task, scale, world_recipe, family, effort)
    preset = replace(preset, world=other.world, finetune=other.finetune, network=other.network)
    base = RunPaths(paths.base / "reproduction")
    data, test_data = options.data or paths.data, options.data or paths.test_data
    return Reproduction(task, preset, base, data, test_data, options, runtime or Runtime(), executor, show)
