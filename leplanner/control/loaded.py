"""What `lp.load` returns: a planner that also controls, and that goes to the Hugging Face hub and comes from there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin

from ..artifacts import read_artifact
from ..planner.planner import Planner, load_bundle, save_bundle
from ..training.precision import pick_device
from ..zoo import find_bundle
from .controller import Controller, Goal
from .policy import PlannerPolicy


class LoadedPlanner(
    Planner,
    ModelHubMixin,
    library_name="leplanner",
    pipeline_tag="robotics",
    tags=["world-model", "planning"],
    license="mit",
):
    """A bundle in use: `plan` for latents, `controller` for frames; `world`, `model` and `density` are its parts.

    `push_to_hub("owner/name")`, `save_pretrained(folder)` and `from_pretrained(...)` are huggingface_hub's own.
    """

    folder: Path | None = None  # the bundle that it was loaded from
    resize = False

    def controller(self, goal: Goal, execute: int = 1, reuse: bool = True) -> Controller:
        """A controller on its way to a goal (a picture, a latent, a dataset's row, or a batch of pictures or latents)
        that replans after `execute` blocks. Then `controller.act(frame)` for every step. `reuse`: follow what remains
        of the last plan where the new one is imagined to end farther from the goal; one rollout more a plan, and
        False is the paper's controller."""
        horizon = self.model.config.horizon
        if not 1 <= execute <= horizon:
            raise ValueError(f"execute must be from 1 to {horizon} blocks, the length of a plan; got {execute}.")
        policy = PlannerPolicy(self, reuse)
        controller = Controller(policy, self.world, execute, encode=self.encode, resize=self.resize)
        controller.reset(goal)
        return controller

    def __repr__(self) -> str:
        spec, config = self.world.spec, self.model.config
        return (
            f"<LoadedPlanner for {spec.task}: {spec.family} world, latents {spec.latent.shape}, frames of "
            f"{spec.frame_size} px; plans of {config.horizon} blocks of {spec.actions.block} actions, "
            f"{config.refinements} refinements, {self.transitions_per_plan} transitions; "
            f"{sum(p.numel() for p in self.model.parameters()) / 1e6:.1f} M parameters; {self.digest[:12]}>"
        )

    def _save_pretrained(self, save_directory: Path) -> None:
        """The bundle as it was loaded, with card, trials and results; without them where its weights were changed."""
        if self.folder is None or read_artifact(self.folder, "bundle")["digest"] != self.digest:
            save_bundle(self, save_directory)
            return
        for path in self.folder.iterdir():
            if path.is_file():
                shutil.copyfile(path, save_directory / path.name)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, revision: str | None, **options: Any) -> LoadedPlanner:
        chosen = {name: options[name] for name in ("engine", "device", "resize") if name in options}
        return load(model_id, revision=revision, **chosen)


def load(
    source: str | Path, engine: str = "auto", device: str = "cpu", revision: str | None = None, resize: bool = False
) -> LoadedPlanner:
    """From a shipped task's name ("cube"), a bundle folder such as `leplanner train` makes, or a Hugging Face id.

    `engine` is how plans are computed: auto, eager (the plain model), compiled, or onnx (on the CPU, with as
    many threads as torch has at the first plan); `planner.engine_report()` says which is used and why.
    `device`: cpu, cuda, mps, or auto. `revision`: a branch, tag or commit of the Hugging Face repository.
    `resize`: controllers resize square goals and frames of another size than the world's."""
    folder = find_bundle(source, revision)
    bundle = load_bundle(folder)
    bundle.to(pick_device(device))
    planner = LoadedPlanner(bundle.world, bundle.model, bundle.density, engine)
    planner.folder, planner.resize = folder, resize
    return planner
