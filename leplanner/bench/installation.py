"""What is installed, what works, and what to do about the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..tasks import TASKS, Task, find_task
from . import Note, no_note

CURE = "pip install leplanner"
SIM_CURE = "pip install 'leplanner[sim]'"
REPORT_CURE = "pip install 'leplanner[report]'"
EXPORT_CURE = "pip install 'leplanner[export]'"
PACKAGES = {  # what brings each
    CURE: ("torch", "numpy", "h5py", "safetensors"),
    SIM_CURE: ("stable-worldmodel", "gymnasium", "mujoco", "dm-control", "ogbench", "pymunk", "pygame"),
    REPORT_CURE: ("matplotlib", "jinja2", "imageio"),
    EXPORT_CURE: ("onnx", "onnxruntime"),
}
ABOUT_RENDERING = re.compile(r"gl\b|\begl|\bglx|\bglfw|libgl|opengl|osmesa|render", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    check: str
    ok: bool
    detail: str
    cure: str = ""  # empty where the check passed


def cures(findings: Sequence[Finding]) -> dict[str, list[str]]:
    """What to do, each once, and the checks that it mends."""
    mended: dict[str, list[str]] = {}
    for finding in findings:
        if not finding.ok:
            mended.setdefault(finding.cure, []).append(finding.check)
    return mended


def examine(tasks: Sequence[str] = (), note: Note = no_note) -> list[Finding]:
    """Versions, device, rendering, and each task created, reset, stepped and rendered. `tasks`: registered names or
    package.module:TASK; all registered ones if empty."""
    findings = [*_machine(), *_packages()]
    findings.append(_try("write access", _can_write, lambda error: "choose a folder you may write to"))
    for name in tasks or TASKS.names():
        note(f"trying {name}")
        findings.append(_examine_task(name))
    return findings


def _machine() -> list[Finding]:
    import torch

    from ..tasks.swm_runtime import choose_gl_backend
    from ..training.precision import pick_device, pick_precision

    device = pick_device()
    return [
        Finding("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        Finding("device", True, f"{device}, {torch.get_num_threads()} threads of {os.cpu_count()} cores"),
        Finding("training precision", True, f"{pick_precision('auto', device)} (the faster here)"),
        _try("planning engine", lambda: _engine(device.type), lambda error: EXPORT_CURE),
        Finding("GL backend", True, choose_gl_backend()),
    ]


def _engine(device: str) -> str:
    from ..control.loaded import load
    from ..planner.engines import pick_engine
    from ..zoo import shipped

    planner = load(next(iter(shipped())), device=device)
    return ": ".join(pick_engine("auto", planner.dynamics, planner.model))


def _packages() -> list[Finding]:
    findings = []
    for cure, packages in PACKAGES.items():
        for package in packages:
            try:
                findings.append(Finding(package, True, importlib.metadata.version(package)))
            except importlib.metadata.PackageNotFoundError:
                findings.append(Finding(package, False, "not installed", cure))
    return findings


def _can_write() -> str:
    with tempfile.NamedTemporaryFile(dir=Path.cwd()):
        return "the working folder is writable"


def _examine_task(name: str) -> Finding:
    check = f"task {name}"
    try:
        task = find_task(name)
    except Exception as error:  # a module of other people's may fail in any way
        return Finding(check, False, str(error), "name a registered task, or package.module:TASK")
    return _try(check, lambda: _try_task(task), _simulator_cure)


def _try_task(task: Task) -> str:
    sim = task.simulate()
    try:
        rng = np.random.default_rng(0)
        sim.start(rng)
        before = sim.state()
        sim.step(task.behavior(sim, rng).act().astype(np.float32))
        frame = sim.render(64)
        if frame.shape != (64, 64, 3) or frame.std() < 1.0:
            raise RuntimeError("the rendered frame is blank")
        moved = float(np.abs(sim.state() - before).max())
        return f"created, reset, stepped (state moved by {moved:.3g}), rendered"
    finally:
        sim.close()


def _simulator_cure(error: BaseException) -> str:
    """A missing package, a missing GL library, or a package that is there and broken."""
    from ..tasks.swm_runtime import GL_PACKAGES

    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    if any(isinstance(each, ModuleNotFoundError) and not _is_installed(each.name or "") for each in chain):
        return SIM_CURE
    if any(ABOUT_RENDERING.search(f"{type(each).__name__}: {each}") for each in chain):
        if platform.system() != "Linux":
            return "update the graphics driver, or choose another backend with MUJOCO_GL"
        return f"apt-get install {' '.join(GL_PACKAGES)}, or choose another backend with MUJOCO_GL=egl|osmesa|glfw"
    return f"{SIM_CURE} --force-reinstall: what is installed does not work, or is of another version"


def _is_installed(module: str) -> bool:
    """Whether the package is there, though a part of it may be missing."""
    try:
        return importlib.util.find_spec(module.partition(".")[0] or "-") is not None
    except ValueError:  # imported, and without the record of where from
        return True


def _try(check: str, run: Callable[[], str], cure: Callable[[Exception], str]) -> Finding:
    try:
        return Finding(check, True, run())
    except Exception as error:  # whatever fails is a finding
        return Finding(check, False, f"{type(error).__name__}: {error}", cure(error))
