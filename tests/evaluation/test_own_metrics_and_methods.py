"""Metrics and methods that only these tests know are measured and shown by themselves; one
evaluation at a time in a folder."""

from __future__ import annotations

import re

import numpy as np
import pytest

from leplanner.artifacts import folder_lock, read_json
from leplanner.baselines.simple import NoOp
from leplanner.cli.main import main
from leplanner.control.methods import METHODS, Method
from leplanner.evaluation.manifest import draw_manifest, save_manifest
from leplanner.evaluation.metrics import METRICS, Metric
from leplanner.evaluation.runner import EvaluationConfig, evaluate, read_rows
from leplanner.evaluation.summary import summarize
from leplanner.pipeline import evaluating
from leplanner.planner.planner import save_bundle
from leplanner.report.card import Making, model_card
from leplanner.report.page import write_page
from leplanner.report.tables import read_evaluation
from leplanner.tasks import TASKS

TWOROOM = TASKS["tworoom"]


@pytest.fixture(scope="module")
def bundle(tiny_planner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    metrics = {"held_out_arrival": [0.5, 0.25], "held_out_start": 1.0}
    save_bundle(tiny_planner, folder, {"config": {}, "metrics": metrics})
    return folder


@pytest.fixture
def folder(tworoom, tmp_path):
    """Of an evaluation that has its trials and no row yet."""
    manifest = draw_manifest(TWOROOM, tworoom, 2, seed=42, block=5, context=3, simulator=TWOROOM.simulate)
    save_manifest(manifest, tmp_path / "manifest.json")
    return tmp_path


@pytest.fixture
def left_start():
    """Whether the agent is elsewhere at the end; undefined where it never moved."""

    def compute(task, states, goal):
        moved = np.abs(states - states[0]).max() > 0
        return bool(np.abs(states[-1] - states[0]).max() > 1e-9) if moved else None

    metric = METRICS.register(Metric("left_start", "left its start", "rate", compute))
    yield metric
    METRICS._items.pop(metric.name)


@pytest.fixture
def path_length():
    metric = METRICS.register(
        Metric("path", "path length", "value", lambda task, states, goal: float(np.abs(np.diff(states, axis=0)).sum()))
    )
    yield metric
    METRICS._items.pop(metric.name)


class Diagonal(NoOp):
    """Always in one direction."""

    name = "diagonal"

    def decide(self, request):
        return super().decide(request) + 0.5


@pytest.fixture
def diagonal():
    def make(inputs):
        policy = Diagonal(inputs.planner.model.actions)
        return lambda trial: policy

    method = METHODS.register(Method("diagonal", "Along the diagonal", "floor", make, replan=1))
    yield method
    METHODS._items.pop(method.name)


def command(bundle, folder, methods: str) -> list[str]:
    words = ["evaluate", "tworoom", "--bundle", str(bundle), "--methods", methods, "--replan", "1"]
    return [*words, "--trials", "2", "--out", str(folder)]


def page_table(page: str) -> list[list[str]]:
    """Cells of an evaluation's table on a page, the head first."""
    table = re.search(r"<table>\s*<thead><tr><th>method</th>.*?</table>", page, re.S)[0]
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", table, re.S)]


def test_a_metric_appears_in_rows_summary_table_card_and_page(
    bundle, folder, in_process, left_start, path_length, capsys
):
    assert main(command(bundle, folder, "replay,random")) == 0
    table = capsys.readouterr().out
    assert left_start.title in table
    rows = read_rows(folder / "rows.jsonl")
    assert [row.outcome["left_start"] for row in rows] == [True] * 4
    assert all(row.outcome["path"] > 0 for row in rows)
    summary = read_json(folder / "summary.json")
    assert [(m["rates"]["left_start"]["value"], m["rates"]["left_start"]["trials"]) for m in summary["methods"]] == [
        (1.0, 2)
    ] * 2
    lengths = [np.median([row.outcome["path"] for row in rows if row.method == name]) for name in ("replay", "random")]
    assert [m["values"]["path"] for m in summary["methods"]] == lengths
    card = model_card(bundle, folder, Making("", "tiny", "best", "lewm", folder / "data.h5", {}))
    page = write_page([folder], folder / "page.html").read_text()
    header, *cells = [line.strip("| ").split(" | ") for line in re.findall(r"^\| .* \|$", card, re.M)][:3]
    assert [row[header.index(left_start.title)] for row in cells] == ["100.0 (34-100)"] * 2
    heads, *cells = page_table(page)
    assert [row[heads.index(left_start.title)] for row in cells] == ["100.0 (34-100)"] * 2


def test_a_metric_that_some_methods_do_not_have_is_left_blank_for_them(bundle, folder, in_process, left_start, capsys):
    assert main(command(bundle, folder, "replay,no-op")) == 0
    table = capsys.readouterr().out
    assert left_start.title in table
    replay, no_op = read_json(folder / "summary.json")["methods"]
    assert "left_start" in replay["rates"]
    assert "left_start" not in no_op["rates"]  # it never moved
    assert main(command(bundle, folder, "no-op,replay")) == 0  # whichever comes first
    assert left_start.title in capsys.readouterr().out
    heads, *cells = page_table(write_page([folder], folder / "page.html").read_text())
    column = heads.index(left_start.title)
    assert {row[0]: row[column] for row in cells} == {"no-op": "", "replay of the data": "100.0 (34-100)"}


def test_a_method_runs_and_is_shown_by_its_title(bundle, folder, in_process, diagonal, capsys):
    assert main(command(bundle, folder, "diagonal,no-op")) == 0
    assert "diagonal" in capsys.readouterr().out
    rows = read_rows(folder / "rows.jsonl")
    assert [(row.method, row.replan, row.error) for row in rows[:2]] == [("diagonal", 1, None)] * 2
    assert [s.method for s in summarize(rows, "no-op")] == ["diagonal", "no-op"]
    assert [row.title for row in read_evaluation(folder).methods] == ["Along the diagonal", "no-op"]
    assert "<td>Along the diagonal</td>" in write_page([folder], folder / "page.html").read_text()


def test_a_second_evaluation_to_the_same_folder_is_refused_and_the_first_is_whole(bundle, folder, in_process, capsys):
    """The second comes while the first has one of its rows."""
    refused = []

    class Interrupted(type(in_process)):
        def run(self, work, jobs):
            for number, row in enumerate(super().run(work, jobs)):
                yield row
                if number == 0:
                    refused.append(main(command(bundle, folder, "replay,no-op")))
                    refused.append(capsys.readouterr().err)

    config = EvaluationConfig(("replay", "no-op"), (1,))
    rows = evaluate(bundle, folder / "manifest.json", config, folder / "rows.jsonl", executor=Interrupted())
    code, answer = refused
    assert code == 1
    assert f"is writing to {folder}" in answer
    assert [(row.method, row.trial) for row in rows] == [("replay", 0), ("replay", 1), ("no-op", 0), ("no-op", 1)]
    assert sorted(map(str, read_rows(folder / "rows.jsonl"))) == sorted(map(str, rows))
    with folder_lock(folder):
        pass  # free again


def test_trials_that_another_process_froze_meanwhile_are_not_replaced(
    bundle, folder, tworoom, tworoom_file, in_process, capsys, monkeypatch
):
    """A second command with another seed began before the first had drawn its trials."""
    first = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").unlink()
    drawn = evaluating.new_manifest

    def slowly(*arguments):
        manifest = drawn(*arguments)
        (folder / "manifest.json").write_bytes(first)
        return manifest

    monkeypatch.setattr(evaluating, "new_manifest", slowly)
    words = [*command(bundle, folder, "no-op"), "--data", str(tworoom_file), "--seed", "7"]
    assert main(words) == 1
    assert "Choose another --out" in capsys.readouterr().err
    assert (folder / "manifest.json").read_bytes() == first
    (folder / "manifest.json").unlink()
    monkeypatch.setattr(evaluating, "new_manifest", drawn)
    with folder_lock(folder):  # the first one runs
        assert main(words) == 1
    assert f"is writing to {folder}" in capsys.readouterr().err
    assert not (folder / "manifest.json").exists()
