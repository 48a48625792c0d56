"""The documentation: its Python runs, its commands parse, its figures are current, its pages build."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import own_families
import pytest
import tyro

import leplanner as lp
from leplanner.cli.main import main
from leplanner.control.loaded import load
from leplanner.core.registry import Registry
from leplanner.evaluation.metrics import METRICS
from leplanner.execution.executor import EXECUTORS
from leplanner.planner.export import export_onnx
from leplanner.tasks import TASKS
from leplanner.training.loggers import LOGGERS
from leplanner.worlds import FAMILIES
from leplanner.zoo import shipped

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
HISTORY = ("experiments.md", "decisions")  # what was run when it was written, with the options of that time
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in one language, as a reader sees them: included files are included."""
    text = re.sub(r'^( *)--8<-- "(.+)"$', _included, page.read_text(), flags=re.MULTILINE)
    return [textwrap.dedent(found["body"]) for found in FENCE.finditer(text) if found["info"] == language]


def _included(match: re.Match[str]) -> str:
    return textwrap.indent((ROOT / match[2]).read_text(), match[1])


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory, tworoom_file):
    """What a reader has who ran the pages' commands: a bundle, data, and exported files."""
    folder = tmp_path_factory.mktemp("reader")
    runs = folder / "runs" / "tworoom"
    shutil.copytree(shipped()["tworoom"], runs / "bundle")
    shutil.copy(tworoom_file, runs / "data.h5")
    (runs / "planner").mkdir()
    (runs / "planner" / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 0.5}) + "\n")
    export_onnx(load("tworoom", engine="eager"), folder / "onnx")
    return folder


@pytest.fixture
def forgets(monkeypatch):
    """What a page registers is unknown to other tests."""
    registries: tuple[Registry[Any], ...] = (TASKS, FAMILIES, METRICS, LOGGERS, EXECUTORS)
    for registry in registries:
        registry.names()  # complete
        monkeypatch.setattr(registry, "_items", dict(registry._items))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_the_python_of_a_page_runs(page, readers_folder, forgets, monkeypatch, capsys):
    """Block after block, in one namespace. A block ```python no-run needs what tests have not."""
    monkeypatch.chdir(readers_folder)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(sys, "argv", ["example", "onnx"])  # for the loop that reads exported files
    names: dict[str, Any] = {"__name__": "page"}
    for number, code in enumerate(blocks(page, "python"), start=1):
        exec(compile(code, f"{name_of(page)}, block {number}", "exec", dont_inherit=True), names)


def test_blocks_that_are_not_run_are_few():
    unrun = {page.name: len(blocks(page, "python no-run")) for page in PAGES if blocks(page, "python no-run")}
    assert unrun == {"hub.md": 2, "install.md": 1, "play.md": 1}  # a hub, a GPU, a server that waits


def test_a_world_of_ones_own_is_planned_in():
    state, goal = runpy.run_path(str(ROOT / "examples" / "own_world.py"))["main"](steps=150)
    assert np.linalg.norm(state[:2] - goal[:2]) < 0.1


def test_the_quickstart_reaches_its_goal(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "quickstart.py"))
    assert np.linalg.norm(example["room"].state() - [170.0, 60.0]) < 16


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file(page):
    for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        assert link.startswith(("http://", "https://")) or (page.parent / link).exists(), link


def commands(page: Path) -> list[str]:
    """Every `leplanner` command of a page, after the program's name: lines of shell blocks, and inline code with
    options. Names in capitals stand for what a reader fills in."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    inline = [code for code in re.findall(r"`(leplanner [^`]+)`", FENCE.sub("", page.read_text())) if " --" in code]
    found = [line.split("#")[0].split(">")[0].strip() for line in [*lines, *inline]]
    found = [line.removeprefix("leplanner ") for line in found if re.match(r"leplanner [a-z]", line)]
    return [line.replace("TASK", "tworoom") for line in found if "VERB" not in line and ":tworoom" not in line]


class Parsed(BaseException):
    """A command's options were read; it would run now."""


@pytest.fixture
def only_parses(monkeypatch, forgets_registrations):
    """`main` stops after reading a command's options. There is the package that pages call a reader's own."""
    monkeypatch.setitem(sys.modules, "my_package", ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, "my_package.worlds", own_families)
    read = tyro.cli

    def cli(verb: Any, *args: Any, **options: Any) -> None:
        read(verb, *args, **options)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", cli)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if commands(page) and not set(HISTORY) & set(page.parts)], ids=name_of
)
def test_the_commands_of_a_page_parse(page, only_parses, capsys):
    for command in commands(page):
        try:
            main(shlex.split(command))
        except Parsed:
            continue
        except SystemExit:
            pass
        pytest.fail(f"leplanner {command}\n{capsys.readouterr().err}")


@pytest.mark.parametrize(
    "command", ["evaluate tworoom --films 3", "zoo --verbose", "train tworoom --steps many", "fly"]
)
def test_a_command_that_does_not_exist_is_noticed(command, only_parses, capsys):
    with contextlib.suppress(SystemExit):
        assert main(shlex.split(command)) != 0


def test_the_api_pages_have_every_export():
    text = "\n".join(page.read_text() for page in (DOCS / "reference" / "api").glob("*.md"))
    missing = [name for name in lp.__all__ if not re.search(rf"^::: lp\.{name}$", text, re.MULTILINE)]
    assert missing == ["TASKS"]  # a registry, described in a sentence
    assert "`lp.TASKS` holds" in text


def test_the_command_line_page_has_every_option(capsys):
    hooks = runpy.run_path(str(DOCS / "page_hooks.py"))
    page = hooks["on_page_markdown"]((DOCS / "reference" / "cli.md").read_text())
    assert "│" not in page
    assert "``\n" not in page.replace("```\n", "")  # an option without a name
    assert {"demo", "train", "world train", "bench plan"} <= set(hooks["verbs"]())
    for verb in hooks["verbs"]():
        section = page.split(f"\n## {verb} {{")[1].split("\n## ")[0]
        shown = set(re.findall(r"^ *`(--[\w.-]+)", section, re.MULTILINE))
        with pytest.raises(SystemExit):
            main([*verb.split(), "--help"])
        listed = set(re.findall(r"^(?:│ |  )(--[a-z][\w.-]*)", capsys.readouterr().out, re.MULTILINE))
        assert listed, verb
        assert shown == listed, verb


@pytest.mark.parametrize("script", ["make_figures.py", "make_result_figures.py"])
def test_the_figures_are_what_their_script_draws(script, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    for drawn in runpy.run_path(str(DOCS / script))["draw_all"](tmp_path):
        assert drawn.read_text() == (DOCS / "images" / drawn.name).read_text(), f"run python docs/{script}"


def test_the_pages_build_strictly(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "reference" / "api" / "worlds" / "index.html").read_text()
    assert [
        name for name in ("lp.Dynamics", "lp.LatentSpec", "lp.WorldFamily", "encoder_parts") if name not in page
    ] == []
    for built in tmp_path.rglob("*.html"):
        outside = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', built.read_text())
        assert not [link for link in outside if "leplanner" not in link], built
