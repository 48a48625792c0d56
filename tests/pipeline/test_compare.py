"""`leplanner compare`: families on the same data, trials and budgets, resumable, in one table and one figure."""

from __future__ import annotations

import html
import json
import shutil
from dataclasses import replace

import numpy as np
import own_families
import pytest
import torch

from leplanner.artifacts import read_json, read_lines
from leplanner.cli import options
from leplanner.cli.main import main
from leplanner.control.methods import DEFAULT, METHODS, MethodInputs, SearchBudget
from leplanner.core.config import changed
from leplanner.evaluation import runner
from leplanner.evaluation.latency import measure_side_by_side
from leplanner.evaluation.manifest import load_manifest
from leplanner.evaluation.runner import TrialRow
from leplanner.pipeline import comparing, stages
from leplanner.pipeline.comparing import CompareOptions, _differences, _groups, find_rivals
from leplanner.pipeline.paths import RunPaths
from leplanner.pipeline.presets import get_preset
from leplanner.pipeline.stage import silent
from leplanner.planner.model import PlannerConfig
from leplanner.planner.planner import Planner, planner_for
from leplanner.report.comparison import comparison_tables
from leplanner.report.page import write_page
from leplanner.tasks import TASKS
from leplanner.training import loop
from leplanner.training.runtime import Runtime
from leplanner.worlds import World, register_world
from leplanner.worlds.dino_wm import dinov2
from leplanner.worlds.pretraining import training_minutes

FAMILIES = {"lewm": "lewm", "linear": "own_families:LINEAR"}
TRIALS, SEARCH_TRIALS, SAMPLES, ROUNDS = 3, 2, 20, 1
HORIZON, REFINEMENTS = 5, 3


def short_preset(*choice):
    """A tiny preset, trained for as long as a test can wait."""
    preset = get_preset(*choice)
    few = {"steps": 4, "validate_every": 2, "batch": 16}
    parts = {name: changed(getattr(preset, name), **few) for name in ("world", "finetune", "density", "training")}
    return replace(preset, **parts, planner=PlannerConfig(width=16, depth=1, heads=2, dropout=0.0))


class Here:
    """An executor that starts no process: importing everything again would take longer than the trials."""

    concurrency = 1

    def run(self, work, jobs):
        return map(work, jobs)


@pytest.fixture(scope="module")
def cheap():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparing, "get_preset", short_preset)
        patch.setattr(options, "make_executor", lambda workers: Here())
        yield
    runner._worker.clear()


