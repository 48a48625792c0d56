"""The command line: help that teaches, errors that help, and the commands that the README shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from leplanner.worlds.world import load_world

from leplanner.cli.main import main, verbs
from leplanner.cli.options import bundle_folder
from leplanner.data.cache import open_cache
from leplanner.planner.planner import load_bundle
from leplanner.zoo import shipped

README = (Path(__file__).parent.parent / "README.md").read_text()


def all_verbs() -> list[list[str]]:
    found = []
    for name, verb in verbs().items():
        found += [[name, inner] for inner in verb] if isinstance(verb, dict) else [[name]]
    return found


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
    assert main(["collect", "walker"]) == 1
    assert "Known tasks: tworoom, pusht, reacher, cube" in re.sub(r"\s+", " ", capsys.readouterr().err)
    assert main(["collect", "tworoom", "--scale", "huge"]) == 1
    assert "Known scales" in capsys.readouterr().err
    assert main(["world", "probe", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err
    assert main(["evaluate", "tworoom", "--draws", "4..3", "--out", str(tmp_path)]) == 1
    assert "the first not after the last" in re.sub(r"\s+", " ", capsys.readouterr().err)


def test_a_planner_is_the_default_bundle_once_it_is_whole(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    trained = Path("runs", "tworoom", "planner")
    trained.mkdir(parents=True)
    assert bundle_folder(None, "tworoom") == shipped()["tworoom"]  # in training: no config.json yet
    (trained / "config.json").touch()
    assert bundle_folder(None, "tworoom") == trained


def test_readme_commands_parse():
    """Every `leplanner` command in the README names existing verbs and options."""
    commands = re.findall(r"^(?:\.venv/bin/)?leplanner ([^\n#]+)", README, flags=re.M)
    assert len(commands) >= 6
    table = verbs()
    for command in commands:
        words = shlex.split(command)
        verb = table[words.pop(0)]
        if isinstance(verb, dict):
            verb = verb[words.pop(0)]
        options = [word[2:].replace("-", "_") for word in words if word.startswith("--")]
        assert set(options) <= {*verb.__annotations__, "json"}, command


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
    assert main(["world", "refine", "tworoom", "--scale", "tiny", "--steps", "4"]) == 0
    refined = ["--world", "runs/tworoom/finetuned"]
    world = load_world("runs/tworoom/finetuned")
    cache = open_cache("runs/tworoom/latents", world.encoder_digest)
    assert cache.latents.shape == (24 * 9, 32)
    assert main(["density", "tworoom", "--scale", "tiny", "--steps", "20", *refined]) == 0
    assert main(["train", "tworoom", "--scale", "tiny", "--steps", "20", *refined]) == 0
    shown = capsys.readouterr().out
    assert "arrival by k" in shown
    assert "c95" in shown
    assert main(["baselines", "tworoom", "--scale", "tiny", "--steps", "20", "--methods", "gcidm", *refined]) == 0
    evaluation = [
        "--methods",
        "leplanner,gcidm,nothing",
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
    assert "any-time success by draw" in shown
    assert "gcidm" in shown
    planner = load_bundle("runs/tworoom/planner")
    assert main(["world", "train", "tworoom", "--scale", "tiny", "--steps", "30"]) == 0  # finished: nothing to do
    assert main(["world", "refine", "tworoom", "--scale", "tiny", "--steps", "4"]) == 0
    assert main(["train", "tworoom", "--scale", "tiny", "--steps", "20", *refined]) == 0
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
    assert "moved" in findings["task pusht"]["found"]
    assert main(["doctor", "--tasks", "walker"]) == 1
    assert "fails" in capsys.readouterr().out


@pytest.mark.slow
def test_doctor_tries_all_tasks(capsys):
    assert main(["doctor", "--json"]) == 0
    assert all(finding["ok"] for finding in json.loads(capsys.readouterr().out))
