"""`leplanner reproduce`: what the paper prints is quoted right, and every part runs, resumes and is shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from leplanner.artifacts import read_json
from leplanner.cli import options
from leplanner.cli.main import main
from leplanner.core.actions import ActionSpec
from leplanner.evaluation import runner
from leplanner.execution.inline import Inline
from leplanner.pipeline import ablations
from leplanner.pipeline.reproduction import PARTS, claim, run
from leplanner.pipeline.reproduction.mechanism import settling
from leplanner.pipeline.reproduction.paper import ARRIVES, DEFERS, PRINTED, printed
from leplanner.pipeline.reproduction.part import beside
from leplanner.planner.objectives import arrival_and_hold, fixed_terminal
from leplanner.worlds import World, WorldSpec
from leplanner.worlds.lewm.encoders import ViTConfig
from leplanner.worlds.lewm.family import FAMILY
from leplanner.worlds.lewm.model import LeWMConfig

TINY = ["--scale", "tiny", "--effort", "0.05", "--trials", "2", "--search-trials", "1", "--samples", "20"]
TINY += ["--rounds", "1", "--seeds", "0", "--draws", "43..44", "--draw-trials", "1", "--timed-trials", "1"]


# the paper's own numbers


def values(part: str, task: str) -> dict[str, str]:
    return {one.what: one.value for one in printed(part, task)}


def test_the_printed_fixed_points_follow_from_the_printed_fits():
    loop = values("loop", "pusht")
    for name in ("fixed-terminal path", "arrival-hold"):
        c, b, settled = (float(loop[f"{name}: {what}"]) for what in ("c", "b", "D*"))
        assert b / (1 - c) == pytest.approx(settled, abs=6e-4)
        assert settling(0.491, c, b)[0] == 0.491  # where the paper's curves start
        assert settling(0.491, c, b)[-1] == pytest.approx(settled, rel=0.03)


def test_the_printed_indifference_is_that_of_our_losses():
    due = torch.ones(1, dtype=torch.long)
    old = [fixed_terminal(torch.tensor([profile])).item() for profile in (DEFERS, ARRIVES)]
    new = [arrival_and_hold(torch.tensor([profile]), due).item() for profile in (DEFERS, ARRIVES)]
    assert old == pytest.approx([0.0140, 0.0140], abs=1e-6)
    assert new == pytest.approx([0.1056, 0.0221], abs=5e-5)  # as printed
    assert new[0] / new[1] == pytest.approx(4.8, abs=0.05)


def test_the_printed_goals_are_those_of_uniform_offsets_that_episodes_cut_short():
    shares = [float(values("inputs", "pusht")[f"q = {q}"].rstrip("%")) for q in range(1, 6)]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert shares == sorted(shares, reverse=True)


def test_what_was_not_measured_is_said():
    rows = {row["what"]: row for row in beside("draws", "pusht", {"LePlanner, m = 1: range": "1 to 2%", "ours": "3"})}
    assert rows["LePlanner, m = 1: range"]["paper"] == "88 to 100%"
    assert rows["LePlanner, m = 5: range"]["here"] == "not measured"
    assert (rows["ours"]["paper"], rows["ours"]["here"]) == ("", "3")


def test_every_printed_variant_is_trained():
    measured = {row.partition(",")[0] for row in values("claim", "pusht")}
    assert measured <= {*ablations.VARIANTS, "random", "cem"}


def test_every_printed_value_belongs_to_a_part():
    assert {part for part, _ in PRINTED} <= set(PARTS.names())


# the command


@pytest.fixture(scope="module", autouse=True)
def in_process():
    """Starting processes would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "make_executor", lambda workers: Inline())
        patch.setattr(runner, "_worker", worker := {})
        yield
        if worker:
            worker["sim"].close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    base = tmp_path_factory.mktemp("reproduction")
    words = ["reproduce", "tworoom", *TINY, "--base", str(base)]
    assert main(words) == 0
    return base, words


