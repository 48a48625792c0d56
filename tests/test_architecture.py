"""The shape of the code: imports point one way, seams have one place, files stay small, the core stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import leplanner
from leplanner.cli.main import VERBS

PACKAGE = Path(leplanner.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ORDER = [  # each may import itself and what stands before
    *("core", "artifacts", "training", "execution", "tasks", "data", "worlds", "density", "planner", "zoo"),
    *("control", "baselines", "evaluation", "diagnostics", "report", "pipeline", "bench", "play", "cli"),
]
FAMILIES = sorted(path.name for path in (PACKAGE / "worlds").iterdir() if (path / "__init__.py").exists())


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            base = list(parts[: -node.level or None])
            module = ".".join([*(base if node.level else []), *([node.module] if node.module else [])])
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


def layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "leplanner" and len(parts) > 1 and parts[1] in ORDER else None


def short(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", [p for p in FILES if p.parent != PACKAGE], ids=short)
def test_imports_point_down_the_data_flow(path):
    own = ORDER.index(path.relative_to(PACKAGE).parts[0])
    above = {m for m in imported_modules(path) if (name := layer(m)) and ORDER.index(name) > own}
    assert not above, f"{path.name} imports {above} from a later stage"


def test_every_folder_has_its_place_in_the_order():
    folders = {p.relative_to(PACKAGE).parts[0] for p in FILES if p.parent != PACKAGE}
    assert folders == set(ORDER)


def test_only_families_import_families():
    """`worlds/__init__.py` registers each by one line, and one may be built from another's parts; nothing else names
    one."""
    assert FAMILIES
    for path in FILES:
        place = path.relative_to(PACKAGE).parts
        if place[0] == "worlds" and (place[1] == "__init__.py" or place[1] in FAMILIES):
            continue
        named = {m for m in imported_modules(path) for name in FAMILIES if m.startswith(f"leplanner.worlds.{name}")}
        assert not named, f"{short(path)} imports {named}"


def test_layers_above_the_worlds_ask_for_capabilities_not_for_classes():
    asked = re.compile(r"isinstance\([a-z_.]*(world|dynamics)[a-z_.]*, *[A-Z]")
    above = [p for p in FILES if p.relative_to(PACKAGE).parts[0] in ORDER[ORDER.index("density") :]]
    assert [short(p) for p in above if asked.search(p.read_text())] == []


def test_work_is_spread_by_executors_alone():
    users = [short(p) for p in FILES if {"multiprocessing", "concurrent.futures"} & imported_modules(p)]
    # the loop prefetches in a thread, and a person's session lives in one
    assert set(users) <= {"execution/processes.py", "training/loop.py", "play/player.py"}


def test_stable_worldmodel_has_one_seam():
    """Only swm_*.py name it, and others reach those only inside a function, when a simulator is really needed."""
    for path in FILES:
        if path.name.startswith("swm_"):
            continue
        text = path.read_text()
        assert "import_swm" not in text, path
        at_import = [node.module or "" for node in ast.parse(text).body if isinstance(node, ast.ImportFrom)]
        seams = [module for module in at_import if module.split(".")[-1].startswith("swm_")]
        assert not seams or short(path) == "bench/installation.py", path
        assert not any(module.startswith("stable_worldmodel") for module in imported_modules(path)), path


def test_verbs_parse_call_and_print():
    """The command line holds no logic: it is small, and nothing of it trains, rolls out or writes weights."""
    verbs = [p for p in FILES if p.relative_to(PACKAGE).parts[0] == "cli"]
    assert sum(len(p.read_text().splitlines()) for p in verbs) < 75 * len(VERBS)  # most of it help
    for path in verbs:
        assert not {m for m in imported_modules(path) if m.startswith("torch.nn")}, path
        assert "write_safetensors" not in path.read_text(), path


def test_files_stay_small_and_named_for_what_they_do():
    assert [p.name for p in FILES if len(p.read_text().splitlines()) > 400] == []
    assert [p.name for p in FILES if p.stem in ("utils", "common", "misc", "helpers")] == []


def test_every_file_opens_with_a_sentence():
    undocumented = [p for p in FILES if p.read_text().strip() and not ast.get_docstring(ast.parse(p.read_text()))]
    assert undocumented == []


def test_tests_mirror_the_package():
    here = Path(__file__).parent
    folders = {path.parent.name for path in here.rglob("test_*.py") if path.parent != here}
    assert folders <= set(ORDER)
    assert folders >= set(ORDER) - {"bench"}


def test_the_words_are_the_fields():
    """Private words of earlier versions stay away; see CONTRIBUTING."""
    gone = re.compile(
        r"\bfilms?\b|practis|\bastray\b|second attempts?|the data's way|off_the_way|rows_a_plan|way_weight|"
        r"(retry|deviate|far|pad|start|played)_share|leplanner-keep|behaviour|[a-z]ised\b|colour",
        re.IGNORECASE,
    )
    allowed = re.compile(r"(?i)\b(raised|advised|revised|supervised|promised|exercised|surprised|compromised|noised)\b")
    sources = [*FILES, *PACKAGE.rglob("*.j2"), *(PACKAGE / "zoo").glob("*/README.md")]
    used = {}
    for path in sources:
        words = {match.group() for match in gone.finditer(allowed.sub("", path.read_text(encoding="utf-8")))}
        if words:
            used[short(path)] = words
    assert used == {}


def test_core_imports_no_simulator_and_no_torchvision():
    code = (
        "import sys, leplanner\n"
        "heavy = {'torch', 'stable_worldmodel', 'torchvision', 'mujoco', 'gymnasium', 'pygame'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "import leplanner as lp\n"
        "planner = lp.load('tworoom', engine='eager')\n"
        "lp.get_task('tworoom'), lp.open_cache, lp.open_episodes, lp.Solver(planner)\n"
        "print(sorted((heavy - {'torch'}) & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["[]", "[]"]
