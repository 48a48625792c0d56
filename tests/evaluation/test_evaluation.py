"""The evaluation contract: frozen trials, one runner, rows that survive a kill, honest scores."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from leplanner.artifacts import read_json, write_json
from leplanner.cli.main import main
from leplanner.control.methods import METHODS, MethodInputs, SearchBudget, methods_of
from leplanner.core.problem import PlanProblem
from leplanner.data.episodes import is_validation
from leplanner.evaluation.latency import measure_latency
from leplanner.evaluation.manifest import draw_manifest, load_manifest, save_manifest
from leplanner.evaluation.metrics import EARLIER_STRICT, score_states
from leplanner.evaluation.runner import EvaluationConfig, evaluate, read_rows
from leplanner.evaluation.summary import plain, summarize
from leplanner.execution.executor import make_executor
from leplanner.planner.planner import save_bundle
from leplanner.tasks import TASKS

TWOROOM = TASKS["tworoom"]
OURS = methods_of("ours")


def draw(episodes, count, seed, **settings):
    return draw_manifest(TWOROOM, episodes, count, seed, block=5, context=3, **settings)


def run(bundle, manifest, config, rows):
    return evaluate(bundle, manifest, config, rows, executor=make_executor(workers=1))


@pytest.fixture(scope="module")
def manifest(tworoom):
    return draw(tworoom, 2, seed=1, offset=25, simulator=TWOROOM.simulate)


@pytest.fixture(scope="module")
def bundle(tiny_planner, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle")
    save_bundle(tiny_planner, folder)
    return folder


# trials


def test_a_seed_is_a_manifest(tworoom, manifest, tmp_path):
    again = draw(tworoom, 2, seed=1, offset=25, simulator=TWOROOM.simulate)
    assert again.digest == manifest.digest
    assert draw(tworoom, 2, seed=2, protocol="heldout").digest != manifest.digest
    save_manifest(manifest, tmp_path / "m.json")
    assert load_manifest(tmp_path / "m.json") == manifest
    write_json(tmp_path / "m.json", read_json(tmp_path / "m.json") | {"offset": 20})
    with pytest.raises(ValueError, match="edited"):
        load_manifest(tmp_path / "m.json")


def test_trials_are_what_the_data_holds(tworoom, manifest):
    for trial in manifest.trials:
        (episode,) = np.flatnonzero(tworoom.ids == trial.episode)
        row = tworoom.starts[episode] + trial.start_step // 5
        assert np.array_equal(trial.start_state, tworoom.states[row])
        assert np.array_equal(trial.goal_state, tworoom.states[row + 5])
        assert np.array_equal(np.float32(trial.actions), tworoom.actions[row : row + 5].reshape(25, 2))
        assert len(trial.history_states) == min(2, trial.start_step // 5)
        assert trial.goal_step == trial.start_step + 25
        assert is_validation(np.array([trial.episode])).all()
        assert not TWOROOM.success(np.array(trial.start_state), np.array(trial.goal_state))


def test_protocols_and_their_refusals(tworoom):
    everything = draw(tworoom, 60, seed=0, protocol="official")
    assert not all(is_validation(np.array([t.episode for t in everything.trials])))
    assert len({(t.episode, t.start_step) for t in everything.trials}) == 60
    with pytest.raises(ValueError, match="hold only"):
        draw(tworoom, 10_000, seed=0, protocol="heldout")
    with pytest.raises(ValueError, match="not a multiple"):
        draw(tworoom, 2, seed=0, protocol="heldout", offset=23)
    assert draw(tworoom, 2, seed=0, protocol="heldout", offset=15).budget == 30
    with pytest.raises(ValueError, match="A budget of 20 actions is less than the 25"):
        draw(tworoom, 2, seed=0, protocol="heldout", budget=20)
    with pytest.raises(ValueError, match=r"Did you mean 'heldout'\? Known: nontrivial, heldout, official"):
        draw(tworoom, 2, seed=0, protocol="held-out")
    assert draw(tworoom, 2, seed=0, protocol="Heldout").protocol == "heldout"
    with pytest.raises(ValueError, match="needs a simulator"):
        draw(tworoom, 2, seed=0)


# scores


def test_success_by_three_conventions():
    goal = np.array([50.0, 50.0])
    near, far = goal + 10, goal + 50
    passes = score_states(TWOROOM, np.array([far, far, near, far, far, far, far, far]), goal)
    assert {name: passes[name] for name in ("any", "final", "held", "first_success")} == {
        "any": True,
        "final": False,
        "held": False,
        "first_success": 2,
    }
    stays = score_states(TWOROOM, np.array([far, far, near, near, near, near, near]), goal)
    assert [stays[name] for name in ("any", "final", "held")] == [True, True, True]
    begins = score_states(TWOROOM, np.array([near, far, far, far, far, far]), goal)
    assert not begins["any"]  # the start does not count
    assert begins["first_success"] is None
    assert begins["final_error"] == pytest.approx(np.hypot(50, 50))


def test_a_task_is_asked_only_for_the_verdicts_it_has(manifest):
    trial = manifest.trials[0]
    states = np.array([trial.start_state, trial.goal_state])
    outcome = score_states(TWOROOM, states, np.array(trial.goal_state))
    assert (outcome["moderate"], outcome["object"]) == (True, None)
    assert EARLIER_STRICT not in outcome  # only earlier results have it
    outcome = score_states(replace(TWOROOM, clear_lewm=None), states, np.array(trial.goal_state))
    assert (outcome["moderate"], outcome["strict"]) == (None, None)


# the runner


def stable(rows):
    """Rows without what depends on the machine and the moment."""
    passing = ("encode_ms", "plan_ms", "environment_ms", "seconds", "fingerprint")
    return [{k: v for k, v in dataclasses.asdict(row).items() if k not in passing} for row in rows]


def unplayable(trial):
    return replace(trial, actions=((float("nan"), 0.0), *trial.actions[1:]))


def test_floors_and_the_ceiling_are_exact_and_errors_are_rows(bundle, manifest, tmp_path):
    """By construction: replaying the data reaches every goal, no action reaches none; a trial that
    raises counts for no method."""
    save_manifest(manifest, tmp_path / "good.json")
    config = EvaluationConfig(methods=("leplanner", "leplanner-reuse", "no-op", "replay"), replan=(1, 5))
    rows = run(bundle, tmp_path / "good.json", config, tmp_path / "rows.jsonl")
    table = {(s.method, s.replan): s for s in summarize(rows, "leplanner")}
    assert set(table) == {*((name, m) for name in OURS for m in (1, 5)), ("no-op", 1), ("replay", 1)}
    assert table["leplanner-reuse", 1].transitions_per_plan == (20 + 9 * 25) / 10  # no plan to reuse at first
    assert table["no-op", 1].rates["any"].value == 0
    assert [table["replay", 1].rates[name].value for name in ("any", "final")] == [1, 1]
    assert table["leplanner", 1].transitions_per_plan == table["leplanner", 5].transitions_per_plan == 20
    assert {row.decisions for row in rows if row.method == "leplanner"} == {10, 2}
    assert all((row.imagined is not None) == (row.method in OURS) for row in rows)
    whole = {name: [r for r in rows if (r.method, r.replan) == (name, 5)] for name in OURS}
    for one, other in zip(*whole.values(), strict=True):  # nothing is left of a plan executed whole
        assert (one.trial, one.outcome, one.transitions) == (other.trial, other.outcome, other.transitions)
    assert all(row.manifest == manifest.digest and row.fingerprint["threads"] for row in rows)

    broken = replace(manifest, trials=(unplayable(manifest.trials[0]), manifest.trials[1]))
    save_manifest(broken, tmp_path / "broken.json")
    config = EvaluationConfig(methods=("replay", "no-op"), replan=(1,))
    rows = run(bundle, tmp_path / "broken.json", config, tmp_path / "broken.jsonl")
    assert [row.error is None for row in rows] == [False, True, True, True]
    assert [s.rates["any"].trials for s in summarize(rows, "replay")] == [1, 1]
    with pytest.raises(ValueError, match="not among those that ran"):
        summarize(rows, "leplanner")
    with pytest.raises(ValueError, match="another manifest"):
        run(bundle, tmp_path / "broken.json", config, tmp_path / "rows.jsonl")


def test_rows_hold_the_executed_states_that_their_outcome_is_of(bundle, manifest, tmp_path):
    save_manifest(manifest, tmp_path / "m.json")
    run(bundle, tmp_path / "m.json", EvaluationConfig(("random",), (1,)), tmp_path / "rows.jsonl")
    for row in read_rows(tmp_path / "rows.jsonl"):
        trial = manifest.trials[row.trial]
        assert row.states[0] == list(trial.start_state)
        assert len(row.states) == manifest.budget + 1
        assert score_states(TWOROOM, np.array(row.states), np.array(trial.goal_state)) == row.outcome


def test_rows_from_before_clear_lewm_are_read_and_do_not_pass_for_its_strict(bundle, manifest, tmp_path):
    save_manifest(manifest, tmp_path / "m.json")
    config, path = EvaluationConfig(("no-op",), (1,)), tmp_path / "rows.jsonl"
    rows = run(bundle, tmp_path / "m.json", config, path)
    new = ("moderate", "earlier_strict", "object")
    old = [
        {name: value for name, value in dataclasses.asdict(row).items() if name != "states"}
        | {"outcome": {name: value for name, value in row.outcome.items() if name not in new} | {"strict": True}}
        for row in rows
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    read = run(bundle, tmp_path / "m.json", config, path)  # nothing is run again
    assert [(row.states, row.outcome["earlier_strict"], row.outcome.get("strict")) for row in read] == [
        (None, True, None)
    ] * 2
    (summary,) = summarize(read, "no-op")
    assert summary.rates["earlier_strict"].value == 1
    assert "strict" not in summary.rates


def test_trials_run_with_the_physics_of_their_protocol(bundle, manifest, tmp_path):
    """Along y = 57 the door post is in the way of a whole disk; stable-worldmodel lets it through."""
    past_the_post = replace(
        manifest.trials[0], start_state=(95.0, 57.0), goal_state=(160.0, 57.0), actions=((1.0, 0.0),) * 10
    )
    ends = {}
    for protocol in ("heldout", "moderate"):
        path = tmp_path / f"{protocol}.json"
        save_manifest(replace(manifest, protocol=protocol, trials=(past_the_post,)), path)
        (row,) = run(bundle, path, EvaluationConfig(("replay",), (1,)), tmp_path / f"{protocol}.jsonl")
        ends[protocol] = np.array(row.states)[10]
    assert ends["heldout"].tolist() == [145.0, 57.0]
    assert ends["moderate"][0] > 112  # through the door all the same
    assert ends["moderate"][1] < 56.001  # as far aside as the post asks


def test_a_killed_evaluation_continues_and_ends_the_same(bundle, tworoom_file, tmp_path):
    command = ["evaluate", "tworoom", "--bundle", str(bundle), "--data", str(tworoom_file), "--trials", "3"]
    command += ["--methods", "leplanner,random", "--replan", "1,5", "--protocol", "official", "--offset", "10"]
    command += ["--workers", "1"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(
        [sys.executable, "-m", "leplanner", *command, "--out", str(killed)], stderr=subprocess.DEVNULL
    )
    rows = killed / "rows.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (rows.exists() and rows.read_text().count("\n") >= 2):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    text = rows.read_text()
    rows.write_text(
        text[: text.rindex("\n")] if text.endswith("\n") else text
    )  # as a kill in the middle of a write leaves it
    assert main([*command, "--out", str(killed)]) == 0
    assert main([*command, "--out", str(whole)]) == 0
    key = lambda row: (row["method"], row["replan"], row["trial"])  # noqa: E731
    first, second = (sorted(stable(read_rows(folder / "rows.jsonl")), key=key) for folder in (killed, whole))
    assert len(first) == 12
    assert first == second
    assert (killed / "summary.json").exists()


def test_fewer_trials_for_searches_and_videos_of_rows_that_exist(bundle, manifest, tmp_path):
    save_manifest(manifest, tmp_path / "m.json")
    config = EvaluationConfig(("leplanner", "cem"), (1,), search=SearchBudget(20, 1), search_trials=1)
    rows = run(bundle, tmp_path / "m.json", config, tmp_path / "rows.jsonl")
    assert [(row.method, row.trial) for row in rows] == [("leplanner", 0), ("leplanner", 1), ("cem", 0)]
    recorded = run(bundle, tmp_path / "m.json", replace(config, videos=1), tmp_path / "rows.jsonl")
    assert stable(recorded) == stable(rows)  # run again for the video, with the same outcome
    assert len(read_rows(tmp_path / "rows.jsonl")) == 3  # and its row replaced
    assert {path.name[:-13] for path in (tmp_path / "videos").iterdir()} == {"leplanner-m1-0000", "cem-m1-0000"}
    again = run(bundle, tmp_path / "m.json", replace(config, videos=1), tmp_path / "rows.jsonl")
    assert again == recorded  # nothing left to do
    with pytest.raises(ValueError, match="rows of cem"):
        run(
            bundle,
            tmp_path / "m.json",
            replace(config, search=SearchBudget(20, 1, compiled=True)),
            tmp_path / "rows.jsonl",
        )


def test_only_search_methods_depend_on_the_search_budget(bundle, manifest, tmp_path):
    save_manifest(manifest, tmp_path / "m.json")
    config = EvaluationConfig(("leplanner", "no-op"), (5,), videos=1)
    rows = run(bundle, tmp_path / "m.json", config, tmp_path / "rows.jsonl")
    again = replace(config, search=SearchBudget(20, 1, compiled=True))
    assert run(bundle, tmp_path / "m.json", again, tmp_path / "rows.jsonl") == rows  # none was run again


def test_a_summary_says_what_all_its_rows_were_run_with(bundle, manifest, tmp_path):
    save_manifest(manifest, tmp_path / "m.json")
    config = EvaluationConfig(("no-op", "replay"), (1,))
    rows = run(bundle, tmp_path / "m.json", config, tmp_path / "rows.jsonl")
    rows[-1] = replace(rows[-1], fingerprint=rows[-1].fingerprint | {"threads": 7})
    summary = plain(summarize(rows, "no-op"), "tworoom", "no-op", manifest.digest, config.settings, rows)
    assert summary["fingerprint"] == rows[0].fingerprint | {"threads": f"{rows[0].fingerprint['threads']} or 7"}


def test_a_raised_trial_fails_the_command_and_is_tried_again(bundle, manifest, tmp_path, capsys):
    trials = (unplayable(manifest.trials[0]), manifest.trials[1])
    save_manifest(replace(manifest, trials=trials), tmp_path / "manifest.json")
    command = ["evaluate", "tworoom", "--bundle", str(bundle), "--methods", "replay", "--replan", "1", "--trials", "2"]
    command += ["--seed", "1", "--workers", "1", "--json", "--out", str(tmp_path)]
    assert main(command) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["errors"] == 1
    assert "raised" in shown.err
    assert main(command) == 1  # tried again, and raised again
    assert len(read_rows(tmp_path / "rows.jsonl")) == 2
    assert main([*command, "--trials", "0"]) == 1
    assert "must be at least 1; got 0" in capsys.readouterr().err


def test_mistakes_get_an_answer(bundle, manifest, tmp_path, tiny_planner):
    save_manifest(manifest, tmp_path / "m.json")
    with pytest.raises(ValueError, match="Unknown method 'magic'"):
        run(bundle, tmp_path / "m.json", EvaluationConfig(methods=("magic",)), tmp_path / "r")
    with pytest.raises(ValueError, match="leplanner baselines"):
        run(bundle, tmp_path / "m.json", EvaluationConfig(methods=("gcidm",)), tmp_path / "r")
    with pytest.raises(ValueError, match=r"1\.\.5 blocks"):
        run(bundle, tmp_path / "m.json", EvaluationConfig(replan=(9,)), tmp_path / "r")
    flat = replace(manifest, trials=(replace(manifest.trials[0], goal_state=(1.0,)),))
    save_manifest(flat, tmp_path / "flat.json")
    with pytest.raises(ValueError, match="states of 1 numbers"):
        run(bundle, tmp_path / "flat.json", EvaluationConfig(), tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("method", "transitions"), [("leplanner", 20), ("leplanner-reuse", 25)])
def test_latency_counts_and_times(tiny_planner, manifest, method, transitions):
    problem = PlanProblem(torch.randn(4, 3, 32), torch.randn(4, 2, 10), torch.randn(4, 32))
    policy = METHODS.get(method).make(MethodInputs(tiny_planner, 50))(manifest.trials[0])
    latency = measure_latency(policy, tiny_planner, problem, 0.05)
    assert (latency.transitions, latency.batch) == (transitions, 4)
    assert 0 < latency.plan_ms <= latency.plan_ms_p95
    assert latency.encode_ms > 0
