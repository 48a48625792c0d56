"""The command line: help that teaches, errors that help, and the commands that the README shows."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leplanner.cli import demo
from leplanner.cli import main as main_module
from leplanner.cli.main import GROUPS, VERBS, describe, load_verb, main
from leplanner.data.cache import open_cache
from leplanner.density.mixture import load_density
from leplanner.evaluation import runner
from leplanner.pipeline.paths import DEMO, RunPaths
from leplanner.planner.planner import load_bundle
from leplanner.tasks import TASKS
from leplanner.worlds import FAMILIES, load_world
from leplanner.zoo import shipped

README = (Path(__file__).parents[2] / "README.md").read_text()


def parse(command: str) -> Any:
    """The options of a command, parsed as `main` parses them; a mistake raises. Nothing is run."""
    words = shlex.split(command)
    count = 2 if " ".join(words[:2]) in VERBS else 1
    return main_module.parse(" ".join(words[:count]), words[count:])


def flat(text: str) -> str:
    """Without the boxes and line ends of a help text."""
    return re.sub(r"[\s│]+", " ", text)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*verb.split(), "--help"])
    assert stop.value.code == 0
    shown = flat(capsys.readouterr().out)
    assert f"Example: leplanner {verb}" in shown
    assert "print one JSON object" in shown or verb == "play"  # every other verb makes or measures something
    assert not re.search(r"default: (MISSING|the (scale|preset)'s)", shown)


def test_help_lists_every_verb_in_its_group(capsys):
    for words in ([], ["--help"]):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert [line for line in shown.split("\n") if line.strip() in GROUPS and not line.startswith(" ")]
        assert all(f"  {verb} " in shown for verb in VERBS)
    assert main(["world"]) == 0
    shown = capsys.readouterr().out
    assert "world finetune" in shown
    assert "evaluate" not in shown


def test_help_shows_the_docstrings_without_importing_torch():
    for verb in VERBS:
        assert " ".join(load_verb(verb).__doc__.split("\n\n")[0].split()) == describe(verb)
    code = (
        "import sys; from leplanner.cli.main import main; main(['--help']); "
        "print(sorted({'torch', 'numpy', 'tyro'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_defaults_in_help_are_the_chosen_presets(capsys):
    for words, expected in (("bench world cube", 64), ("bench world --scale tiny", 32), ("ablate pusht", 4500)):
        with pytest.raises(SystemExit):
            main([*words.split(), "--help"])
        option = "--steps INT" if "ablate" in words else "--batch INT"
        assert re.search(rf"{option} [^-]*\(default: {expected}\)", flat(capsys.readouterr().out)), words
    with pytest.raises(SystemExit):
        main(["train", "PushT", "--scale", "paper", "--help"])
    shown = flat(capsys.readouterr().out)
    assert "Defaults shown are of PushT at paper scale, paper recipe." in shown
    assert "how it is trained (default: paper)" in shown


def test_mistakes_get_an_answer(capsys, tmp_path):
    assert main(["evalute"]) == 2
    assert "Unknown verb 'evalute'. Did you mean 'evaluate'? Known: demo, " in capsys.readouterr().err
    assert main(["world", "trian"]) == 2
    assert "Unknown world verb 'trian'. Did you mean 'train'?" in capsys.readouterr().err
    assert main(["world", "probe", str(tmp_path)]) == 1
    assert "config.json" in capsys.readouterr().err
    assert main(["evaluate", "tworoom", "--draws", "4..3", "--out", str(tmp_path)]) == 1
    assert "the first not after the last" in re.sub(r"\s+", " ", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--protocol", "held-out"], "Unknown protocol 'held-out'. Did you mean 'heldout'?"),
        (["--methods", "cen"], "Unknown method 'cen'. Did you mean 'cem'?"),
        (["--methods", "leplanner", "--reference", "leplaner"], "Did you mean 'leplanner'?"),
        (["--history", "reel"], "Unknown history 'reel'. Did you mean 'real'?"),
        (["--bundle", "tworom"], "Did you mean 'tworoom'?"),
    ],
)
def test_what_is_nearly_right_is_suggested(words, answer, capsys, tmp_path):
    assert main(["evaluate", "TwoRoom", "--out", str(tmp_path), *words]) == 1
    assert answer in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_verbs_and_options(shell, monkeypatch, capsys):
    chosen = {verb: VERBS[verb] for verb in ("world train", "world probe", "evaluate", "zoo")}
    monkeypatch.setattr("leplanner.cli.completion.VERBS", chosen)
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("evaluate", "--trials", "--grounding", "pusht", "--json"))
    assert main(["--print-completion", "powershell"]) == 2
    assert "Known: bash, zsh, fish" in capsys.readouterr().err
    if shell == "bash":
        typed = "\n".join(
            f"COMP_WORDS=({words}); COMP_CWORD={count}; _leplanner; echo ${{COMPREPLY[*]}}"
            for words, count in (("leplanner ev", 1), ("leplanner world ''", 2), ("leplanner evaluate pusht --tri", 3))
        )
        done = subprocess.run(["bash", "-c", f"{script}\n{typed}"], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["evaluate", "train probe", "--trials"]


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
    assert len(commands) >= 4
    for command in commands:
        parse(command)


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_every_verb_parse(verb):
    examples = re.findall(r"Example: leplanner (.+)", load_verb(verb).__doc__)
    assert examples
    for example in examples:
        parse(example)


def test_every_verb_that_reads_a_dataset_takes_names_for_its_columns():
    """But `collect --policy`, which goes on with a file that `collect` made."""
    verbs = {verb for verb in VERBS if "data" in {field.name for field in dataclasses.fields(load_verb(verb))}}
    assert {verb for verb in verbs if "named" in load_verb(verb).__dataclass_fields__} == verbs - {"collect"}
    options = parse("evaluate tworoom --data theirs.h5 --columns pixels=image,state=proprio")
    assert options.named.of(TASKS["tworoom"]).columns == {"pixels": ("image",), "state": ("proprio",)}


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

    def made(*words: str) -> dict[str, Any]:
        """The one JSON object on stdout."""
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    data = made("collect", "tworoom", "--scale", "tiny", "--episodes", "24", "--steps", "40", "--workers", "1")
    assert data == {"path": "runs/tworoom/data.h5", "episodes": 24, "steps": 40, "bytes": data["bytes"]}
    trained = made("world", "train", "tworoom", "--scale", "tiny", "--steps", "30")
    assert trained["digest"] == load_world("runs/tworoom/world").digest
    assert trained["metrics"]["held_out_error"] > 0
    assert set(made("world", "probe", "runs/tworoom/world")["rmse"]) == {"agent_x", "agent_y"}
    assert made("cache", "tworoom")["latents"] == 24 * 9
    assert made("world", "finetune", "tworoom", "--scale", "tiny", "--steps", "4")["path"] == "runs/tworoom/finetuned"
    finetuned = ["--world", "runs/tworoom/finetuned"]
    world = load_world("runs/tworoom/finetuned")
    cache = open_cache("runs/tworoom/latents", world.encoder_digest)
    assert cache.latents.shape == (24 * 9, 32)
    density = made("density", "tworoom", "--scale", "tiny", "--steps", "20", *finetuned)
    assert density["threshold"] == load_density("runs/tworoom/density").threshold
    assert main(["train", "tworoom", "--scale", "tiny", "--steps", "20", *finetuned]) == 0
    shown = capsys.readouterr().out
    assert "arrival by k" in shown
    learned = made("baselines", "tworoom", "--scale", "tiny", "--steps", "20", "--methods", "GCIDM", *finetuned)
    assert list(learned["methods"]) == ["gcidm"]
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


@pytest.mark.parametrize(
    ("platform", "variables", "terminal", "expected"),
    [
        ("linux", {"DISPLAY": ":0"}, True, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ("linux", {}, True, False),
        ("linux", {"DISPLAY": ":0", "CI": "true"}, True, False),
        ("linux", {"DISPLAY": ":0"}, False, False),
        ("darwin", {}, True, True),
        ("darwin", {"SSH_CONNECTION": "a b"}, True, False),
    ],
)
def test_a_page_is_opened_only_in_front_of_somebody(platform, variables, terminal, expected, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "CI", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(demo.sys, "platform", platform)
    monkeypatch.setattr(demo, "console", type("Terminal", (), {"is_terminal": terminal}))
    assert demo.has_display() == expected


class InProcess:
    concurrency = 1

    def run(self, work, jobs):
        yield from map(work, jobs)


def test_the_demo_ends_with_a_page_in_the_working_folder(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "make_executor", InProcess)
    monkeypatch.setattr(runner, "_worker", worker := {})
    opened = []
    monkeypatch.setattr(demo.webbrowser, "open", opened.append)
    monkeypatch.setattr(demo, "has_display", lambda: True)
    command = ["demo", "--tasks", "TwoRoom", "--trials", "1", "--samples", "20", "--rounds", "1"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown.strip().endswith(f"report: {DEMO / 'report.html'}")
    assert "1/1" in shown
    assert opened == [(tmp_path / DEMO / "report.html").as_uri()]
    rows = (DEMO / "tworoom" / "rows.jsonl").read_bytes()
    assert main([*command, "--json"]) == 0  # continues, which means that nothing is left to do
    assert json.loads(capsys.readouterr().out)["report"] == str(DEMO / "report.html")
    assert len(opened) == 1  # nobody looks at JSON
    assert not parse("demo --no-open").open
    assert (DEMO / "tworoom" / "rows.jsonl").read_bytes() == rows
    assert main([*command, "--samples", "30"]) == 1
    assert "20 x 1" in (answer := capsys.readouterr().err)
    assert "Choose another --out, or delete that folder." in answer
    worker["sim"].close()


def test_a_family_that_is_named_by_its_module_is_known_to_every_verb(forgets_registrations):
    """Also to those that never ask for its preset, and only load a world of it."""
    FAMILIES._items.pop("linear", None)
    parse("cache tworoom --family own_families:LINEAR")
    assert "linear" in FAMILIES
    with pytest.raises(ValueError, match="Did you mean 'lewm'"):
        parse("cache tworoom --family lewn")
