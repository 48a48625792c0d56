"""`leplanner diagnose`: tables about a planner's imagination and its closed loop."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Annotated

from rich.table import Table

from ..artifacts import is_whole
from ..diagnostics.closed_loop import ClosedLoopTables
from ..diagnostics.imagined import ImaginedTables
from ..pipeline.diagnosing import DiagnosisConfig, diagnose_bundle
from .options import Choice, Json, MaybeBundle, MaybePath
from .progress import bar, console
from .stages import Flat


@dataclass(frozen=True)
class Diagnose:
    """When do plans arrive, what does each correction buy, where does the closed loop settle, how far does imagination drift?

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
    latents: MaybePath = None
    """frames encoded by the bundle's world, for problems in imagination: leplanner cache (default: runs/TASK/latents)"""
    out: MaybePath = None
    """folder for the tables (default: runs/TASK/diagnostics)"""
    decoder: MaybePath = None
    """what `leplanner decoder` made: also draw what the first trials imagine, to OUT/panels.npz (default: runs/TASK/decoder, if
    there is one)"""
    videos: MaybePath = None
    """an evaluation's folder whose videos get the planner's imagination drawn beside them"""
    json_output: Json = False
    """print JSON instead of tables"""

    @staticmethod
    def default(choice: Choice, words: list[str]) -> Diagnose:
        return Diagnose(choice, DiagnosisConfig())

    def run(self) -> None:
        task, paths = self.choice.spec, self.choice.paths
        decoder = self.decoder or (paths.decoder if is_whole(paths.decoder) else None)
        out = self.out or paths.diagnostics
        diagnosis = diagnose_bundle(
            task,
            paths.latest_bundle(task, self.bundle),
            self.data or paths.data,
            self.latents or paths.latents,
            out,
            self.config,
            decoder,
            self.videos,
            bar,
        )
        if self.json_output:
            tables = {"imagined": diagnosis.imagined, "closed_loop": diagnosis.executed}
            print(json.dumps({name: dataclasses.asdict(table) for name, table in tables.items() if table}))
            return
        if self.videos is not None:
            console.print(f"{self.videos / 'imagined'}  {diagnosis.videos} videos")
        for table in _tables(diagnosis.imagined, diagnosis.executed):
            console.print(table)
        console.print(f"{out}  bundle {diagnosis.planner.digest[:12]}")


def _tables(imagined: ImaginedTables, executed: ClosedLoopTables | None) -> list[Table | str]:
    horizon = len(imagined.magnitudes)
    profile = Table(
        title=f"distance to the goal after each block, % of the start ({imagined.problems} held-out problems)"
    )
    for title in ("goal at q", "problems", *map(str, range(1, horizon + 1))):
        profile.add_column(title, justify="right")
    for q, (row, count) in enumerate(zip(imagined.profile, imagined.profile_counts, strict=True), start=1):
        if row is not None:
            profile.add_row(str(q), str(count), *(f"{100 * value / imagined.start:.2f}" for value in row))
    depth = Table(title=f"what a correction buys (trained with {imagined.trained_depth})")
    for title in ("k", "terminal", "arrival", "gain", "change"):
        depth.add_column(title, justify="right")
    for row in imagined.depth:
        rest = (f"{row.gain:+.5f}", f"{row.change:.4f}") if row.gain is not None else ("", "")
        depth.add_row(str(row.k), f"{row.terminal:.5f}", f"{row.arrival:.5f}", *rest)
    beside = imagined.beside_the_data
    lines = [
        "mean |action| by block, standardized: " + " ".join(f"{value:.3f}" for value in imagined.magnitudes),
        f"first block beside the data's: cosine {beside.cosine_mean:.3f} (median {beside.cosine_median:.3f}), differs by "
        f"{beside.difference:.3f} of {beside.magnitude:.3f}; nearer the goal than after the data's block: our plan in "
        f"{beside.plan_nearer:.1%}, our first block in {beside.our_block_nearer:.1%}",
    ]
    if imagined.off_support is not None:
        lines.append(f"blocks that the data does not support: {imagined.off_support:.1%}")
    if executed is not None:
        fit = executed.fit
        settles = (
            f"settles at {fit.fixed_point:.4f} ({fit.low:.4f} to {fit.high:.4f} in the {fit.settled:.0%} of resamples that settle)"
            if fit.fixed_point is not None and fit.low is not None
            else "does not settle"
        )
        lines.append(
            f"closed loop over {fit.pairs} replans of {fit.trials} trials: D' = {fit.c:.3f} D + {fit.b:.4f}, {settles}"
        )
        for name, drift, still in (
            ("our plans", executed.drift, executed.drift_of_copying),
            ("the data's actions from the same starts", executed.data_drift, executed.data_drift_of_copying),
        ):
            shares = " ".join(f"{100 * value / max(rest, 1e-12):.1f}" for value, rest in zip(drift, still, strict=True))
            lines.append(f"imagined against real latents after each block, % of copying, {name}: {shares}")
    return [profile, depth, *lines]
