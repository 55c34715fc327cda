"""Ratios of sums: golden values, and the delta method against a bootstrap and a closed form."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.cluster import cluster_t, partition
from analysis.stats.ratio import linearise, linearise_log


def test_golden_ratio():
    tokens, steps = [100, 40, 10], [20, 20, 10]
    assert linearise(tokens, steps).mean() == pytest.approx(3.0)
    assert np.mean(np.divide(tokens, steps)) == pytest.approx(2.6667, abs=5e-5)
    # e = (T - 3 S) / (50/3) = (2.4, -1.2, -1.2)
    assert linearise(tokens, steps) - 3.0 == pytest.approx([2.4, -1.2, -1.2])


def test_equal_denominators_are_a_mean():
    tokens = np.array([3, 5, 9])
    assert linearise(tokens, [2, 2, 2]) == pytest.approx(tokens / 2)


def test_paired_error_agrees_with_a_cluster_bootstrap():
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(60), 5)
    level = rng.normal(3.5, 0.5, 60)[clusters]
    steps_a, steps_b = rng.integers(5, 40, 300), rng.integers(5, 40, 300)
    tokens_a, tokens_b = rng.poisson(level * steps_a), rng.poisson((level + 0.2) * steps_b)
    d = linearise(tokens_b, steps_b) - linearise(tokens_a, steps_a)
    ours = cluster_t(d, partition([str(c) for c in clusters]))

    draws = rng.multinomial(60, np.full(60, 1 / 60), 4000)[:, clusters]
    replicates = draws @ tokens_b / (draws @ steps_b) - draws @ tokens_a / (draws @ steps_a)
    assert ours.mean == pytest.approx(tokens_b.sum() / steps_b.sum() - tokens_a.sum() / steps_a.sum())
    assert ours.se == pytest.approx(replicates.std(), rel=0.06)  # Monte-Carlo error 1.1%, C/(C - 1) 0.8%


def test_an_observation_without_denominator_says_nothing():
    values = linearise([4, 0, 8], [2, 0, 3])
    assert values.mean() == pytest.approx(12 / 5)
    assert values[1] == pytest.approx(12 / 5)


@pytest.mark.parametrize(("numerator", "denominator"), [([1, 1], [1, 0]), ([0, 0], [0, 0]), ([1, 1], [2, -1])])
def test_impossible_denominators_are_refused(numerator, denominator):
    with pytest.raises(ValueError, match="denominator"):
        linearise(numerator, denominator)


def test_log_of_a_ratio_has_the_error_of_its_logarithm():
    rng = np.random.default_rng(8)
    seconds, tokens = rng.gamma(5, 1, 400), rng.integers(20, 60, 400)
    values = linearise_log(seconds, tokens)
    assert values.mean() == pytest.approx(np.log(seconds.sum() / tokens.sum()))
    draws = rng.multinomial(400, np.full(400, 1 / 400), 4000)
    replicates = np.log(draws @ seconds / (draws @ tokens))
    assert values.std(ddof=1) / 20 == pytest.approx(replicates.std(), rel=0.06)
