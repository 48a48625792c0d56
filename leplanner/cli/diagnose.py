"""`leplanner diagnose`: tables about a planner's imagination and its closed loop."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated

from ..artifacts import is_whole
from ..pipeline.diagnosing import DiagnosisConfig, diagnose_bundle
from ..report.terminal import diagnosis_tables
from .options import Choice, Columns, Flat, MaybeBundle, MaybePath, Out, Output, preselect
from .progress import bar


@dataclass(frozen=True)
class Diagnose:
    """When do plans arrive, what does each refinement buy, where does the closed loop settle,
    how far does imagination drift?

    On held-out problems of the dataset and in the environment; trials are of another seed than evaluations use. Writes
    OUT/imagined.json and OUT/closed_loop.json, from which figures are drawn.

    Example: leplanner diagnose tworoom
    """

    choice: Annotated[Choice, Flat]
    config: Annotated[DiagnosisConfig, Flat]
    bundle: MaybeBundle = None
    """a shipped task's name, a bundle folder or a Hugging Face id (default: runs/TASK/planner, else the shipped one)"""
    data: MaybePath = None
    """the dataset to draw trials from (default: runs/TASK/data.h5)"""
    named: Annotated[Columns, Flat] = field(default_factory=Columns)
    latents: MaybePath = None
    """frames encoded by the bundle's world, for problems in imagination: leplanner cache
    (default: runs/TASK/latents)"""
    out: MaybePath = None
    """folder for the tables (default: runs/TASK/diagnostics)"""
    decoder: MaybePath = None
    """what `leplanner decoder` made: also draw what the first trials imagine, to OUT/panels.npz (default:
    runs/TASK/decoder, if there is one)"""
    videos: MaybePath = None
    """an evaluation's folder whose videos get the planner's imagination drawn beside them"""
    output: Out = field(default_factory=Output)

    @staticmethod
    def default(words: list[str]) -> Diagnose:
        return Diagnose(preselect(words), DiagnosisConfig())

    def run(self) -> None:
        task, paths = self.named.of(self.choice.spec), self.choice.paths
        decoder = self.decoder or (paths.decoder if is_whole(paths.decoder) else None)
        out = self.out or paths.diagnostics
        diagnosis = diagnose_bundle(
            task,
            self.choice.checked(paths.latest_bundle(task, self.bundle)),
            self.data or paths.data,
            self.latents or paths.latents,
            out,
            self.config,
            decoder,
            self.videos,
            bar,
        )
        tables = {"imagined": diagnosis.imagined, "closed_loop": diagnosis.executed}
        data = {name: dataclasses.asdict(table) for name, table in tables.items() if table}
        data |= {"path": out, "bundle": diagnosis.planner.digest, "videos": diagnosis.videos}
        drawn = [f"{self.videos / 'imagined'}  {diagnosis.videos} videos"] if self.videos is not None else []
        line = f"{out}  bundle {diagnosis.planner.digest[:12]}"
        self.output.show(data, *drawn, *diagnosis_tables(diagnosis.imagined, diagnosis.executed), line)
