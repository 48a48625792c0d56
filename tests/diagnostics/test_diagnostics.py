"""Diagnostics: laws and closed forms, then the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from support import encode_with

from leplanner.cli.main import main
from leplanner.core.dynamics import imagination
from leplanner.core.problem import Plan, PlanProblem
from leplanner.data.cache import build_cache
from leplanner.data.windows import PlanBatch, plan_windows
from leplanner.density.mixture import Density, DensityConfig, MixtureDensity
from leplanner.diagnostics import closed_loop
from leplanner.diagnostics.closed_loop import fit_closed_loop
from leplanner.diagnostics.imagined import deeper_plans, imagined_tables
from leplanner.planner.planner import save_bundle
from leplanner.planner.validate import as_sample


@pytest.fixture
def batch(tiny_planner, tiny_cache) -> PlanBatch:
    _, held_out = plan_windows(tiny_planner.world, tiny_cache)
    return held_out.draw(np.random.default_rng(0), 24, 5)


def test_the_fit_finds_the_line_it_was_made_from():
    rows = []
    for start in (1.0, 0.7, 0.4):
        row = [start]
        for _ in range(8):
            row.append(0.4 * row[-1] + 0.03)
        rows.append(row)
    fit = fit_closed_loop(rows)
    assert fit.c == pytest.approx(0.4)
    assert fit.b == pytest.approx(0.03)
    assert fit.fixed_point == pytest.approx(0.05)
    assert fit.low == pytest.approx(0.05)
    assert fit.high == pytest.approx(0.05)
    assert fit.pairs == 24


def test_a_loop_that_diverges_has_no_fixed_point():
    fit = fit_closed_loop([[0.1, 0.2, 0.4, 0.8], [0.2, 0.4, 0.8, 1.6]])
    assert fit.c == pytest.approx(2.0)
    assert (fit.fixed_point, fit.low) == (None, None)
    with pytest.raises(ValueError, match="do not determine a line"):
        fit_closed_loop([[0.1, 0.1]])


def test_noise_widens_the_interval():
    rng = np.random.default_rng(0)
    rows = [
        [float(v) for v in 0.05 + rng.normal(0, 0.01, 6) + np.array([1, 0.5, 0.2, 0.1, 0.05, 0.02])] for _ in range(10)
    ]
    fit = fit_closed_loop(rows)
    assert fit.low < fit.fixed_point < fit.high
    assert fit == fit_closed_loop(rows)  # the same seed, the same interval


def test_within_its_trained_depth_a_deeper_loop_is_the_models_own(tiny_planner, batch):
    problem = as_sample(batch, torch.device("cpu")).problem
    imagine = imagination(tiny_planner.world, problem)
    with torch.no_grad():
        own = tiny_planner.model(problem, imagine)
        deeper = deeper_plans(tiny_planner.model, problem, imagine, 6)
    assert len(deeper) == 7
    for ours, theirs in zip(own, deeper, strict=False):
        torch.testing.assert_close(ours.blocks, theirs.blocks)


def test_tables_agree_with_each_other(tiny_planner, batch):
    spec = tiny_planner.world.spec
    mixture = MixtureDensity(DensityConfig(components=2, width=8), spec.latent, spec.context, spec.actions.block_dim)
    density = Density(mixture, threshold=-1e9)
    tables = imagined_tables(tiny_planner.model, tiny_planner.world, batch, density, depth=5)
    assert tables.problems == sum(tables.profile_counts) == 24
    assert [row.k for row in tables.depth] == list(range(6))
    assert tables.depth[1].gain == pytest.approx(tables.depth[0].terminal - tables.depth[1].terminal)
    ends = [row[-1] * n for row, n in zip(tables.profile, tables.profile_counts, strict=True) if row]
    assert sum(ends) / 24 == pytest.approx(tables.depth[3].terminal, rel=1e-4)
    assert tables.beside_the_data.plan_ends == pytest.approx(tables.depth[3].terminal, rel=1e-4)
    assert tables.off_support == 1.0  # nothing scores below such a threshold


def test_a_planner_that_does_what_the_data_did(tiny_planner, batch, monkeypatch):
    """Then both first blocks are one, and neither ends nearer."""
    taken = torch.from_numpy(batch.first_block)
    monkeypatch.setattr(tiny_planner.model, "decode", lambda Y: taken.unsqueeze(1).expand(-1, 5, -1))
    beside = imagined_tables(tiny_planner.model, tiny_planner.world, batch, None).beside_the_data
    assert beside.cosine_mean == pytest.approx(1.0, abs=1e-5)
    assert beside.difference == pytest.approx(0.0, abs=1e-6)
    assert beside.our_block_ends == pytest.approx(beside.data_block_ends, rel=1e-4)


def test_diagnose_writes_its_tables(tiny_planner, tworoom, tworoom_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    world = tiny_planner.world
    build_cache(tworoom, encode_with(world), world.latent, world.encoder_digest, tmp_path / "latents")
    save_bundle(tiny_planner, tmp_path / "bundle")
    arguments = ["diagnose", "tworoom", "--bundle", str(tmp_path / "bundle"), "--data", str(tworoom_file)]
    arguments += ["--latents", str(tmp_path / "latents"), "--problems", "16", "--trials", "2", "--depth", "4"]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    folder = tmp_path / "runs" / "tworoom" / "diagnostics"
    executed = json.loads((folder / "closed_loop.json").read_text())
    assert executed["distances"] == report["closed_loop"]["distances"]
    assert len(executed["distances"][0]) == 11  # ten replans and the end
    for name in ("drift", "drift_of_copying", "data_drift", "data_drift_of_copying"):
        assert len(executed[name]) == 5
    assert json.loads((folder / "imagined.json").read_text())["bundle"] == tiny_planner.digest
    assert main([*arguments, "--trials", "0"]) == 0
    assert "what a refinement buys" in capsys.readouterr().out


def test_the_drift_of_a_perfect_imagination_is_zero(tiny_planner, simulators, monkeypatch):
    """A plan whose imagined latents are the real ones does not drift."""
    sim = simulators("tworoom")
    size = tiny_planner.world.spec.frame_size
    start = np.array([60.0, 120.0])
    sim.set_state(np.array([80.0, 120.0]))
    goal = sim.render(size)
    still = torch.from_numpy(tiny_planner.world.spec.actions.zero_block()).expand(1, 5, -1)

    def plan(problem: PlanProblem) -> Plan:
        return Plan(still, problem.context[:, -1:].expand(1, 5, -1), torch.zeros(1, 5))

    monkeypatch.setattr(tiny_planner, "plan", plan)
    taken = np.tile(np.float32([1.0, 0.0]), (25, 1))
    drift, copied, data, data_copied = closed_loop._drift(tiny_planner, sim, start, goal, taken)
    np.testing.assert_allclose(drift, 0.0, atol=1e-9)
    np.testing.assert_allclose(copied, 0.0, atol=1e-9)
    assert data.shape == data_copied.shape == (5,)
    assert data_copied.min() > 1e-6  # what the data did moved it
