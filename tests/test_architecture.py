"""The shape of the code: imports point one way, swm has one seam, files stay small, the core stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import leplanner

PACKAGE = Path(leplanner.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ORDER = ["artifacts", "precision", "parallel", "learning", "tasks", "data", "world", "density", "planner"]
ORDER += [
    "zoo",
    "control",
    "baselines",
    "evaluation",
    "diagnostics",
    "report",
    "presets",
    "cli",
]  # each may import itself and what stands before


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(path.relative_to(PACKAGE.parent).with_suffix("").parts[: -node.level or None])
            module = ".".join([*(base if node.level else []), *([node.module] if node.module else [])])
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


def layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "leplanner" and len(parts) > 1 and parts[1] in ORDER else None


@pytest.mark.parametrize("path", [p for p in FILES if p.parent != PACKAGE], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down_the_data_flow(path):
    own = ORDER.index(path.relative_to(PACKAGE).parts[0])
    above = {m for m in imported_modules(path) if (found := layer(m)) and ORDER.index(found) > own}
    assert not above, f"{path.name} imports {above} from a later stage"


def test_every_folder_has_its_place_in_the_order():
    folders = {p.parent.name for p in FILES if p.parent != PACKAGE}
    assert folders <= set(ORDER)


def test_stable_worldmodel_has_one_seam():
    """Only swm_*.py name it, and others reach those only inside a function, when a simulator is really wanted."""
    for path in FILES:
        if path.name.startswith("swm_"):
            continue
        assert "import_swm" not in path.read_text(), path
        tree = ast.parse(path.read_text())
        at_import = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
        seams = [module for module in at_import if module.split(".")[-1].startswith("swm_")]
        assert not seams or path.parts[-2:] == ("cli", "doctor.py"), path
        assert not any(module.startswith("stable_worldmodel") for module in imported_modules(path)), path


def test_files_stay_small_and_named_for_what_they_do():
    assert [p.name for p in FILES if len(p.read_text().splitlines()) > 400] == []
    assert [p.name for p in FILES if p.stem in ("utils", "common", "misc", "helpers")] == []


def test_every_file_opens_with_a_sentence():
    undocumented = [p for p in FILES if p.read_text().strip() and not ast.get_docstring(ast.parse(p.read_text()))]
    assert undocumented == []


def test_core_imports_no_simulator_and_no_torchvision():
    code = (
        "import sys, leplanner\n"
        "heavy = {'torch', 'stable_worldmodel', 'torchvision', 'mujoco', 'gymnasium', 'pygame'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "from leplanner import load_world, open_cache, open_episodes, get_task\n"
        "print(sorted((heavy - {'torch'}) & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["[]", "[]"]
