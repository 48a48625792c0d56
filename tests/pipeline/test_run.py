"""`leplanner run`, videos and pages: one command from nothing to a measured bundle."""

from __future__ import annotations

import json
import re
import shutil

import h5py
import numpy as np
import pytest

import leplanner as lp
from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.core.actions import ActionSpec
from leplanner.evaluation.videos import PlanTraceLog, Video, load_video, video_path
from leplanner.pipeline.bundle import make_bundle
from leplanner.report.browser import outcome_text
from leplanner.report.card import Making
from leplanner.report.page import write_page
from leplanner.tasks import TASKS
from leplanner.worlds import World, WorldSpec
from leplanner.worlds.lewm.encoders import ViTConfig
from leplanner.worlds.lewm.family import FAMILY
from leplanner.worlds.lewm.model import LeWMConfig


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    base = tmp_path_factory.mktemp("run")
    words = ["run", "tworoom", "--scale", "tiny", "--trials", "3", "--search-trials", "0", "--out", str(base)]
    assert main(words) == 0
    return base, words


def table_lines(summary) -> list[list[str]]:
    """Every cell of the results, as the card must show them."""
    titles = {"leplanner": "LePlanner", "leplanner-reuse": "LePlanner-reuse", "gcidm": "GC-IDM"}
    titles |= {"no-op": "no-op", "replay": "replay of the data"}
    lines = []
    for m in summary["methods"]:
        pace = f"m = {m['replan']}" if m["replan"] else "every action"
        rates = [m["rates"][name] for name in ("any", "final", "held", "moderate", "strict")]
        shown = [f"{100 * r['value']:.1f} ({100 * r['low']:.0f}-{100 * r['high']:.0f})" for r in rates]
        lines.append([titles.get(m["method"], m["method"]), pace, str(m["trials"]), *shown])
    return lines


def test_run_makes_a_bundle_with_its_card(finished):
    base, _ = finished
    assert {path.name for path in (base / "bundle").iterdir()} == {
        *("config.json", "world.safetensors", "planner.safetensors", "density.safetensors"),
        *("README.md", "manifest.json", "evaluation.json", "easy.json"),
    }
    planner = lp.load(base / "bundle")
    assert planner.digest == lp.load(base / "planner").digest
    card = (base / "bundle" / "README.md").read_text()
    summary = read_json(base / "bundle" / "evaluation.json")
    assert summary["manifest"] in card
    assert "tiny scale" in card
    assert "leplanner run tworoom --scale tiny --recipe best --family lewm --trials 3 --search-trials 0" in card
    assert "48 episodes of 50 actions" in card
    for line in table_lines(summary):
        assert f"| {' | '.join(line)} |" in card


def test_run_again_skips_every_stage(finished, capsys, monkeypatch):
    base, words = finished
    kept = {path: path.stat().st_mtime_ns for path in base.rglob("*.*") if path.parent.name != "bundle"}
    rewritten = ("summary.json", "run.json", "report.html", ".lock")
    kept = {path: stamp for path, stamp in kept.items() if path.name not in rewritten}
    assert {"rows.jsonl", "checkpoint.pt", "latents.npy", "data.h5"} <= {path.name for path in kept}
    card = (base / "bundle" / "README.md").read_text()
    assert main(words) == 0
    again = {path: path.stat().st_mtime_ns for path in kept if path.name != "checkpoint.pt"}
    assert again == {path: stamp for path, stamp in kept.items() if path in again}
    assert (base / "bundle" / "README.md").read_text() == card
    assert "minutes, over all calls" in capsys.readouterr().out


def test_a_released_world_needs_its_own_dataset(tmp_path, capsys):
    assert main(["run", "tworoom", "--world", "someone/lewm-tworoom", "--out", str(tmp_path)]) == 1
    assert "--world needs --data" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_data_that_on_policy_episodes_cannot_be_added_to_is_refused_at_once(finished, tmp_path, capsys):
    for data in (finished[0] / "data.h5", finished[0]):  # another task's, and no file
        assert main(["run", "pusht", "--scale", "tiny", "--data", str(data), "--out", str(tmp_path)]) == 1
        assert "cannot be continued" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_stages_that_were_made_by_hand_are_refused_at_once(tmp_path, capsys):
    """A run that trains on policy makes them from other data, an hour later."""
    (tmp_path / "latents").mkdir()
    assert main(["run", "pusht", "--scale", "tiny", "--out", str(tmp_path)]) == 1
    assert f"{tmp_path / 'latents'} is of another run" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["latents"]
    (tmp_path / "on_policy.h5").touch()  # by a planner that is not of this run
    assert main(["run", "pusht", "--scale", "tiny", "--out", str(tmp_path)]) == 1
    assert f"{tmp_path / 'on_policy.h5'}, {tmp_path / 'latents'} are of another run" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize("wrong", [("--trials", "0"), ("--search-trials", "-1")])
