"""What all parts of a reproduction share: one task, one world, one set of planners and trials, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ... import baselines  # noqa: F401  (registers the learned baselines)
from ...artifacts import digest_json, is_whole, read_artifact, to_dict
from ...baselines.learned import LEARNED
from ...control.methods import SearchBudget
from ...data.episodes import split
from ...data.formats import open_episodes
from ...evaluation.manifest import default_budget
from ...evaluation.metrics import HEADLINE, METRICS
from ...evaluation.runner import EvaluationConfig
from ...execution.executor import Executor
from ...tasks import Task
from ...training.runtime import Runtime
from ...worlds import FAMILIES, find_family, load_world
from ..ablations import REFERENCE, VARIANTS, Ablation, Run, run_ablation
from ..evaluating import MANIFEST, Draw, Evaluated, evaluate_folder, find_manifest
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
    def metric(self) -> str:
        """Success as the paper counts it: of the object alone, where the task moves one."""
        return "object" if self.task.object_success else HEADLINE

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
        # early: too few episodes are said before anything is trained
        plan.append(Stage("draw trials", (self.test_data,), paths.ablation / MANIFEST, self.find_trials))
        if self.options.world is not None:
            run = partial(import_world, self.options.world, task, preset.family, paths.world, self.data)
            plan.append(Stage("import world", (self.data,), paths.world, run))
        else:
            plan.append(train_world(task, preset, self.data, paths.world, runtime, show))
        return plan + prepare(task, preset, paths.world, self.data, paths, self.finetunes, runtime, show)

    @property
    def identity(self) -> str:
        """Of all that decides what parts find: what they were made from, and what was asked."""
        options = {name: str(value) for name, value in vars(self.options).items() if name not in ("world", "data")}
        training = to_dict(self.preset.training) | to_dict(self.preset.planner)
        return digest_json([self.ablation.inputs, training, options])

    @property
    def draw(self) -> Draw:
        return Draw(self.options.trials, offset=OFFSET, budget=default_budget(OFFSET))

    @cached_property
    def ablation(self) -> Ablation:
        """Planners of all objectives, on one manifest: that of all tables but the draws'."""
        self.find_trials()
        inputs = (self.world, self.paths.latents, self.paths.density)
        return Ablation(self.task.name, self.preset, *inputs, self.options.trials, self.paths.ablation)

    def find_trials(self) -> str:
        folder = self.paths.ablation
        manifest, source = find_manifest(folder, self.task, self.test_data, None, self.draw)
        expected = open_episodes(self.test_data, self.task, in_memory=False).digest
        if manifest.data_digest != expected:
            raise ValueError(
                f"{folder / MANIFEST} was drawn from data {manifest.data_digest[:12]}; {self.test_data} is "
                f"{expected[:12]}. Choose another --base, or delete {self.out} to begin anew."
            )
        return f"{len(manifest.trials)} trials of manifest {manifest.digest[:12]}, {source}"

    def variants(self, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
        """Results of planners trained with these objectives, a list over seeds; what is missing is trained and run."""
        runs = [Run(VARIANTS[name], seed) for name in names for seed in seeds]
        if any(self.ablation.result(run) is None for run in runs):
            run_ablation(self.ablation, runs, self.runtime, self.executor, self.show)
        results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for run in runs:
            result = self.ablation.result(run)
            assert result is not None  # it was just made
            results[run.variant.name].append(result)
        return results

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
            f"Beside the paper: success, {METRICS.get(self.metric).title}.",
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
    if options.timed_trials >= options.trials:
        raise ValueError(
            f"--timed-trials must be below --trials, since a method's first trial only warms up; got "
            f"{options.timed_trials} and {options.trials}."
        )
    for name, seeds in (("seeds", options.seeds), ("draws", options.draws)):
        if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise ValueError(f"--{name} takes different numbers, none below 0; got {', '.join(map(str, seeds))}.")
    family = find_family(family).name
    preset = get_preset(task, scale, "paper", family, effort)
    other = get_preset(task, scale, world_recipe, family, effort)
    preset = replace(
        preset, network=other.network, objective=other.objective, world=other.world, finetune=other.finetune
    )
    base = RunPaths(paths.base / "reproduction")
    data, test_data = options.data or paths.data, options.data or paths.test_data
    if options.data is not None:
        episodes = open_episodes(options.data, task, in_memory=False)
        episodes.need_states("Trials are set up from physical states")
        split(episodes)  # a test set alone has nothing to train on
    if options.world is None and not is_whole(base.world):
        FAMILIES.get(family).check_ready(preset.network)
    return Reproduction(task, preset, base, data, test_data, options, runtime or Runtime(), executor, show)
