"""The results in the README are those that lie with the shipped bundles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leplanner.artifacts import read_json
from leplanner.tasks import TASKS
from leplanner.zoo import shipped

README = (Path(__file__).parents[2] / "README.md").read_text()
COLUMNS = [("leplanner-reuse", 1, "any"), ("leplanner-reuse", 1, "held"), ("leplanner-reuse", 5, "any")]
COLUMNS += [("gcidm", 0, "any"), ("random", 1, "any")]


@pytest.mark.parametrize("name", shipped())
def test_a_row_of_the_table_is_what_was_measured(name):
    (row,) = re.findall(rf"^\| {TASKS[name].title} \| (.*) \|$", README, re.MULTILINE)
    measured = read_json(shipped()[name] / "evaluation.json")["methods"]
    rates = {(method["method"], method["replan"]): method["rates"] for method in measured}
    cells = [rates[method, replan][metric] for method, replan, metric in COLUMNS]
    for shown, rate in zip(row.split(" | "), cells, strict=True):
        value, low, high = map(float, re.fullmatch(r"([\d.]+) \((\d+)-(\d+)\)", shown).groups())
        assert value == pytest.approx(100 * rate["value"], abs=0.05)
        assert (low, high) == (round(100 * rate["low"]), round(100 * rate["high"]))


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150
