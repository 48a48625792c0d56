"""The behavior density: a real density, on any scale, calibrated on held-out blocks, stored and restored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import CPU, synthetic_episodes

from leplanner.core.config import changed
from leplanner.core.latent import LatentSpec
from leplanner.data.cache import LatentCache
from leplanner.data.windows import plan_windows
from leplanner.density.mixture import Density, DensityConfig, MixtureDensity, load_density, save_density
from leplanner.density.train import DensityTrainConfig, held_out_scores, train_density

SETTINGS = changed(DensityTrainConfig(), components=4, width=32, steps=30, batch=64, validate_every=10)


def mixture(block_dim: int, seed: int = 0, **changes) -> MixtureDensity:
    torch.manual_seed(seed)
    return MixtureDensity(DensityConfig(**changes), LatentSpec((4,)), context=3, block_dim=block_dim)


@pytest.mark.parametrize("block_dim", [1, 2])
def test_it_normalizes_on_a_grid(block_dim):
    model, context = mixture(block_dim), torch.randn(3, 4)
    axis = torch.linspace(-12, 12, 601)
    grid = torch.cartesian_prod(*[axis] * block_dim).view(-1, block_dim)
    with torch.no_grad():
        density = torch.exp(-block_dim * model.score(context.expand(len(grid), 3, 4), grid))
    assert density.sum() * (axis[1] - axis[0]) ** block_dim == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("floor", "deviation"),
    [(0.0, torch.exp), (0.05, lambda spread: 0.05 + torch.nn.functional.softplus(spread))],
)
def test_the_score_is_the_negative_log_density_a_dimension(floor, deviation):
    """One component: the closed form of a Gaussian, as in the paper (logarithms of deviations) and with a floor."""
    model = mixture(3, components=1, min_std=floor)
    context, block = torch.randn(5, 3, 4), torch.randn(5, 3)
    _, mean, spread = model.net(context.flatten(1)).split([1, 3, 3], dim=1)
    std = deviation(spread)
    expected = (0.5 * ((block - mean) / std) ** 2 + std.log() + 0.5 * np.log(2 * np.pi)).mean(dim=1)
    assert torch.allclose(model.score(context, block), expected, atol=1e-5)


def test_gradients_reach_every_parameter_the_blocks_and_the_contexts():
    model = mixture(10)
    context, blocks = torch.randn(64, 3, 4, requires_grad=True), torch.randn(64, 10, requires_grad=True)
    model.score(context, blocks).mean().backward()
    for tensor in (*model.parameters(), context, blocks):
        assert tensor.grad.abs().max() > 0


def test_tiny_variances_stay_finite():
    """Components collapsed onto one block, and a block far away from all of them."""
    model = mixture(10, min_std=0.05)
    with torch.no_grad():
        model.net[2].weight.zero_()
        model.net[2].bias[16 + 160 :].fill_(-200.0)
    blocks = torch.full((2, 10), 1e3, requires_grad=True)
    score = model.score(torch.zeros(2, 3, 4), blocks)
    score.sum().backward()
    assert score.isfinite().all()
    assert blocks.grad.isfinite().all()
    assert model(torch.zeros(1, 3, 4)).component_distribution.stddev.min().item() == pytest.approx(0.05)


def test_it_learns_two_modes():
    """Blocks of +1 or -1 by chance: a mixture puts mass at both and little between."""
    torch.manual_seed(0)
    model = mixture(2, components=4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(300):
        sign = torch.randint(0, 2, (128, 1)) * 2.0 - 1
        loss = model.score(torch.zeros(128, 3, 4), sign + 0.1 * torch.randn(128, 2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    low, middle, high = model.score(torch.zeros(3, 3, 4), torch.tensor([[-1.0, -1], [0, 0], [1, 1]])).tolist()
    assert max(low, high) + 1 < middle


@pytest.fixture(scope="module")
def fitted(tiny_world, tiny_cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("density")
    return train_density(tiny_world, tiny_cache, SETTINGS, folder, CPU), folder


def test_about_five_percent_of_held_out_blocks_lie_above_the_threshold(tiny_world, rng, tmp_path):
    """400 episodes of random latents whose blocks depend on them; the blocks counted are
    drawn apart from calibration."""
    episodes = synthetic_episodes(rng, lengths=(12,) * 400, steps_per_row=5)
    latents = rng.normal(size=(episodes.rows, 32)).astype(np.float16)
    actions = 0.3 * np.tanh(latents[:, None, :2] + 0.5 * rng.normal(size=(episodes.rows, 5, 2)))
    episodes = replace(episodes, actions=actions.astype(np.float32))
    cache = LatentCache(latents, episodes, tiny_world.encoder_digest, "synthetic")
    density = train_density(tiny_world, cache, changed(SETTINGS, steps=60), tmp_path, CPU)
    scores = held_out_scores(density.model, plan_windows(tiny_world, cache)[1], seed=7)
    assert np.mean(scores > density.threshold) == pytest.approx(0.05, abs=0.01)


def test_it_is_stored_and_restored(fitted):
    density, folder = fitted
    again = load_density(folder)
    assert (again.digest, again.threshold) == (density.digest, density.threshold)
    assert not any(parameter.requires_grad for parameter in again.model.parameters())
    context, blocks = torch.randn(2, 3, 32), torch.randn(2, 10)
    assert torch.equal(again.score(context, blocks), density.score(context, blocks))


def test_a_stopped_fit_continues_bit_for_bit(fitted, tiny_world, tiny_cache, tmp_path):
    train_density(tiny_world, tiny_cache, SETTINGS, tmp_path, CPU, stop_after=13)
    assert not (tmp_path / "config.json").exists()
    assert train_density(tiny_world, tiny_cache, SETTINGS, tmp_path, CPU).digest == fitted[0].digest


def test_damage_and_other_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="leplanner density TASK"):
        load_density(tmp_path)
    save_density(Density(mixture(10), 1.5), tmp_path)
    save_density(Density(mixture(10, seed=1), 1.5), tmp_path / "other")
    (tmp_path / "density.safetensors").write_bytes((tmp_path / "other" / "density.safetensors").read_bytes())
    with pytest.raises(ValueError, match="digest"):
        load_density(tmp_path)


def test_a_cache_of_another_encoder_is_refused(tiny_world, tiny_cache, tmp_path):
    other = LatentCache(tiny_cache.latents, tiny_cache.episodes, "0" * 64, tiny_cache.data_digest)
    with pytest.raises(ValueError, match="made by another encoder"):
        train_density(tiny_world, other, SETTINGS, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_learning_rate_that_diverges_stops_before_the_checkpoint_is_touched(tiny_world, tiny_cache, tmp_path):
    train_density(tiny_world, tiny_cache, SETTINGS, tmp_path, CPU, stop_after=5)
    checkpoint = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    checkpoint["state"]["net.0.bias"].fill_(float("nan"))
    torch.save(checkpoint, tmp_path / "checkpoint.pt")
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(FloatingPointError, match="step 5"):
        train_density(tiny_world, tiny_cache, SETTINGS, tmp_path, CPU)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    with pytest.raises(ValueError, match="another configuration"):
        train_density(tiny_world, tiny_cache, changed(SETTINGS, seed=1), tmp_path, CPU)
