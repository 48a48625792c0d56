"""`leplanner export`: ONNX files for a robot without torch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..control.loaded import load
from ..planner.export import export_onnx
from .options import MaybeInt, Out, Output


@dataclass(frozen=True)
class Export:
    """Write a bundle as encoder.onnx and plan.onnx, which ONNX Runtime runs without torch.

    encoder.onnx: frames (B, S, S, 3) uint8 -> latents (B, *Z). plan.onnx: context (B, N, *Z), past_blocks (B, N-1, A),
    goal (B, *Z), last_plan (B, H, A), executed (1,) int64 -> blocks (B, H, A), latents, distances. last_plan is the
    plan that was followed, executed how many of its blocks were; at the first decision any plan and H. Action
    statistics, bounds and sizes are in the files' metadata; examples/control_with_onnx.py is a whole control loop.

    Example: leplanner export tworoom --out runs/tworoom/onnx
    """

    bundle: Annotated[Positional[str], arg(metavar="BUNDLE")]
    """a shipped task's name, a bundle folder, or a Hugging Face id"""
    out: Path
    """folder for the two files"""
    batch: MaybeInt = None
    """a fixed batch size (default: any)"""
    reuse: bool = True
    """return what remains of last_plan where that is imagined to end nearer the goal, as the shipped controllers do;
    --no-reuse is the paper's controller, without the inputs last_plan and executed"""
    output: Out = field(default_factory=Output)

    def run(self) -> None:
        if importlib.util.find_spec("onnx") is None:
            raise ImportError("Exporting needs the onnx package. Install it with: pip install 'leplanner[export]'")
        paths = export_onnx(load(self.bundle, engine="eager"), self.out, self.batch, self.reuse)
        sizes = {path: path.stat().st_size for path in paths}
        files = [{"path": path, "bytes": size} for path, size in sizes.items()]
        self.output.show({"files": files}, *(f"{path}  {size / 1e6:.1f} MB" for path, size in sizes.items()))
