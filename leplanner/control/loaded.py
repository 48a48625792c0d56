"""What `lp.load` returns: a planner that also controls."""

from __future__ import annotations

from pathlib import Path

from ..planner.planner import Planner, load_bundle
from ..training.precision import pick_device
from ..zoo import find_bundle
from .controller import Controller, Goal
from .policy import PlannerPolicy


class LoadedPlanner(Planner):
    """A bundle in use: `plan` for latents, `controller` for frames; `world`, `model` and `density` are its parts."""

    def controller(self, goal: Goal, execute: int = 1, reuse: bool = True) -> Controller:
        """A controller on its way to a goal (an image, a latent, a dataset's row, or a batch of images or latents) that
        replans after `execute` blocks. Then `controller.act(frame)` for every step. `reuse`: follow what remains
        of the last plan where the new one is imagined to end farther from the goal; one rollout more a plan, and
        False is the paper's controller."""
        controller = Controller(PlannerPolicy(self, reuse), self.world, execute, encode=self.encode)
        controller.reset(goal)
        return controller


def load(source: str | Path, engine: str = "auto", device: str = "cpu") -> LoadedPlanner:
    """From a shipped task's name ("cube"), a bundle folder such as `leplanner train` makes, or a Hugging Face id.

    `engine` is how plans are computed: auto, eager (the plain model), compiled, or onnx (on the CPU, with as
    many threads as torch has at the first plan); `planner.engine_report()` says which is used and why.
    `device`: cpu, cuda, mps, or auto."""
    bundle = load_bundle(find_bundle(source))
    bundle.to(pick_device(device))
    return LoadedPlanner(bundle.world, bundle.model, bundle.density, engine)