def test_what_the_last_stage_would_refuse_is_refused_at_once(tmp_path, capsys, wrong):
    assert main(["run", "tworoom", "--scale", "tiny", "--out", str(tmp_path), *wrong]) == 1
    assert f"got {'0 and 50' if wrong[0] == '--trials' else '200 and -1'}" in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_data_without_states_is_refused_at_once(finished, tmp_path, capsys):
    data = tmp_path / "blind.h5"
    shutil.copyfile(finished[0] / "data.h5", data)
    with h5py.File(data, "r+") as opened:
        del opened["state"]
    out = tmp_path / "out"
    assert main(["run", "tworoom", "--scale", "tiny", "--data", str(data), "--out", str(out)]) == 1
    assert "no physical states" in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def write_released(source, target):
    """TwoRoom's layout as released, with a column of another name and larger frames: every pixel twice."""
    with h5py.File(source, "r") as ours, h5py.File(target, "w") as theirs:
        for name in ("action", "ep_len", "ep_offset"):
            theirs[name] = ours[name][:]
        theirs["image"] = ours["pixels"][:].repeat(2, axis=1).repeat(2, axis=2)
        theirs["proprio"], theirs["ep_idx"] = ours["state"][:], ours["episode_idx"][:]
        theirs.attrs["steps_per_row"] = ours.attrs["steps_per_row"]
    return str(target)


def test_run_on_a_released_world(finished, tmp_path, capsys):
    """The same pipeline with a checkpoint in the hub's format and its dataset."""
    shape = LeWMConfig(encoder=ViTConfig(32, 16, 192, 12, 3), depth=1, heads=2, head_dim=16, mlp=64, projector=32)
    actions = ActionSpec((0.0, 0.0), (1.0, 1.0), (-1.0, -1.0), (1.0, 1.0), block=5)
    world = World.build(WorldSpec("lewm", "tworoom", shape, actions))
    FAMILY.export_release(world, tmp_path / "release")
    data = write_released(finished[0] / "data.h5", tmp_path / "tworoom.h5")
    words = [
        "run",
        "tworoom",
        "--scale",
        "tiny",
        "--columns",
        "pixels=image",
        "--world",
        str(tmp_path / "release"),
        "--trials",
        "1",
    ]
    words += ["--search-trials", "0", "--out", str(tmp_path / "run")]
    assert main([*words, "--data", data]) == 0
    assert not (tmp_path / "run" / "finetuned").exists()
    card = (tmp_path / "run" / "bundle" / "README.md").read_text()
    assert f"World: imported from {tmp_path / 'release'}" in card
    assert "--data tworoom.h5 --columns pixels=image" in card
    assert "Frames of the data are 64 px large, and were resized to 32 px (bilinear)." in card
    planner = lp.load(tmp_path / "run" / "bundle")
    assert planner.world.spec.network == shape
    assert planner.world.spec.actions.std != (1.0, 1.0)  # the dataset's
    capsys.readouterr()
    words[words.index("--world") + 1] = "someone/else"
    assert main([*words, "--data", data]) == 1
    assert "someone/else" in capsys.readouterr().err


def test_a_bundle_is_of_the_weights_that_were_measured(finished, tmp_path):
    base, _ = finished
    evaluation = base / "measured"
    summary = read_json(evaluation / "summary.json")
    for method in summary["methods"]:
        method["weights"] = "others"
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    making = Making("", "tiny", "best", "lewm", base / "data.h5", {})
    with pytest.raises(ValueError, match="other weights"):
        make_bundle(TASKS["tworoom"], base / "planner", tmp_path, base / "data.h5", making, base / "bundle")
    (tmp_path / "summary.json").write_text(json.dumps(read_json(evaluation / "summary.json") | {"errors": 2}))
    with pytest.raises(ValueError, match="2 trials"):
        make_bundle(TASKS["tworoom"], base / "planner", tmp_path, base / "data.h5", making, base / "bundle")
    assert lp.load(base / "bundle")


