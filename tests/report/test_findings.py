"""Sentences say what the tables say, whoever won."""

from __future__ import annotations

import copy
import json
import shutil

import pytest

from leplanner.artifacts import read_json
from leplanner.report.findings import card, comparisons, count_or_rate, headline, show_p, times
from leplanner.report.tables import read_evaluation
from leplanner.zoo import shipped


@pytest.fixture
def read(tmp_path):
    """The shipped evaluation of a task, changed."""

    def read(task, change=lambda summary: None):
        folder = tmp_path / f"{task}{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        summary = copy.deepcopy(read_json(shipped()[task] / "evaluation.json"))
        change(summary)
        (folder / "summary.json").write_text(json.dumps(summary))
        shutil.copyfile(shipped()[task] / "manifest.json", folder / "manifest.json")
        return read_evaluation(folder)

    return read


def only(*names):
    def change(summary):
        summary["methods"] = [m for m in summary["methods"] if m["method"] in names and m["replan"] <= 1]

    return change


def reached(method, count, trials):
    """That one row has these numbers, beside ours and CEM."""

    def change(summary):
        only("leplanner-reuse", "cem")(summary)
        for row in summary["methods"]:
            if row["method"] == method:
                row["rates"]["any"] |= {"successes": count, "trials": trials, "value": count / trials}
                row["trials"] = trials

    return change


def test_few_trials_are_counted_and_many_have_an_interval():
    assert count_or_rate({"successes": 4, "trials": 4, "value": 1.0, "low": 0.4, "high": 1.0}) == "4 of 4"
    assert count_or_rate({"successes": 42, "trials": 50, "value": 0.84, "low": 0.715, "high": 0.917}) == "84 % (72-92)"


def test_the_headline_says_who_reached_more(read):
    won = read("reacher", only("leplanner-reuse", "cem"))
    assert headline([won]) == [
        "On Reacher, LePlanner reached 200 of 200 goals (100 %); CEM, with 1,800 times the compute per decision, "
        "reached 27 of 50 (54 %)."
    ]
    lost = read("reacher", reached("leplanner-reuse", 3, 50))
    assert headline([lost])[0].endswith("did better and reached 27 (54 %).")
    even = read("reacher", reached("leplanner-reuse", 27, 50))
    assert headline([even])[0].endswith("reached as many.")


def test_the_headline_adds_tasks_up_and_keeps_apart_who_ran_on_some(read):
    both = [read("reacher", only("leplanner-reuse", "cem", "gcidm")), read("pusht", only("leplanner-reuse", "gcidm"))]
    first, second = headline(both)
    assert first == "On 2 tasks, LePlanner reached 392 of 400 goals (98 %); GC-IDM reached 199 (49.8 %)."
    assert second.startswith("On Reacher, CEM, with 1,800 times the compute per decision, reached 27 of 50 (54 %); ")


def test_the_headline_without_us_and_without_rows(read):
    others = read("pusht", only("replay", "random", "no-op"))
    assert headline([others]) == [
        "On PushT, replay of the data reached 200 of 200 goals (100 %), more than any other method here."
    ]
    assert headline([read("pusht", only("no-op"))]) == ["On PushT, no-op reached 0 of 200 goals (0 %)."]
    assert card(others) is None
    assert headline([]) == ["Planners and their world models."]


def test_a_card_takes_the_strongest_search_at_its_best_pace(read):
    rows = card(read("reacher")).rows
    assert [(row.method, row.replan) for row in rows] == [("leplanner-reuse", 1), ("cem", 5), ("gcidm", 0)]
    assert card(read("reacher")).speed == "A decision is 410 times faster than with CEM 300 x 30."
    alone = card(read("reacher", only("leplanner-reuse")))
    assert (len(alone.rows), alone.speed) == (1, "")


def test_comparisons_count_the_trials_that_both_ran(read):
    texts = [one.text for one in comparisons(read("reacher")) if not one.minor]
    assert "LePlanner-reuse (m = 1) reached 50 of 50 where CEM 300 x 30 (m = 1) reached 27; p < 1e-6." in texts
    assert "LePlanner-reuse (m = 1) and LePlanner (m = 1) reached the same 200 of 200." in texts
    assert (
        "LePlanner-reuse (m = 5) reached 48 of 50 where CEM 300 x 30 (m = 5) reached 42; "
        "p = 0.07, so it may be chance." in texts
    )


def test_we_come_first_when_another_method_is_the_reference(read):
    def swap(summary):
        only("leplanner-reuse", "cem")(summary)
        ours, cem = summary["methods"]
        d = cem["differences"].pop("1")
        turned = {"only_this": d["only_reference"], "only_reference": d["only_this"], "difference": -d["difference"]}
        ours["differences"] = {"1": d | turned | {"low": -d["high"], "high": -d["low"]}}
        summary["reference"] = "cem"

    ours_first, cem_first = (comparisons(read("reacher", change)) for change in (only("leplanner-reuse", "cem"), swap))
    assert ours_first == cem_first
    assert ours_first[0].difference.startswith("+46.0 (+")


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "p = 0.25"), (0.0703, "p = 0.07"), (2.4e-7, "p < 1e-6"), (0.0, "p < 1e-300")]
)
def test_small_p_are_bounds(value, text):
    assert show_p(value) == text


def test_ratios_have_two_digits():
    assert [times(ratio) for ratio in (1836.7, 18.4, 2.49, 7.8)] == ["1,800", "18", "2.5", "7.8"]
