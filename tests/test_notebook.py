"""The notebook runs from top to bottom, and what it keeps as its output is what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "quickstart.ipynb"


def test_the_notebook_runs_and_reaches_its_goal(monkeypatch, capsys):
    mpl.use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    drawn = []
    monkeypatch.setattr(plt, "show", lambda: (drawn.append(len(plt.gcf().axes)), plt.close("all")))
    names: dict = {}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        exec("".join(cell["source"]), names)
    assert names["reached"]
    assert drawn == [2, 8, 1]
    assert "25 predictor transitions each" in capsys.readouterr().out
    assert len(names["trace"].plans) == 4
    assert names["trace"].final.distances[0, -1] < names["trace"].plans[0].distances[0, -1]  # refining helped
    assert all(cell["outputs"] for cell in cells)  # readers on the web see the pictures
