"""The command line: help that teaches, errors that help, and the commands that the README shows."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import tyro

from leplanner.cli.main import main, verbs
from leplanner.cli.options import preselect
from leplanner.data.cache import open_cache
from leplanner.pipeline.paths import RunPaths
from leplanner.planner.planner import load_bundle
from leplanner.tasks import TASKS
from leplanner.worlds import load_world
from leplanner.zoo import shipped

README = (Path(__file__).parents[2] / "README.md").read_text()


def all_verbs() -> list[list[str]]:
    names = []
    for name, verb in verbs().items():
        names += [[name, inner] for inner in verb] if isinstance(verb, dict) else [[name]]
    return names


def find_verb(words: list[str]) -> tuple[Any, list[str]]:
    """The verb that a command names, and the rest of the command."""
    verb, rest = verbs()[words[0]], words[1:]
    return (verb[rest[0]], rest[1:]) if isinstance(verb, dict) else (verb, rest)


def parse(command: str) -> Any:
    """The options of a command, parsed as `main` parses them; a mistake raises. Nothing is run."""
    verb, words = find_verb(shlex.split(command))
    if not dataclasses.is_dataclass(verb):
        return tyro.cli(functools.wraps(verb)(lambda **options: options), args=words)
    default = verb.default(preselect(words), words)
    config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.AvoidSubcommands)
    return tyro.cli(type(default), args=words, default=default, config=config)


@pytest.mark.parametrize("words", all_verbs(), ids=" ".join)
def test_every_verb_explains_itself_with_an_example(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "Example: leplanner " + " ".join(words) in re.sub(r"[\s│]+", " ", shown)


def test_help_lists_every_verb(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(" ".join(words) in shown for words in all_verbs())
    assert main(["world"]) == 0


def test_mistakes_get_an_answer(capsys, tmp_path):
    assert main(["plan"]) == 2
    assert "no verb 'plan'" in capsys.readouterr().err
    assert main(["world", "probe", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err
    assert main(["evaluate", "tworoom", "--draws", "4..3", "--out", str(tmp_path)]) == 1
    assert "the first not after the last" in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_a_planner_is_the_default_bundle_once_it_is_whole(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    trained = Path("runs", "tworoom", "planner")
    trained.mkdir(parents=True)
    task = TASKS["tworoom"]
    assert RunPaths.of(task).latest_bundle(task) == shipped()["tworoom"]  # in training: no config.json yet
    (trained / "config.json").touch()
    assert RunPaths.of(task).latest_bundle(task) == trained


def test_readme_commands_parse():
    """Every `leplanner` command in the README has existing verbs and options, with values of their types."""
    commands = re.findall(r"^(?:\.venv/bin/)?leplanner ([^\n#]+)", README, flags=re.M)
    assert len(commands) >= 6
    for command in commands:
        parse(command)


@pytest.mark.parametrize("words", all_verbs(), ids=" ".join)
def test_the_examples_of_every_verb_parse(words):
    examples = re.findall(r"Example: leplanner (.+)", find_verb(words)[0].__doc__)
    assert examples
    for example in examples:
        parse(example)


def test_the_parser_of_these_tests_refuses_what_does_not_exist(capsys):
    for command in ("evaluate tworoom --films 3", "zoo --verbose", "train tworoom --steps many"):
        with pytest.raises(SystemExit):
            parse(command)
    with pytest.raises(KeyError):
        parse("practice pusht")


def test_a_task_after_options_sets_their_defaults():
    collect = parse("collect --scale tiny --workers 2 tworoom --steps 30")
    assert (collect.choice.task, collect.choice.scale) == ("tworoom", "tiny")
    assert (collect.config.episodes, collect.config.steps, collect.config.size) == (48, 30, 32)  # tiny's, and as typed
    assert parse("train --steps=7 pusht").shape.width == 256  # PushT's planner


@pytest.mark.parametrize("words", [["--policy", "pusht"], ["--policy=pusht"]])
def test_a_planner_that_collects_has_defaults_of_its_own(words):
    assert parse("collect pusht").config.episodes == 12_000
    assert parse(shlex.join(["collect", "pusht", *words])).config.episodes == 9000


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["walker"], "Unknown task 'walker'. Known: tworoom, pusht, reacher, cube"),
        ([], "Which task? Known: tworoom, pusht, reacher, cube"),
        (["--scale", "tiny"], "Which task? Known: tworoom, pusht, reacher, cube"),
        (["tworoom", "--family", "dreamer"], "Unknown world family 'dreamer'. Known: lewm"),
        (["tworoom", "--scale", "huge"], "Unknown scale 'huge'. Known: paper, compact, tiny"),
        (["tworoom", "--recipe=good"], "Unknown recipe 'good'. Known: paper, best"),
        (
            ["tworoom", "--family", "no.such.module:FAMILY"],
            "'no.such.module:FAMILY' could not be loaded (No module named",
        ),
        (["tworoom", "--family", "leplanner.worlds:NOTHING"], "'leplanner.worlds:NOTHING' could not be loaded"),
        (["leplanner.nowhere:TASK"], "Give package.module:NAME, of a module that Python can import"),
    ],
)
def test_an_unknown_choice_is_answered_with_the_known_ones(words, answer, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["collect", *words]) == 1
    assert answer in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_pipeline_of_the_readme(tmp_path, monkeypatch, capsys):
    """Every stage from collecting to evaluating, at tiny scale."""
    monkeypatch.chdir(tmp_path)
    assert main(["collect", "tworoom", "--scale", "tiny", "--episodes", "24", "--steps", "40", "--workers", "1"]) == 0
    assert main(["world", "train", "tworoom", "--scale", "tiny", "--steps", "30"]) == 0
    capsys.readouterr()
    assert main(["world", "probe", "runs/tworoom/world", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["rmse"]) == {"agent_x", "agent_y"}
    assert main(["cache", "tworoom"]) == 0
    assert main(["world", "finetune", "tworoom", "--scale", "tiny", "--steps", "4"]) == 0
    finetuned = ["--world", "runs/tworoom/finetuned"]
    world = load_world("runs/tworoom/finetuned")
    cache = open_cache("runs/tworoom/latents", world.encoder_digest)
    assert cache.latents.shape == (24 * 9, 32)
    assert main(["density", "tworoom", "--scale", "tiny", "--steps", "20", *finetuned]) == 0
    assert main(["train", "tworoom", "--scale", "tiny", "--steps", "20", *finetuned]) == 0
    shown = capsys.readouterr().out
    assert "arrival by k" in shown
    assert "c95" in shown
    assert main(["baselines", "tworoom", "--scale", "tiny", "--steps", "20", "--methods", "gcidm", *finetuned]) == 0
    evaluation = [
        "--methods",
        "leplanner,gcidm,no-op",
        "--trials",
        "1",
        "--replan",
        "1",
        "--workers",
        "1",
        "--offset",
        "10",
    ]
    assert main(["evaluate", "tworoom", *evaluation, "--protocol", "heldout", "--draws", "3..4"]) == 0
    shown = capsys.readouterr().out
    assert "any time success by draw" in shown
    assert "gcidm" in shown
    planner = load_bundle("runs/tworoom/planner")
    assert main(["world", "train", "tworoom", "--scale", "tiny", "--steps", "30"]) == 0  # finished: nothing to do
    assert main(["world", "finetune", "tworoom", "--scale", "tiny", "--steps", "4"]) == 0
    assert main(["train", "tworoom", "--scale", "tiny", "--steps", "20", *finetuned]) == 0
    assert load_world("runs/tworoom/finetuned").digest == world.digest
    assert load_bundle("runs/tworoom/planner").digest == planner.digest


def test_the_python_of_the_readme_reaches_its_goal(capsys):
    (snippet,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    exec(compile(snippet, "README.md", "exec"), {})
    x, y = map(float, re.findall(r"\d+\.\d*", capsys.readouterr().out))
    assert abs(x - 170) < 16
    assert abs(y - 60) < 16


def test_bench_world(capsys):
    assert main(["bench", "world", "--scale", "tiny", "--batch", "4", "--repeats", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["work"] for row in report["rows"]] == ["encode", "training step"]
    assert all(0 < row["share_of_matmul"] < 1.5 for row in report["rows"])
    assert report["loader_share_of_step"] > 0
    assert report["planning_batch_ms"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)  # compiling takes minutes
@pytest.mark.filterwarnings("ignore")  # torch's own, on compiling
def test_bench_train(capsys):
    assert main(["bench", "train", "--scale", "tiny", "--batch", "8", "--repeats", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in report["rows"]] == ["plain", "fast"]
    assert report["ratio"] > 0


def test_doctor(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--tasks", "tworoom", "pusht", "--json"]) == 0
    findings = {f["check"]: f for f in json.loads(capsys.readouterr().out)}
    assert findings["task pusht"]["ok"]
    assert "moved" in findings["task pusht"]["detail"]
    assert main(["doctor", "--tasks", "walker"]) == 1
    assert "fails" in capsys.readouterr().out


@pytest.mark.slow
def test_doctor_tries_all_tasks(capsys):
    assert main(["doctor", "--json"]) == 0
    assert all(finding["ok"] for finding in json.loads(capsys.readouterr().out))
