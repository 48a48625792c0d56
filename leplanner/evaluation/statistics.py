"""Rates with intervals, and differences that are paired: the same trials, method against method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from ..core.actions import Array


@dataclass(frozen=True)
class Rate:
    successes: int
    trials: int
    low: float  # Wilson 95 %
    high: float

    @property
    def value(self) -> float:
        return self.successes / self.trials


@dataclass(frozen=True)
class PairedDifference:
    difference: float  # of success rates: this method minus the reference
    low: float  # paired percentile bootstrap, 95 %
    high: float
    only_this: int  # trials that only this method solved
    only_reference: int
    p_value: float  # exact McNemar


def wilson(successes: int, trials: int) -> Rate:
    if trials < 1:
        raise ValueError("A rate needs at least one trial.")
    interval = binomtest(successes, trials).proportion_ci(method="wilson")
    return Rate(successes, trials, float(interval.low), float(interval.high))


def mcnemar(only_this: int, only_reference: int) -> float:
    """Exact and two-sided: among discordant pairs, each side is as likely as the other."""
    discordant = only_this + only_reference
    return float(binomtest(only_this, discordant).pvalue) if discordant else 1.0


def paired_difference(ours: Array, reference: Array, seed: int = 0, draws: int = 10_000) -> PairedDifference:
    """Outcomes (n,) of two methods on the same trials, in the same order."""
    ours, reference = np.asarray(ours, bool), np.asarray(reference, bool)
    if ours.shape != reference.shape or not len(ours):
        raise ValueError(f"Paired outcomes must be of one length, at least 1; got {ours.shape} and {reference.shape}.")
    difference = ours.astype(float) - reference
    low, high = bootstrap_interval(difference, seed, draws)
    only_ours, only_reference = int((ours & ~reference).sum()), int((reference & ~ours).sum())
    return PairedDifference(
        float(difference.mean()), low, high, only_ours, only_reference, mcnemar(only_ours, only_reference)
    )


def rate_over_seeds(outcomes: Array, seed: int = 0, draws: int = 10_000) -> Rate:
    """Outcomes (S, n) of S training seeds on the same n trials. The interval resamples seeds and trials; of one seed it
    is Wilson's."""
    outcomes = np.atleast_2d(np.asarray(outcomes, bool))
    seeds, trials = outcomes.shape
    if seeds == 1:
        return wilson(int(outcomes.sum()), trials)
    rng = np.random.default_rng(seed)
    means = []
    for part in np.array_split(np.arange(draws), 20):  # all at once would not fit in memory
        rows = rng.integers(seeds, size=(len(part), seeds))
        picked = rng.multinomial(trials, np.full(trials, 1 / trials), size=len(part))  # how often each trial
        means.append(np.einsum("dsn,dn->d", outcomes[rows].astype(float), picked) / (seeds * trials))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return Rate(int(outcomes.sum()), outcomes.size, float(low), float(high))


def paired_over_seeds(ours: Array, reference: Array, seed: int = 0, draws: int = 10_000) -> PairedDifference:
    """Outcomes (S, n) and (S', n) of training seeds on the same trials: the difference of each trial's mean over seeds.
    The test flips the sign of a trial's difference, as if the two had changed places; of one seed each it is
    McNemar's."""
    ours, reference = np.atleast_2d(np.asarray(ours, bool)), np.atleast_2d(np.asarray(reference, bool))
    if len(ours) == len(reference) == 1:
        return paired_difference(ours[0], reference[0], seed, draws)
    if ours.shape[1] != reference.shape[1] or not ours.shape[1]:
        raise ValueError(f"Paired outcomes must be of the same trials; got {ours.shape[1]} and {reference.shape[1]}.")
    difference = ours.mean(axis=0) - reference.mean(axis=0)
    low, high = bootstrap_interval(difference, seed, draws)
    more, less = int((difference > 0).sum()), int((difference < 0).sum())
    return PairedDifference(float(difference.mean()), low, high, more, less, sign_flips(difference, seed, draws))


def sign_flips(difference: Array, seed: int = 0, draws: int = 10_000) -> float:
    """Two-sided p of a mean difference (n,): how often one as large comes up when either sign is as likely."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(draws, len(difference)))
    beyond = np.abs(signs @ difference) >= np.abs(difference.sum()) - 1e-12
    return float((beyond.sum() + 1) / (draws + 1))


def bootstrap_interval(values: Array, seed: int = 0, draws: int = 10_000, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the mean, resampling trials. Values here are few and discrete,
    so counts are drawn at once."""
    kinds, counts = np.unique(values, return_counts=True)
    sampled = np.random.default_rng(seed).multinomial(len(values), counts / len(values), size=draws)
    means = sampled @ kinds / len(values)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)
