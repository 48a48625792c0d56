"""Ablations: variants of one planner over the same trials, resumable, compared in pairs."""

from __future__ import annotations

import json

import pytest
from support import CPU, encode_with

from leplanner.artifacts import read_json
from leplanner.cli.main import main
from leplanner.data.cache import build_cache
from leplanner.density.train import train_density
from leplanner.pipeline import ablations
from leplanner.pipeline.ablations import REFERENCE, VARIANTS, get_variants
from leplanner.pipeline.presets import get_preset
from leplanner.report import figures
from leplanner.report.page import write_page
from leplanner.tasks import TASKS
from leplanner.worlds import save_world


@pytest.fixture(scope="module")
def prepared(tiny_world, tworoom, tworoom_file, tmp_path_factory):
    base = tmp_path_factory.mktemp("ablation")
    save_world(tiny_world, base / "world")
    encoder = (encode_with(tiny_world), tiny_world.latent, tiny_world.encoder_digest)
    cache = build_cache(tworoom, *encoder, base / "latents")
    config = get_preset(TASKS["tworoom"], "tiny").density
    train_density(tiny_world, cache, config, base / "density", CPU)
    words = ["ablate", "tworoom", "--scale", "tiny", "--steps", "4", "--trials", "2", "--workers", "1"]
    words += ["--data", str(tworoom_file), "--out", str(base / "out")]
    for name in ("world", "latents", "density"):
        words += [f"--{name}", str(base / name)]
    return base, words


def test_variants_are_trained_run_and_compared(prepared, capsys):
    base, words = prepared
    assert main([*words, "--variants", "fixed-terminal"]) == 0
    assert "fixed-terminal" in capsys.readouterr().out
    table = read_json(base / "out" / "ablation.json")
    assert [row["name"] for row in table["variants"]] == [REFERENCE, "fixed-terminal"]
    reference, other = table["variants"]
    for m in ("1", "5"):
        assert reference["difference"][m]["difference"] == 0
        assert other["success"][m]["trials"] == 2
    configs = [
        read_json(base / "out" / folder / "seed0" / "planner" / "config.json")
        for folder in (REFERENCE, "fixed-terminal")
    ]
    assert [config["training"]["config"]["objective"] for config in configs] == ["arrival-hold", "fixed-terminal"]


def test_what_is_finished_is_not_repeated_and_variants_can_be_added(prepared, monkeypatch, capsys):
    _, words = prepared
    assert main([*words, "--variants", "K=0", "--json"]) == 0  # the earlier ones stay
    before = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(ablations, "_make", lambda *job: pytest.fail("trained again"))  # nothing is left to train
    assert main([*words, "--variants", "K=0,fixed-terminal", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["variants"] == before["variants"]
    assert [row["name"] for row in before["variants"]] == [REFERENCE, "fixed-terminal", "K=0"]
    assert main([*words, "--variants", "K=0"]) == 0
    assert "none" in capsys.readouterr().out.split("K=0")[1]  # no corrections, so none within or without support
    words = [*words]
    words[words.index("--steps") + 1] = "5"
    assert main(words) == 1
    assert "other settings" in capsys.readouterr().err
    assert main([*words, "--variants", "no hold"]) == 1


def test_seeds_are_added_and_averaged(prepared, capsys):
    base, words = prepared
    assert main([*words, "--variants", "fixed-terminal", "--seeds", "0,1", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["variants"]}
    assert rows[REFERENCE]["seeds"] == [0, 1]
    assert rows["K=0"]["seeds"] == [0]
    for m in ("1", "5"):
        rate = rows[REFERENCE]["success"][m]
        outcomes = [
            read_json(base / "out" / REFERENCE / f"seed{seed}" / "result.json")["outcomes"]["any"][m] for seed in (0, 1)
        ]
        assert rate["by_seed"] == [sum(won) / 2 for won in outcomes]
        assert rate["trials"] == 4
    first, second = (read_json(base / "out" / REFERENCE / f"seed{seed}" / "result.json") for seed in (0, 1))
    assert first["imagined"]["profile"] != second["imagined"]["profile"]


def test_the_table_becomes_a_figure_and_a_section(prepared, tmp_path):
    base, _ = prepared
    table = read_json(base / "out" / "ablation.json")
    figure = figures.hold_ablation(table, "TwoRoom")
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == [row["name"] for row in table["variants"]]
    assert "TwoRoom: ablations" in write_page([base / "out"], tmp_path / "page.html").read_text()


def test_the_papers_ablations_are_there():
    preset = get_preset(TASKS["tworoom"], "tiny")
    changed = {name: variant.apply(preset.planner, preset.training) for name, variant in VARIANTS.items()}
    assert {config.hold_weight for _, config in changed.values()} == {0.0, 0.25, 0.5, 1.0}
    assert {shape.refinements for shape, _ in changed.values()} == {0, 1, 2, 3}
    assert changed["no support"][1].support_weight == 0
    assert changed["fixed-terminal"][1].path_weight == 0 < changed["fixed-terminal path"][1].path_weight
    assert [variant.name for variant in get_variants("K=1")] == [REFERENCE, "K=1"]


def test_no_variant_tracks_the_reference_trajectory():
    preset = get_preset(TASKS["pusht"], "compact")
    assert preset.training.tracking_weight > 0
    for variant in VARIANTS.values():
        assert variant.apply(preset.planner, preset.training)[1].tracking_weight == 0
