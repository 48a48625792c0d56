"""`leplanner doctor`: what works, what is at fault, and cures that can be copied."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from leplanner.bench import installation
from leplanner.bench.installation import examine
from leplanner.cli.main import main


def test_doctor(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--tasks", "tworoom", "pusht", "--json"]) == 0
    findings = {f["check"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["task pusht"]["ok"]
    assert "moved" in findings["task pusht"]["detail"]
    assert main(["doctor", "--tasks", "walker"]) == 1
    assert "fails" in capsys.readouterr().out


def test_doctor_prints_cures_with_their_extras(capsys, monkeypatch):
    """Each whole on a line, to be copied, however narrow the terminal is."""

    def version(package: str) -> str:
        if package in ("mujoco", "jinja2", "h5py"):
            raise installation.importlib.metadata.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(installation.importlib.metadata, "version", version)
    assert main(["doctor", "--tasks", "tworoom"]) == 1
    shown = capsys.readouterr().out
    for name, cure in (
        ("h5py", "pip install leplanner"),
        ("mujoco", "pip install 'leplanner[sim]'"),
        ("jinja2", "pip install 'leplanner[report]'"),
    ):
        assert f"\n{name}:\n  {cure}\n" in shown


def chained(*errors: Exception) -> Exception:
    """The first error, with the others as its causes."""
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


EXPLAINED = "This needs stable-worldmodel and its environments: pip install 'leplanner[sim]'"
NO_RENDERING = "MuJoCo could not start rendering: apt-get install libegl1"
MISSING, LIBRARY, BROKEN = (
    r"pip install 'leplanner\[sim\]'$",
    "apt-get install libegl1",
    r"pip install 'leplanner\[sim\]' --force-reinstall",
)


@pytest.mark.parametrize(
    ("errors", "cure"),
    [
        ([ImportError(EXPLAINED), ModuleNotFoundError("No module named 'OpenGX'", name="OpenGX")], MISSING),
        ([ModuleNotFoundError("No module named 'no_pymunk'", name="no_pymunk.body")], MISSING),
        ([RuntimeError(NO_RENDERING), OSError("libEGL.so.1: cannot open shared object file")], LIBRARY),
        ([RuntimeError(NO_RENDERING), AttributeError("'NoneType' object has no attribute 'glGetError'")], LIBRARY),
        ([ImportError("libGL.so.1: cannot open shared object file: No such file or directory")], LIBRARY),
        ([ImportError(EXPLAINED), ImportError("cannot import name 'Space' from 'gymnasium'")], BROKEN),
        ([ImportError(EXPLAINED), ModuleNotFoundError("No module named 'json.envs'", name="json.envs")], BROKEN),
        ([TypeError("step() takes 1 argument")], BROKEN),
    ],
    ids=lambda value: str(value)[:60],
)
def test_doctor_blames_what_is_at_fault(errors, cure, monkeypatch):
    def fail(task: Any) -> str:
        raise chained(*errors)

    monkeypatch.setattr(installation.platform, "system", lambda: "Linux")
    monkeypatch.setattr(installation, "_try_task", fail)
    (finding,) = (f for f in examine(["tworoom"]) if f.check == "task tworoom")
    assert not finding.ok
    assert re.match(cure, finding.cure)


@pytest.mark.slow
def test_doctor_tries_all_tasks(capsys):
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"]
