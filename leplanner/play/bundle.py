"""What a game is played with: a bundle in use, its projection, and how far its goals usually are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import numpy as np
import torch

from ..control.loaded import LoadedPlanner, load
from ..diagnostics.projection import Projection, projection_of
from ..evaluation.manifest import load_manifest
from ..planner.model import LePlanner
from ..tasks import Task, get_task
from ..zoo import find_bundle

USUAL = 0.9  # share of the measured trials whose goal is no farther than what counts as usual


def with_refinements(planner: LoadedPlanner, refinements: int) -> LoadedPlanner:
    """The same planner with another K; beyond the trained depth the loop goes on with its last step size."""
    model = planner.model
    config = replace(model.config, refinements=refinements)
    eta = model.eta.detach()
    if refinements > len(eta) and not len(eta):
        raise ValueError("This planner was trained without refinements, so there is no step size to refine with.")
    longer = torch.cat([eta, eta[-1:].expand(max(0, refinements - len(eta)))])[:refinements]
    other = LePlanner(config, model.latent, model.context, model.actions).to(eta.device)
    other.load_state_dict(model.state_dict() | {"eta": longer})
    return LoadedPlanner(planner.dynamics, other, planner.density, planner.requested)


@dataclass
class PlayBundle:
    """Shared by all sessions of a process; sessions only read it."""

    task: Task
    planner: LoadedPlanner
    projection: Projection | None  # None: the task does not say where things are in its picture
    usual_error: float | None  # in the task's unit; None where no trials lie beside the bundle
    _by_refinements: dict[int, LoadedPlanner] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def trained_refinements(self) -> int:
        return self.planner.model.config.refinements

    def refined(self, refinements: int) -> LoadedPlanner:
        """Made once, and warm: no decision is timed with building an engine."""
        with self._lock:
            if refinements not in self._by_refinements:
                same = refinements == self.trained_refinements
                planner = self.planner if same else with_refinements(self.planner, refinements)
                planner.warm_up()
                self._by_refinements[refinements] = planner
            return self._by_refinements[refinements]


def open_bundle(source: str | Path, on_episode: Callable[[int, int], None] = lambda done, total: None) -> PlayBundle:
    """A shipped task's name, a bundle folder, or a Hugging Face id. `on_episode`: progress while a projection is
    fitted, which shipped bundles have."""
    folder = find_bundle(source)
    planner = load(folder)
    task = get_task(planner.world.spec.task)
    projection = projection_of(planner.world, task, folder, on_episode) if task.plan_view else None
    usual = None
    if (folder / "manifest.json").exists():
        trials = load_manifest(folder / "manifest.json").trials
        starts, goals = (np.array([getattr(t, name) for t in trials]) for name in ("start_state", "goal_state"))
        usual = float(np.quantile([task.error(s, g) for s, g in zip(starts, goals, strict=True)], USUAL))
    return PlayBundle(task, planner, projection, usual)
