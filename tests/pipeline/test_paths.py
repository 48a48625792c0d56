"""Where artifacts are is said once, by `RunPaths`."""

from __future__ import annotations

import ast
from pathlib import Path

import leplanner
from leplanner.pipeline.paths import RunPaths
from leplanner.tasks import TASKS

PACKAGE = Path(leplanner.__file__).parent


def strings_of_code(tree: ast.AST) -> list[str]:
    """String literals that code uses: not those that stand alone, which are documentation."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in alone]
    return [node.value for node in constants if isinstance(node.value, str)]


def test_only_run_paths_says_where_runs_are():
    files = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any(text == "runs" or text.startswith("runs/") for text in strings_of_code(ast.parse(path.read_text())))
    }
    assert files == {"pipeline/paths.py"}


def test_every_artifact_lies_below_one_folder():
    task = TASKS["pusht"]
    assert RunPaths.of(task).base == Path("runs", "pusht")
    paths = RunPaths.of(task, Path("elsewhere"))
    values = {name: getattr(paths, name) for name, kind in vars(RunPaths).items() if isinstance(kind, property)}
    assert all(path.parent == Path("elsewhere") for path in values.values())
    distinct = {name: path for name, path in values.items() if name not in ("latest_world", "trials_data")}
    assert len(set(distinct.values())) == len(distinct)
    assert paths.round(1).planner == Path("elsewhere", "round-1", "planner")
    assert paths.evaluation("heldout", 15, 3) == Path("elsewhere", "evaluation", "heldout-15-3")


def test_the_latest_world_is_the_finetuned_one_once_it_is_whole(tmp_path):
    paths = RunPaths(tmp_path)
    paths.finetuned.mkdir()
    assert paths.latest_world == paths.world
    (paths.finetuned / "config.json").touch()
    assert paths.latest_world == paths.finetuned
