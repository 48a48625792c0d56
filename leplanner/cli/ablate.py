"""`leplanner ablate`: train variants of one planner, run them over the same trials, compare them in pairs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ..core.config import changed
from ..evaluation.manifest import default_budget
from ..pipeline.ablations import Ablation, Run, get_variants, run_ablation
from ..pipeline.evaluating import Draw, find_manifest
from ..report.terminal import ablation_table
from ..worlds import load_world
from .options import Choice, Columns, Comma, Compute, Flat, MaybePath, Out, Output, Workers, integers, preselect
from .progress import bar, note


@dataclass(frozen=True)
class Ablate:
    """Which part does the work? Train variants of the planner through one world, and run them over the same trials.

    Variants: arrival-hold (the reference), hold 0, hold 0.25, hold 1, fixed-terminal, fixed-terminal path, no support,
    K=0, K=1, K=2. Success at the shortest and the longest replanning interval with paired tests against the reference,
    where the closed loop settles (D*), and how often plans leave the data's support. All are trained by the preset (far
    goals, perturbed starts, smoothness), but none sees the reference trajectory, which would hide what its objective
    does by itself. Variants are trained side by side, one a worker. Resumable; variants and seeds can be added later.

    Example: leplanner ablate tworoom --variants "fixed-terminal,hold 0" --steps 1000
    """

    choice: Annotated[Choice, Flat]
    compute: Annotated[Compute, Flat]
    workers: Annotated[Workers, Flat]
    steps: int
    """training steps of every variant"""
    variants: Comma = "all"
    """names separated by commas, or all"""
    seeds: Comma = "0"
    """training seeds of every variant, separated by commas; tables show means over them"""
    world: MaybePath = None
    """world folder (default: the finetuned one, from before on-policy rounds where there were any)"""
    data: MaybePath = None
    """dataset to draw trials from (default: the test episodes in runs/TASK/test.h5, or without those the held-out
    episodes in runs/TASK/data.h5)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    latents: MaybePath = None
    """latent cache (default: runs/TASK/latents)"""
    density: MaybePath = None
    """behavior density (default: runs/TASK/density)"""
    out: MaybePath = None
    """folder for the variants and ablation.json (default: runs/TASK/ablation)"""
    trials: int = 100
    """nontrivial held-out trials, the same for every variant"""
    offset: int = 25
    """environment actions from start to goal in the data"""
    seed: int = 1000
    """of the trials; another than evaluations use"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Ablate:
        choice = preselect(words)
        return Ablate(choice, Compute(), Workers(), choice.preset.training.optim.steps)

    def run(self) -> None:
        task, paths, preset = self.named.of(self.choice.spec), self.choice.paths, self.choice.preset
        preset = replace(preset, training=changed(preset.training, steps=self.steps))
        # a world finetuned on policy knows the plans of the reference and of no other variant
        first = paths.round(0) if paths.round(0).base.exists() else paths
        folder = self.choice.checked(self.world or first.latest_world)
        world = load_world(folder)
        out = self.out or paths.ablation
        draw = Draw(self.trials, self.seed, offset=self.offset, budget=default_budget(self.offset))
        manifest, source = find_manifest(out, task, self.data or paths.trials_data, world.spec, draw)
        note(f"{task.name}: {self.trials} trials of manifest {manifest.digest[:12]}, {source}")
        inputs = (self.latents or first.latents, self.density or first.density)
        ablation = Ablation(task.name, preset, folder, *inputs, self.trials, out)
        runs = [
            Run(variant, seed) for variant in get_variants(self.variants) for seed in integers(self.seeds, "--seeds")
        ]
        report = run_ablation(ablation, runs, self.compute.runtime, self.workers.executor, bar)
        line = f"{out}  world {world.digest[:12]}, manifest {manifest.digest[:12]}"
        self.output.show(report | {"path": out}, ablation_table(report), line)