@pytest.fixture(scope="module")
def compared(tworoom_file, tmp_path_factory, cheap, forgets_registrations):
    """A comparison that was interrupted in its second family, and run again: where, its words, and what each call
    trained."""
    base = tmp_path_factory.mktemp("compare")
    words = ["compare", "tworoom", "--scale", "tiny", "--families", ",".join(FAMILIES.values())]
    words += ["--base", str(base), "--data", str(tworoom_file), "--trials", str(TRIALS)]
    words += ["--search-trials", str(SEARCH_TRIALS), "--samples", str(SAMPLES), "--rounds", str(ROUNDS)]
    words += ["--effort", "0.5"]
    trained: list[list[str]] = []
    train, finetune = loop._run, stages.finetune

    def recorded(state, last, checkpoint, *rest):
        trained[-1].append(str(checkpoint.parent.relative_to(base / "families")))
        return train(state, last, checkpoint, *rest)

    def interrupted(task, world, *rest):
        if "linear" in str(world):
            raise KeyboardInterrupt
        return finetune(task, world, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_run", recorded)
        patch.setattr(stages, "finetune", interrupted)
        trained.append([])
        assert main(words) == 130
        patch.setattr(stages, "finetune", finetune)
        trained.append([])
        assert main(words) == 0
    return base, words, trained


def rows_of(base, family):
    return [TrialRow(**line) for line in read_lines(base / "comparison" / family / "rows.jsonl")]


def test_what_was_finished_is_not_trained_again(compared):
    _, _, (first, again) = compared
    assert first == ["lewm/world", "lewm/finetuned", "lewm/density", "lewm/planner", "linear/world"]
    assert again == ["linear/finetuned", "linear/density", "linear/planner"]


def test_a_finished_comparison_only_takes_the_time_again(compared, monkeypatch, capsys):
    base, words, _ = compared
    before = read_json(base / "comparison" / "comparison.json")
    rows = {family: (base / "comparison" / family / "rows.jsonl").read_text() for family in FAMILIES}
    monkeypatch.setattr(loop, "_run", None)
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["families"] == before["families"]
    for family, text in rows.items():
        assert (base / "comparison" / family / "rows.jsonl").read_text() == text


def test_every_family_runs_the_same_trials_and_searches_the_first_of_them(compared):
    base, _, _ = compared
    shared = load_manifest(base / "comparison" / "manifest.json")
    assert all(not trial.history_states for trial in shared.trials)  # nothing of it depends on a world
    for family in FAMILIES:
        folder = base / "comparison" / family
        assert load_manifest(folder / "manifest.json").digest == shared.digest
        rows = rows_of(base, family)
        assert {row.manifest for row in rows} == {shared.digest}
        for m in (1, HORIZON):
            ran = {name: [r.trial for r in rows if (r.method, r.replan) == (name, m)] for name in (DEFAULT, "cem")}
            assert ran == {DEFAULT: list(range(TRIALS)), "cem": list(range(SEARCH_TRIALS))}


def test_the_tables_hold_every_family_and_both_planners(compared, capsys):
    base, _, _ = compared
    report = read_json(base / "comparison" / "comparison.json")
    worlds, success, paired, cost = comparison_tables(report)
    assert [row[0] for section in worlds.sections for row in section] == list(FAMILIES)
    assert "tiny scale, best recipe, 0.5 of its training steps" in worlds.title
    expected = {(family, planner) for family in FAMILIES for planner in ("LePlanner-reuse", "CEM")}
    for sheet in (success, cost):
        assert {row[:2] for section in sheet.sections for row in section} == expected
    against = {row[:2] for section in paired.sections for row in section}
    assert against == {("lewm", "CEM"), ("linear", "CEM"), ("linear", "LePlanner-reuse in lewm")}
    text = (base / "comparison" / "table.md").read_text()
    for sheet in (worlds, success, paired, cost):
        for section in sheet.sections:
            for row in section:
                assert f"| {' | '.join(row)} |" in text
                assert len(row) == len(sheet.words) + len(sheet.figures)


def test_worlds_are_described_by_what_their_folders_say(compared):
    base, _, _ = compared
    report = read_json(base / "comparison" / "comparison.json")
    for family in report["families"]:
        folder = RunPaths(base).family(family["name"])
        assert family["world"] == read_json(folder.finetuned / "config.json")["digest"]
        assert set(family["minutes"]) == {"world", "finetuned", "density", "planner"}
        assert all(minutes > 0 for minutes in family["minutes"].values())
        assert len(family["rollout_error"]) == HORIZON
        assert set(family["probe"]["rmse"]) == set(TASKS["tworoom"].probe_names)
    timed = {(row["family"], row["method"]): row for row in report["latency"]["rows"]}
    for family in FAMILIES:
        search, ours = timed[family, "cem"], timed[family, DEFAULT]
        assert (search["transitions"], search["calls"]) == (SAMPLES * ROUNDS * HORIZON, ROUNDS * HORIZON)
        rollouts = REFINEMENTS + 2  # the draft, its refinements, and what remains of the last plan
        assert ours["transitions"] == ours["calls"] == rollouts * HORIZON


def test_minutes_that_are_not_known_are_said_to_be(compared):
    base, _, _ = compared
    report = read_json(base / "comparison" / "comparison.json")
    report["families"][0]["minutes"]["finetuned"] = None
    assert comparison_tables(report)[0].sections[0][0][2] == "-"


def test_minutes_are_those_of_all_that_was_trained(tmp_path):
    assert training_minutes(tmp_path) is None
    for folder, minutes in ((tmp_path, (1.0, 2.0)), (tmp_path / "encoder", (0.25, 0.5))):
        folder.mkdir(exist_ok=True)
        lines = [json.dumps({"step": step, "minutes": value}) for step, value in enumerate(minutes)]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert training_minutes(tmp_path) == 2.5


def test_the_figure_and_the_page_show_it(compared, tmp_path):
    base, _, _ = compared
    assert {"comparison.svg", "comparison.png"} <= {path.name for path in (base / "comparison").iterdir()}
    report = read_json(base / "comparison" / "comparison.json")
    page = write_page([base / "comparison"], tmp_path / "page.html").read_text()
    assert "TwoRoom: world models" in page
    shown = html.unescape(page)
    for sheet in comparison_tables(report):
        assert sheet.title in shown
        assert all(f">{cell}</td>" in shown for section in sheet.sections for row in section for cell in row)


def test_no_search_is_a_quick_look_and_more_trials_continue(compared, tmp_path, monkeypatch, capsys):
    base, words, _ = compared
    shutil.copytree(base / "families", tmp_path / "families")
    shutil.copytree(base / "comparison", tmp_path / "comparison")
    monkeypatch.setattr(loop, "_run", None)
    words = [*words, "--search-trials", "0", "--trials", str(TRIALS + 1), "--families", "own_families:LINEAR"]
    words[words.index("--base") + 1] = str(tmp_path)
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (family,) = report["families"]
    assert {(row["method"], row["trials"]) for row in family["methods"]} == {(DEFAULT, TRIALS + 1)}
    assert family["minus_own"] == family["minus_first"] == {}
    kept = [row for row in rows_of(tmp_path, "linear") if row.trial < TRIALS]
    assert [replace(row, manifest="") for row in kept] == [replace(row, manifest="") for row in rows_of(base, "linear")]


def made_up(method: str, outcomes: list[bool]) -> list[TrialRow]:
    return [
        TrialRow(method, 1, trial, 42, {}, "", "", {}, {"any": won, "held": False, "strict": None})
        for trial, won in enumerate(outcomes)
    ]


def test_differences_are_of_the_trials_that_both_ran():
    ours, theirs = [True, True, False, True, False], [True, False, True]
    groups = _groups([*made_up(DEFAULT, ours), *made_up("cem", theirs)])
    found = _differences(groups, DEFAULT, groups, "cem", (1, 5))
    assert set(found) == {"1"}
    assert set(found["1"]) == {"any", "held"}  # the task has no strict test
    any_time = found["1"]["any"]
    by_hand = np.mean(np.array(ours[:3], float) - np.array(theirs, float))
    assert any_time["difference"] == pytest.approx(by_hand)
    assert (any_time["trials"], any_time["only_this"], any_time["only_reference"]) == (3, 1, 1)
    assert any_time["p_value"] == 1.0
    assert _differences(groups, DEFAULT, groups, DEFAULT, (1,)) == {}


def test_a_method_with_a_pace_of_its_own_is_compared_at_that():
    groups = _groups([*made_up(DEFAULT, [True, True]), *made_up("tdmpc2", [True, False])])
    groups[DEFAULT, 5] = groups[DEFAULT, 1]
    found = _differences(groups, DEFAULT, groups, "tdmpc2", (1, 5))
    assert set(found) == {"1", "5"}
    assert found["5"]["any"]["difference"] == found["1"]["any"]["difference"] == 0.5


def test_differences_of_a_comparison_are_those_of_its_rows(compared):
    base, _, _ = compared
    outcomes = {
        (family, row.method, row.replan, row.trial): row.outcome["any"]
        for family in FAMILIES
        for row in rows_of(base, family)
    }
    report = read_json(base / "comparison" / "comparison.json")
    assert report["families"][0]["minus_first"] == {}
    for family in report["families"]:
        name = family["name"]
        for m in (1, HORIZON):
            ours = [outcomes[name, DEFAULT, m, trial] for trial in range(TRIALS)]
            own = [outcomes[name, "cem", m, trial] for trial in range(SEARCH_TRIALS)]
            difference = family["minus_own"][str(m)]["any"]["difference"]
            assert difference == pytest.approx(np.mean(ours[:SEARCH_TRIALS]) - np.mean(own))
            if name != "lewm":
                first = [outcomes["lewm", DEFAULT, m, trial] for trial in range(TRIALS)]
                difference = family["minus_first"][str(m)]["any"]
                assert difference["difference"] == pytest.approx(np.mean(ours) - np.mean(first))
                assert difference["trials"] == TRIALS


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--families", "lewn"), "Did you mean 'lewm'?"),
        (("--families", "lewm,LeWM"), "lewm is listed twice"),
        (("--families", ""), "Give at least one family"),
        (("--trials", "0"), "--trials must be at least 1"),
        (("--search-trials", "-1"), "--search-trials at least 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(tmp_path, capsys, wrong, said):
    assert main(["compare", "tworoom", "--scale", "tiny", "--families", "lewm", "--base", str(tmp_path), *wrong]) == 1
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("own_planner", "said"),
    [("tdmpc2", "names tdmpc2 as its own planner, which needs plan_return"), ("cemm", "Did you mean 'cem'?")],
)
def test_an_own_planner_that_cannot_run_is_refused_at_once(
    own_planner, said, tmp_path, capsys, cheap, forgets_registrations
):
    name = f"planned-by-{own_planner}"
    register_world(replace(own_families.LINEAR, name=name, own_planner=own_planner))
    words = ["compare", "tworoom", "--scale", "tiny", "--families", name, "--base", str(tmp_path)]
    assert main(words) == 1
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_the_paper_recipe_is_compared_with_the_papers_controller(tmp_path):
    for recipe, ours in (("paper", "leplanner"), ("best", DEFAULT)):
        (rival,) = find_rivals(TASKS["tworoom"], ["lewm"], "tiny", recipe, RunPaths(tmp_path))
        assert rival.methods(CompareOptions()) == (ours, "cem")
        assert rival.methods(CompareOptions(search_trials=0)) == (ours,)


def test_a_world_of_other_data_is_refused_at_once(compared, tmp_path, capsys):
    base, words, _ = compared
    folder = tmp_path / "families" / "linear"
    shutil.copytree(base / "families" / "linear", folder)
    config = read_json(folder / "world" / "config.json")
    config["provenance"]["inputs"]["data"] = "another"
    (folder / "world" / "config.json").write_text(json.dumps(config))
    words = [*words]
    words[words.index("--base") + 1] = str(tmp_path)
    assert main(words) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"{folder / 'world'} was trained on data another" in said
    assert not (tmp_path / "families" / "lewm").exists()


def test_a_world_of_other_settings_is_refused_before_anything_is_trained(compared, tmp_path, capsys):
    base, words, _ = compared
    shutil.copytree(base / "families" / "linear", tmp_path / "families" / "linear")
    file = tmp_path / "families" / "linear" / "world" / "config.json"
    config = read_json(file)
    steps = config["training"]["config"]["optim"]["steps"]
    config["training"]["config"]["optim"]["steps"] = 2 * steps
    file.write_text(json.dumps(config))
    words = [*words]
    words[words.index("--base") + 1] = str(tmp_path)
    assert main(words) == 1
    assert f"training.optim.steps is {2 * steps}, requested {steps}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "families" / "lewm").exists()


def test_weights_that_cannot_be_had_are_missed_at_once(tmp_path, capsys, monkeypatch):
    def unreachable(source, patterns):
        raise ValueError(f"{source} could not be fetched")

    monkeypatch.setattr(dinov2, "fetch_folder", unreachable)
    for words in (["compare", "tworoom", "--families", "dino-wm"], ["run", "tworoom", "--family", "dino-wm"]):
        where = ["--out", str(tmp_path)] if words[0] == "run" else ["--base", str(tmp_path)]
        assert main([*words, "--scale", "paper", *where]) == 1
        assert "facebook/dinov2-small could not be fetched" in " ".join(capsys.readouterr().err.split())
        assert not list(tmp_path.iterdir())


def test_an_imported_world_is_used_as_it_is(compared, tmp_path):
    base, _, _ = compared
    (rival,) = find_rivals(TASKS["tworoom"], ["lewm"], "tiny", None, RunPaths(tmp_path))
    shutil.copytree(base / "families" / "lewm" / "world", rival.paths.world)

    def first_stage() -> str:
        return rival.stages(TASKS["tworoom"], base / "data.h5", Runtime(), silent)[0].name

    assert first_stage() == "train world"
    config = read_json(rival.paths.world / "config.json")
    config["training"] = {"source": "somewhere"}
    (rival.paths.world / "config.json").write_text(json.dumps(config))
    assert first_stage() == "cache"


def test_outcomes_that_never_differ_have_no_interval(compared):
    report = read_json(compared[0] / "comparison" / "comparison.json")
    pair = report["families"][1]["minus_first"]["1"]["any"]
    for values, shown in (
        ({"difference": 0.0, "low": 0.0, "high": 0.0, "only_this": 0, "only_reference": 0}, "0.0 (no trial differs)"),
        ({"difference": -0.015, "low": -0.025, "high": -0.005, "only_reference": 3}, "-1.5 (-2.5 to -0.5)"),
    ):
        pair.update(values)
        rows = [row for section in comparison_tables(report)[2].sections for row in section]
        (row,) = [row for row in rows if row[:3] == ("linear", "LePlanner-reuse in lewm", "1")]
        assert row[4] == shown


def test_a_world_says_how_many_predictor_calls_a_rollout_takes(tiny_world, monkeypatch):
    """One a block by default; a world that imagines a whole plan at once says so."""
    world = World(tiny_world.model, tiny_world.spec)
    torch.manual_seed(0)
    planner = Planner(world, planner_for(world, PlannerConfig(width=16, depth=1, heads=2)), engine="eager")
    inputs = MethodInputs(planner, 50, search=SearchBudget(20, 2))
    names = ("leplanner", DEFAULT, "cem")

    def calls() -> list[int | None]:
        rivals = [(METHODS.get(name).make(inputs)(None), planner) for name in names]
        return [latency.calls for latency in measure_side_by_side(rivals, seconds=0.0, least=1, most=1)]

    plans = REFINEMENTS + 1
    assert calls() == [HORIZON * plans, HORIZON * (plans + 1), HORIZON * 2]
    monkeypatch.setattr(world.model, "predictor_calls", lambda horizon: 1, raising=False)
    assert calls() == [plans, plans + 1, 2]
    assert planner.calls_per_plan == plans
    assert planner.transitions_per_plan == HORIZON * plans