def test_a_bundle_keeps_what_else_is_in_its_folder(finished, tmp_path):
    base, _ = finished
    making = Making("leplanner run tworoom", "tiny", "best", "lewm", base / "data.h5", {"World": base / "world"})
    out = tmp_path / "bundle"

    def make():
        return make_bundle(TASKS["tworoom"], base / "planner", base / "measured", base / "data.h5", making, out)

    card = (make() / "README.md").read_text()
    make()
    assert not (out / "README.previous.md").exists()  # the same card
    (out / "notes.txt").write_text("mine")
    (out / "README.md").write_text(f"{card}edited")
    (out / "density.safetensors").write_text("of an earlier bundle")
    make()
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "README.previous.md").read_text() == f"{card}edited"
    assert (out / "README.md").read_text() == card
    assert lp.load(out).digest == lp.load(base / "planner").digest
    (out / "README.md").write_text("edited again")
    make()
    assert (out / "README.previous.md").read_text() == f"{card}edited"
    assert (out / "README.previous1.md").read_text() == "edited again"


def test_videos_show_what_the_rows_say(finished):
    base, _ = finished
    folder = base / "measured"
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert len(list((folder / "videos").iterdir())) == len(rows)
    for row in rows:
        identity = [row[name] for name in ("method", "replan", "trial", "manifest", "seed", "settings", "weights")]
        video = load_video(video_path(folder, *identity))
        assert video.frames.shape == (26, 160, 160, 3)
        assert video.steps.tolist() == list(range(0, 51, 2))
        assert video.error[-1] == pytest.approx(row["outcome"]["final_error"])
        assert bool(video.reached[1:].any()) == row["outcome"]["any"]
        assert bool(video.reached[-5:].all()) == row["outcome"]["held"]
        if row["outcome"]["any"]:
            assert f"reached at step {row['outcome']['first_success']}," in outcome_text(video, "px")


def test_the_page_has_every_number_and_video(finished):
    base, _ = finished
    page = (base / "report.html").read_text()
    summary = read_json(base / "bundle" / "evaluation.json")
    for line, method in zip(table_lines(summary), summary["methods"], strict=True):
        rates = [method["rates"][name] for name in ("any", "final", "held", "moderate", "strict")]
        counts = [f"{rate['successes']} of {rate['trials']}" for rate in rates]  # intervals of 3 trials say nothing
        assert "".join(f"<td>{cell}</td>" for cell in line[:3] + counts) in page
    (data,) = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert [trial["goal"][:15] for trial in data["trials"]] == ["data:image/png;"] * 3
    frames = [row["video"]["frames"] for trial in data["trials"] for row in trial["rows"]]
    assert [uri[:16] for uri in frames] == ["data:image/webp;"] * 3 * len(summary["methods"])
    assert not re.search(r'(src|href|srcset)="(?!data:|#)', page)  # nothing from elsewhere
    with pytest.raises(ValueError, match=r"summary\.json"):
        write_page([base], base / "nothing.html")


def test_a_page_says_what_makes_a_comparison_uneven(finished, tmp_path):
    base, _ = finished
    folder = base / "measured"
    summary = read_json(folder / "summary.json")
    summary["methods"][-1]["trials"] = 2
    summary["errors"] = 1
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    page = write_page([tmp_path], tmp_path / "page.html").read_text()
    assert "ran only the first 2 of the 3 trials" in page
    assert "1 trials raised" in page


def test_an_outcome_says_when_the_goal_is_reached():
    frames = np.zeros((3, 16, 16, 3), np.uint8)
    reached = np.array([False, True, False, False, False])
    seen, error = (frames, np.array([0, 2, 4]), frames[0], np.eye(16, dtype=bool)), np.array([9.0, 1.0, 3.0, 4.0, 5.0])
    video = Video(*seen, reached, error, np.zeros((5, 2)), PlanTraceLog.none())
    assert outcome_text(video, "px") == "reached at step 1, did not stay; 5 px away at the end"


@pytest.mark.slow
@pytest.mark.timeout(900)  # four minutes where cores are shared
def test_a_task_that_trains_on_policy(tmp_path, capsys):
    """The planner collects, the world is finetuned on what it did, and the planner is trained on, round by round."""
    words = ["run", "pusht", "--scale", "tiny", "--trials", "1", "--search-trials", "0", "--out", str(tmp_path)]
    assert main(words) == 0
    early, late = (read_json(tmp_path / name / "planner" / "config.json") for name in ("round-0", "."))
    assert late["provenance"]["inputs"]["init"]
    assert (late["training"]["config"]["recovery_prob"], late["training"]["config"]["curriculum"]) == (0.15, "0:5")
    assert late["digest"] != early["digest"]
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert card.count("On-policy data: 16 episodes of 50 actions") == 2
    assert [f"- Planner, round {number}: " in card for number in range(1, 4)] == [True, True, False]
    capsys.readouterr()
    assert main(words) == 0  # everything is there
