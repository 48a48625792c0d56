"""Latents: vectors are read as they are, tokens through a small network that sees all of them."""

from __future__ import annotations

import pytest
import torch

from leplanner.core.latent import LatentSpec, TokenReader


def test_shapes_sizes_and_axes():
    vector, tokens = LatentSpec((7,)), LatentSpec((4, 6))
    assert (vector.size, vector.axes) == (7, (-1,))
    assert (tokens.size, tokens.axes) == (24, (-2, -1))
    assert torch.zeros(2, 3, 4, 6).sum(dim=tokens.axes).shape == (2, 3)


@pytest.mark.parametrize("shape", [(), (0,), (4, 0), (2, 3, 4)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"\(D,\) or \(P, C\)"):
        LatentSpec(shape)


def test_a_vector_is_read_as_it_is_without_parameters():
    reader, size = LatentSpec((7,)).reader(32)
    latents = torch.randn(2, 3, 7)
    assert size == 7
    assert reader(latents) is latents
    assert list(reader.parameters()) == []


@pytest.mark.parametrize("width", [32, 30])
def test_tokens_become_one_vector_whatever_comes_before(width):
    reader, size = LatentSpec((5, 6)).reader(width)
    assert size == width
    for batch in ((), (3,), (2, 3)):
        assert reader(torch.randn(*batch, 5, 6)).shape == (*batch, width)


def test_gradients_reach_every_token_and_every_parameter():
    reader = TokenReader(LatentSpec((5, 6)), width=16)
    latents = torch.randn(3, 5, 6, requires_grad=True)
    reader(latents).square().sum().backward()
    assert (latents.grad.abs().amax(dim=-1) > 0).all()
    for name, parameter in reader.named_parameters():
        assert parameter.grad.abs().max() > 0, name


def test_the_reader_knows_tokens_apart_and_latents_do_not_mix():
    torch.manual_seed(0)
    reader = TokenReader(LatentSpec((5, 6)), width=16)
    latents = torch.randn(2, 5, 6)
    assert not torch.allclose(reader(latents), reader(latents.flip(1)), atol=1e-4)
    alone = torch.stack([reader(latent) for latent in latents])
    assert torch.allclose(reader(latents), alone, atol=1e-6)


def test_it_soon_learns_where_the_token_is_that_differs():
    """As a planner must: one small thing in a grid of background."""
    torch.manual_seed(0)
    reader = TokenReader(LatentSpec((16, 8)), width=32)
    readout = torch.nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*reader.parameters(), *readout.parameters()], 3e-3)
    background, thing, places = torch.randn(16, 8), torch.randn(8), torch.arange(16)
    latents = background.repeat(16, 1, 1)
    latents[places, places] = thing
    grid = torch.stack([places // 4, places % 4], dim=1).float() / 1.5 - 1
    for _ in range(60):
        error = (readout(reader(latents)) - grid).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    assert error < 0.02
