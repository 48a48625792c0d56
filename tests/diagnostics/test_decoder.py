"""The decoder probe: honest measures, no part in acting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support import CPU, encode_with

from leplanner.cli.main import main
from leplanner.core.config import changed
from leplanner.data.cache import build_cache
from leplanner.diagnostics.decoder import (
    DecoderConfig,
    DecoderTrainConfig,
    PatchDecoder,
    load_decoder,
    ssim,
    train_decoder,
)
from leplanner.diagnostics.panels import panel
from leplanner.evaluation.manifest import draw_manifest
from leplanner.planner.planner import save_bundle
from leplanner.report.page import write_page
from leplanner.tasks import TASKS
from leplanner.worlds import World

CONFIG = changed(DecoderTrainConfig(), steps=150, batch=32, validate_every=75, learning_rate=3e-3)


@pytest.fixture(scope="module")
def trained(tiny_world, tworoom, tmp_path_factory):
    out = tmp_path_factory.mktemp("decoder")
    shape = DecoderConfig(tiny_world.latent.size, 32)
    return train_decoder(tiny_world, tworoom, shape, CONFIG, out, CPU), out


def test_ssim_has_its_closed_forms():
    rng = np.random.default_rng(0)
    noise = rng.random((24, 24, 3))
    assert ssim(noise, noise) == pytest.approx(1.0)
    for a, b in ((0.2, 0.7), (0.0, 1.0)):
        flat = np.full((24, 24, 3), a), np.full((24, 24, 3), b)
        assert ssim(*flat) == pytest.approx((2 * a * b + 1e-4) / (a * a + b * b + 1e-4), abs=1e-9)
    assert ssim(noise, 1 - noise) < 0


def test_patches_stand_where_they_belong():
    model = PatchDecoder(DecoderConfig(latent_size=4, frame_size=16, patch=8))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.bias.view(4, -1)[:, 0] = torch.arange(1.0, 5.0)  # a patch's one answer is its number
        model.draw[1].weight[0, 0] = 1.0
        model.draw[3].weight[:, 0] = 1.0
        model.draw[3].bias.copy_(10 * torch.arange(192.0))  # and its pixels have numbers of their own
        number = torch.nn.functional.gelu(torch.nn.functional.gelu(torch.arange(1.0, 5.0)))
    drawn = model(torch.zeros(1, 4))[0]
    pixels = 10 * torch.arange(192.0).view(8, 8, 3)
    for patch, (top, left) in enumerate(((0, 0), (0, 8), (8, 0), (8, 8))):
        torch.testing.assert_close(drawn[top : top + 8, left : left + 8], pixels + number[patch])
    with pytest.raises(ValueError, match="do not divide"):
        PatchDecoder(DecoderConfig(latent_size=4, frame_size=20))


def test_it_draws_nearer_than_the_mean_frame(trained):
    decoder, _ = trained
    score = decoder.fidelity
    assert score["ratio"] > 1.1
    assert score["psnr"] == pytest.approx(-10 * np.log10(score["mse"]))
    assert score["ratio"] == pytest.approx(score["mean_image_mse"] / score["mse"])


def test_it_is_saved_whole_and_belongs_to_an_encoder(trained, tiny_world):
    decoder, out = trained
    again = load_decoder(out, tiny_world)
    latents = torch.randn(3, *tiny_world.latent.shape)
    np.testing.assert_array_equal(again.model.frames(latents), decoder.model.frames(latents))
    other = World.build(tiny_world.spec)
    with pytest.raises(ValueError, match="another encoder"):
        load_decoder(out, other)
    with pytest.raises(ValueError, match="No decoder"):
        load_decoder(out / "nowhere")


def test_a_stopped_training_continues_to_the_same_weights(trained, tiny_world, tworoom, tmp_path):
    decoder, out = trained
    shape = DecoderConfig(tiny_world.latent.size, 32)
    train_decoder(tiny_world, tworoom, shape, CONFIG, tmp_path, CPU, stop_after=60)
    assert not (tmp_path / "config.json").exists()
    again = train_decoder(tiny_world, tworoom, shape, CONFIG, tmp_path, CPU)
    for one, two in zip(decoder.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    with pytest.raises(ValueError, match="did not make"):
        train_decoder(tiny_world, tworoom, shape, changed(CONFIG, seed=1), out, CPU)


def test_a_panel_compares_what_was_imagined_with_what_happened(trained, tiny_planner, tworoom, simulators):
    decoder, _ = trained
    sim = simulators("tworoom")
    spec = tiny_planner.world.spec
    sizes = {"block": spec.actions.block, "context": spec.context}
    trial = draw_manifest(TASKS["tworoom"], tworoom, 1, 0, "official", **sizes).trials[0]
    shown = panel(tiny_planner, decoder, sim, trial)
    sim.set_state(np.array(trial.goal_state))
    np.testing.assert_array_equal(shown.goal, sim.render(32))
    real = tiny_planner.encode(shown.actual)
    np.testing.assert_array_equal(shown.reencoded, decoder.model.frames(real))
    assert shown.imagined.shape == shown.actual.shape == (5, 32, 32, 3)
    assert shown.terminal.shape == (4, 32, 32, 3)
    assert shown.drift.shape == (5,)
    np.testing.assert_array_equal(shown.terminal[-1], shown.imagined[-1])


def test_the_verbs_draw_videos_and_panels(trained, tiny_planner, tworoom_file, tworoom, tmp_path, monkeypatch, capsys):
    _, out = trained
    monkeypatch.chdir(tmp_path)
    save_bundle(tiny_planner, tmp_path / "bundle")
    data = ["tworoom", "--bundle", "bundle", "--data", str(tworoom_file)]
    assert main(["decoder", *data, "--scale", "tiny", "--steps", "20"]) == 0
    assert "times), PSNR" in capsys.readouterr().out
    evaluation = ["--trials", "1", "--videos", "1", "--methods", "leplanner", "--replan", "1", "--workers", "1"]
    assert main(["evaluate", *data, *evaluation, "--out", "evaluation"]) == 0
    world = tiny_planner.world
    build_cache(tworoom, encode_with(world), world.latent, world.encoder_digest, tmp_path / "latents")
    drawn = ["--latents", "latents", "--trials", "1", "--out", "trace", "--videos", "evaluation", "--decoder"]
    assert main(["diagnose", *data, *drawn, str(out)]) == 0
    with np.load(next((tmp_path / "evaluation" / "imagined").iterdir())) as videos:
        assert videos["frames"].shape == (10, 5, 32, 32, 3)
    page = write_page([tmp_path / "evaluation", tmp_path / "trace"], tmp_path / "page.html").read_text()
    assert page.count("<figcaption>One whole plan, executed</figcaption>") == 1
    summary = tmp_path / "evaluation" / "summary.json"
    summary.write_text(summary.read_text().replace(tiny_planner.digest, "0" * 64))
    assert main(["diagnose", *data, *drawn, str(out)]) == 1
    assert "another bundle" in capsys.readouterr().err