def test_every_part_that_applies_is_made_and_shown(made):
    base, _ = made
    contents = read_json(base / "reproduction" / "reproduction.json")
    assert contents["parts"] == [name for name in PARTS if name not in ("claim", "symptom")]  # those are of PushT
    page = (base / "reproduction" / "report.html").read_text()
    for name in contents["parts"]:
        facts = read_json(base / "reproduction" / f"{name}.json")
        assert facts["title"] in page
        for row in facts["beside"]:
            assert row["here"] != "not measured" or row["what"].startswith("LePlanner, m = "), (name, row)
            assert row["here"] in page
    assert "trials from test episodes" in page
    scoreboard = read_json(base / "reproduction" / "scoreboard" / "summary.json")
    manifest = read_json(base / "reproduction" / "ablation" / "manifest.json")
    assert len(manifest["trials"]) == 2
    methods = {row["method"] for row in scoreboard["methods"]}
    assert methods >= {"leplanner", "cem", "icem", "mppi", "gradient", "gcbc", "gcidm", "gcivl", "gciql", "random"}


def test_steps_count_the_first_success(made):
    base, _ = made
    facts = read_json(base / "reproduction" / "success.json")
    rows = [json.loads(line) for line in (base / "reproduction" / "scoreboard" / "rows.jsonl").read_text().splitlines()]
    replays = [row for row in rows if row["method"] == "replay"]
    (steps,) = [one["data"] for one in facts["drawings"] if one["kind"] == "steps"]
    (curve,) = [curve for label, curve in steps["curves"].items() if label.startswith("replay")]
    first = sorted(row["outcome"]["first_success"] for row in replays)
    assert len(curve) == steps["budget"] == 50
    assert [int(np.argmax(np.array(curve) >= share)) + 1 for share in (0.5, 1.0)] == first


def test_what_is_made_is_not_made_again(made, monkeypatch, capsys):
    _, words = made
    monkeypatch.setattr(ablations, "_make", lambda *job: pytest.fail("trained again"))
    monkeypatch.setattr(run, "write_json", lambda file, facts: file.name == "reproduction.json" or pytest.fail("made"))
    assert main([*words, "--part", "arrival,success", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["parts"]) == {"arrival", "success"}


def test_bad_requests_are_refused_before_anything_is_made(tmp_path, capsys):
    base = ["--base", str(tmp_path / "none")]
    for words, message in (
        (["tworoom", "--part", "claim"], "The paper has no claim for tworoom"),
        (["pusht", "--part", "clam"], "Did you mean 'claim'?"),
        (["pusht", "--world", "someone/else"], "needs the dataset it was trained on"),
        (["pusht", "--trials", "0"], "--trials must be at least 1"),
        (["pusht", "--trials", "2"], "--timed-trials must be below --trials"),
        (["pusht", "--seeds", "0,0"], "--seeds takes different numbers"),
        (["pusht", "--samples", "5"], "at least 20 samples"),
        (["pusht", "--draws", "53..43"], "the first not after the last"),
    ):
        assert main(["reproduce", *words, *base]) == 1
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "none").exists()


def test_pusht_through_a_released_world(tmp_path, monkeypatch):
    """The parts that only PushT has, on a checkpoint in the hub's format and a dataset that is given."""
    monkeypatch.setattr(claim, "OTHERS", ("no support", "K=0"))  # all would take minutes
    shape = LeWMConfig(encoder=ViTConfig(32, 16, 192, 12, 3), depth=1, heads=2, head_dim=16, mlp=64, projector=32)
    assert main(["collect", "pusht", "--scale", "tiny", "--episodes", "24", "--out", str(tmp_path / "data.h5")]) == 0
    actions = ActionSpec((0.0, 0.0), (1.0, 1.0), (-1.0, -1.0), (1.0, 1.0), block=5)
    world = World.build(WorldSpec("lewm", "pusht", shape, actions))
    FAMILY.export_release(world, tmp_path / "release")
    words = ["reproduce", "pusht", *TINY, "--part", "claim,symptom", "--base", str(tmp_path / "run")]
    words += ["--world", str(tmp_path / "release"), "--data", str(tmp_path / "data.h5")]
    assert main(words) == 0
    facts = read_json(tmp_path / "run" / "reproduction" / "claim.json")
    (table,) = facts["sheets"]
    assert [row[0] for row in table["rows"]] == [*claim.MAIN, "no support", "K=0"]
    assert [row["here"] for row in facts["beside"] if row["what"] == "cem, m = 5"] != ["not measured"]
    page = (tmp_path / "run" / "reproduction" / "report.html").read_text()
    assert f"imported from {tmp_path / 'release'}" in page
    assert "trials from held-out episodes" in page
