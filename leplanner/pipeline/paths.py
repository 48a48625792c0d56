"""Where a run keeps its artifacts: one folder a task, the same names for every verb."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..artifacts import is_whole
from ..tasks import Task
from ..zoo import find_bundle, shipped

ROOT = Path("runs")  # in the working folder
DEMO = ROOT / "demo"


@dataclass(frozen=True)
class RunPaths:
    base: Path

    @staticmethod
    def of(task: Task, base: Path | None = None) -> RunPaths:
        return RunPaths(base or ROOT / task.name)

    @property
    def data(self) -> Path:
        return self.base / "data.h5"

    @property
    def test_data(self) -> Path:
        return self.base / "test.h5"

    def collected(self, split: str) -> Path:
        return {"train": self.data, "test": self.test_data}[split]

    @property
    def trials_data(self) -> Path:
        """What trials are drawn from: test episodes where they were collected, else what holds validation episodes."""
        return self.test_data if self.test_data.exists() else self.data

    @property
    def on_policy_data(self) -> Path:
        """The data with what a planner collected."""
        return self.base / "on_policy.h5"

    @property
    def world(self) -> Path:
        return self.base / "world"

    @property
    def finetuned(self) -> Path:
        return self.base / "finetuned"

    @property
    def latents(self) -> Path:
        return self.base / "latents"

    @property
    def density(self) -> Path:
        return self.base / "density"

    @property
    def planner(self) -> Path:
        return self.base / "planner"

    @property
    def baselines(self) -> Path:
        return self.base / "baselines"

    @property
    def decoder(self) -> Path:
        return self.base / "decoder"

    @property
    def diagnostics(self) -> Path:
        return self.base / "diagnostics"

    @property
    def ablation(self) -> Path:
        return self.base / "ablation"

    @property
    def comparison(self) -> Path:
        return self.base / "comparison"

    @property
    def measured(self) -> Path:
        """The evaluation that a run's bundle is shipped with."""
        return self.base / "measured"

    @property
    def bundle(self) -> Path:
        return self.base / "bundle"

    @property
    def report(self) -> Path:
        return self.base / "report.html"

    @property
    def minutes(self) -> Path:
        return self.base / "run.json"

    def evaluation(self, protocol: str, offset: int, seed: int) -> Path:
        return self.base / "evaluation" / f"{protocol}-{offset}-{seed}"

    def round(self, number: int) -> RunPaths:
        """Of a planner that will collect on-policy data."""
        return RunPaths(self.base / f"round-{number}")

    def family(self, name: str) -> RunPaths:
        """Of one family of world models among several that are compared."""
        return RunPaths(self.base / "families" / name)

    @property
    def latest_world(self) -> Path:
        """The finetuned world where there is one."""
        return self.finetuned if is_whole(self.finetuned) else self.world

    def latest_bundle(self, task: Task, requested: str | None = None) -> Path:
        """The requested one; else the planner that was trained here, once it is whole; else the shipped one."""
        if requested is not None:
            return find_bundle(requested)
        if is_whole(self.planner):
            return self.planner
        if task.name in shipped():
            return shipped()[task.name]
        raise ValueError(
            f"There is no planner at {self.planner}. Train one (leplanner train {task.name}), or give --bundle."
        )
