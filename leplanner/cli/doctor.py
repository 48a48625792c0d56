"""`leplanner doctor`: what is installed, what works, and what to do about what does not."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from ..tasks import TASKS, Task
from ..tasks.swm_runtime import GL_PACKAGES, choose_gl_backend
from .options import Json
from .progress import console, errors

PACKAGES = (
    "torch",
    "numpy",
    "h5py",
    "safetensors",
    "stable-worldmodel",
    "gymnasium",
    "mujoco",
    "dm-control",
    "ogbench",
    "pymunk",
    "pygame",
)
CURE_SIM = "pip install 'leplanner[sim]'"
CURE_GL = f"apt-get install {' '.join(GL_PACKAGES)}, or set MUJOCO_GL"


@dataclass(frozen=True)
class Finding:
    check: str
    ok: bool
    found: str
    cure: str = ""


def doctor(tasks: tuple[str, ...] = tuple(TASKS), json_output: Json = False) -> int:
    """Check the installation: versions, device, rendering, and each task created, reset, stepped and drawn.

    Exits with 1 and prints the cure when something fails.

    Example: leplanner doctor

    Args:
        tasks: which tasks to try.
        json_output: print JSON instead of a table.
    """
    findings = [*_machine(), *_packages(), _examine("write access", _can_write, "choose a folder you may write to")]
    for name in tasks:
        if not json_output:
            errors.print(f"trying {name} ...", highlight=False)
        cure = CURE_GL if name in ("reacher", "cube") else CURE_SIM
        if name not in TASKS:
            findings.append(Finding(f"task {name}", False, "no such task", f"known: {', '.join(TASKS)}"))
        else:
            findings.append(_examine(f"task {name}", lambda task=TASKS[name]: _try_task(task), cure))
    if json_output:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        table = Table()
        for title in ("check", "", "found", "cure"):
            table.add_column(title)
        for finding in findings:
            mark = "[green]ok[/green]" if finding.ok else "[red]fails[/red]"
            table.add_row(finding.check, mark, finding.found, "" if finding.ok else finding.cure)
        console.print(table)
    return 0 if all(finding.ok for finding in findings) else 1


def _machine() -> list[Finding]:
    import torch

    from ..training.precision import pick_device, pick_precision

    device = pick_device()
    return [
        Finding("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Finding("device", True, f"{device}, {torch.get_num_threads()} threads of {os.cpu_count()} cores"),
        Finding("training precision", True, f"{pick_precision('auto', device)} (the faster here)"),
        _examine("planning engine", lambda: _engine(device.type), "pip install 'leplanner[export]'"),
        Finding("GL backend", True, choose_gl_backend()),
    ]


def _engine(device: str) -> str:
    from ..control.loaded import load
    from ..planner.engines.engine import pick_engine

    planner = load("tworoom", device=device)
    return ": ".join(pick_engine("auto", planner.world, planner.model))


def _packages() -> list[Finding]:
    findings = []
    for package in PACKAGES:
        try:
            findings.append(Finding(package, True, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(package, False, "not installed", CURE_SIM))
    return findings


def _can_write() -> str:
    with tempfile.NamedTemporaryFile(dir=Path.cwd()):
        return "the working folder is writable"


def _try_task(task: Task) -> str:
    from ..tasks.swm_simulator import make_simulator

    sim = make_simulator(task)
    try:
        rng = np.random.default_rng(0)
        sim.start(rng)
        before = sim.state()
        sim.step(task.behavior(sim, rng).act().astype(np.float32))
        frame = sim.render(64)
        if frame.shape != (64, 64, 3) or frame.std() < 1.0:
            raise RuntimeError("the rendered frame is blank")
        moved = float(np.abs(sim.state() - before).max())
        return f"created, reset, stepped (state moved by {moved:.3g}), drawn"
    finally:
        sim.close()


def _examine(check: str, run: Callable[[], str], cure: str) -> Finding:
    try:
        return Finding(check, True, run())
    except Exception as error:  # a doctor reports whatever fails, and exits non-zero
        return Finding(check, False, f"{type(error).__name__}: {error}", cure)
