"""Intervals and tests: against SciPy, by enumeration, and by simulation."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from leplanner.evaluation.statistics import (
    bootstrap_interval,
    mcnemar,
    paired_difference,
    paired_over_seeds,
    rate_over_seeds,
    sign_flips,
    wilson,
)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (7, 10), (10, 10), (49, 50), (120, 200)])
def test_wilson_solves_its_own_equation(successes, trials):
    """Its ends are where the normal approximation, with the end's own variance, lies 1.96 deviations away."""
    rate = wilson(successes, trials)
    p = successes / trials
    for end in (rate.low, rate.high):
        if 1e-12 < end < 1 - 1e-12:
            assert abs(p - end) == pytest.approx(1.959964 * np.sqrt(end * (1 - end) / trials), abs=1e-6)
    assert 0 <= rate.low <= p <= rate.high <= 1
    assert rate.value == p


def test_mcnemar_by_enumeration():
    """Twice the smaller tail of a fair coin over the discordant pairs, at most 1."""
    for ours in range(7):
        for theirs in range(7):
            n = ours + theirs
            tail = sum(comb(n, k) for k in range(min(ours, theirs) + 1)) / 2**n
            assert mcnemar(ours, theirs) == pytest.approx(min(1.0, 2 * tail) if n else 1.0)


def test_a_paired_difference_counts_discordant_pairs():
    ours = np.array([1, 1, 1, 1, 0, 0, 1, 1, 0, 1], bool)
    theirs = np.array([1, 0, 0, 1, 0, 1, 0, 1, 0, 0], bool)
    compared = paired_difference(ours, theirs)
    assert (compared.only_this, compared.only_reference) == (4, 1)
    assert compared.difference == pytest.approx(0.3)
    assert compared.p_value == pytest.approx(2 * (1 + 5) / 2**5)
    assert compared.low < 0.3 < compared.high
    same = paired_difference(ours, ours)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert paired_difference(ours, theirs) == compared
    with pytest.raises(ValueError, match="one length"):
        paired_difference(ours, theirs[:5])


def test_the_bootstrap_matches_resampling_by_hand():
    values = np.array([1.0] * 12 + [0.0] * 30 + [-1.0] * 5)
    rng = np.random.default_rng(3)
    means = values[rng.integers(len(values), size=(20_000, len(values)))].mean(axis=1)
    assert bootstrap_interval(values, draws=20_000) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.022)


@pytest.mark.slow
def test_the_bootstrap_covers_the_truth_at_its_rate():
    rng, covered, simulations = np.random.default_rng(0), 0, 2000
    for i in range(simulations):
        values = rng.choice([-1.0, 0.0, 1.0], size=200, p=[0.1, 0.65, 0.25])
        low, high = bootstrap_interval(values, seed=i, draws=2000)
        covered += low <= 0.15 <= high
    assert covered / simulations == pytest.approx(0.95, abs=0.015)


def test_one_training_seed_is_the_plain_rate_and_the_plain_difference():
    rng = np.random.default_rng(0)
    ours, theirs = rng.random((1, 60)) < 0.8, rng.random((1, 60)) < 0.5
    assert rate_over_seeds(ours) == wilson(int(ours.sum()), 60)
    assert paired_over_seeds(ours, theirs) == paired_difference(ours[0], theirs[0])


def test_sign_flips_of_single_seeds_are_mcnemars():
    difference = np.array([1.0] * 9 + [-1.0] * 2 + [0.0] * 20)
    assert sign_flips(difference, draws=200_000) == pytest.approx(mcnemar(9, 2), abs=3e-3)


def test_the_interval_over_seeds_covers_what_differs_between_them():
    """Seeds that differ widely leave the mean uncertain however many trials there are; equal seeds do not."""
    trials = np.arange(400)
    apart = np.stack([trials < 200, trials < 300, trials < 400])
    alike = np.stack([trials % 4 > 0] * 3)
    wide, narrow = rate_over_seeds(apart), rate_over_seeds(alike)
    assert wide.value == narrow.value == 0.75
    assert wide.low < 0.6
    assert wide.high > 0.9
    assert narrow.high - narrow.low == pytest.approx(wilson(300, 400).high - wilson(300, 400).low, abs=0.01)


def test_a_difference_over_seeds_pairs_trials_not_seeds():
    """Three seeds that fail on the same trials are no more evidence than one."""
    ours = np.stack([np.arange(100) < 90] * 3)
    theirs = np.stack([np.arange(100) < 80] * 2)
    compared = paired_over_seeds(ours, theirs)
    assert (compared.only_this, compared.only_reference) == (10, 0)
    assert compared.difference == pytest.approx(0.1)
    assert compared.p_value == pytest.approx(mcnemar(10, 0), abs=1e-3)
    with pytest.raises(ValueError, match="same trials"):
        paired_over_seeds(ours, theirs[:, :50])
