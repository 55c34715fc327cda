"""Differences of deciles: against another implementation, by construction, and over simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats.mstats import hdquantiles

from analysis.stats.cluster import Partition, partition
from analysis.stats.shift import DECILES, harrell_davis, shift_function


def alone(n):
    return partition(np.arange(n))


@pytest.mark.parametrize("n", [7, 40, 501])
@pytest.mark.parametrize("tied", [True, False])
def test_deciles_are_harrell_and_davis(n, tied):
    rng = np.random.default_rng(n)
    values = rng.integers(1, 8, n).astype(float) if tied else rng.lognormal(1, 0.6, n)
    assert harrell_davis(values) == pytest.approx(hdquantiles(values, DECILES), rel=1e-5)


def test_a_gain_of_the_hard_half_is_found_there():
    rng = np.random.default_rng(1)
    a = rng.normal(3, 1, 400)
    b = a + np.where(a < 3, 0.5, 0.0) + rng.normal(0, 0.1, 400)
    found = shift_function(a, b, alone(400))
    assert [d.differs for d in found.deciles[:4]] == [True] * 4
    assert not any(d.differs for d in found.deciles[6:])
    assert found.deciles[1].difference == pytest.approx(0.5, abs=0.1)
    assert (found.n_clusters, found.n_effective) == (400, pytest.approx(400))
    back = shift_function(b, a, alone(400))
    assert [d.difference for d in back.deciles] == pytest.approx([-d.difference for d in found.deciles])
    assert shift_function(a, b, alone(400)) == found  # the bootstrap is seeded by the data


def test_pairs_are_drawn_together():
    a = np.random.default_rng(2).normal(3, 1, 60)
    paired = shift_function(a, a + 0.25 + 0.01 * np.arange(60) / 60, alone(60)).deciles[4]
    apart = shift_function(a, np.random.default_rng(3).permutation(a) + 0.25, alone(60)).deciles[4]
    assert paired.hi - paired.lo < (apart.hi - apart.lo) / 4
    assert paired.differs and not apart.differs


def test_the_error_is_that_of_new_samples():
    rng, at, spread, halves = np.random.default_rng(4), 4, [], []
    for _ in range(150):
        a, noise = rng.normal(0, 1, 80), rng.normal(0, 0.5, 80)
        d = shift_function(a, a + noise, alone(80)).deciles[at]
        spread.append(d.difference)
        halves.append((d.hi - d.lo) / 2)
    critical = 2.85  # t(79) at 1 - 0.025 / 9
    assert np.mean(halves) / critical == pytest.approx(np.std(spread), rel=0.2)


def test_few_clusters_have_deciles_and_no_interval():
    rng = np.random.default_rng(5)
    a, b = rng.normal(0, 1, (2, 60))
    found = shift_function(a, b, partition(np.arange(60) % 5))
    assert found.draws == 0 and all(d.lo is None and not d.differs for d in found.deciles)
    dominated = shift_function(a, b, partition(np.r_[np.zeros(40, int), np.arange(1, 21)]))
    assert dominated.n_effective < 6 and dominated.draws == 0


def test_ties_are_counted_and_a_decile_that_never_moves_has_no_interval():
    a = np.r_[np.ones(90), np.full(10, 5.0)]
    b = np.r_[np.ones(90), np.full(10, 6.0)]
    found = shift_function(a, b, alone(100))
    assert found.tied == 0.9
    assert found.deciles[0].difference == 0 and found.deciles[0].lo is None


def test_many_clusters_are_drawn_in_groups():
    rng = np.random.default_rng(6)
    a = rng.lognormal(1, 0.5, 20_000)
    found = shift_function(a, a * 1.02 + rng.normal(0, 0.02, a.size), alone(a.size))
    assert all(d.differs for d in found.deciles)
    assert found.deciles[4].difference == pytest.approx(0.02 * np.exp(1), rel=0.2)


@pytest.mark.parametrize(("kind", "size"), [("integers", 1), ("ties", 1), ("clusters", 5)])
def test_equal_arms_differ_at_no_decile_in_95_of_100_studies(kind, size):
    rng, count = np.random.default_rng(7), 60 // size
    index, wrong, found = np.repeat(np.arange(count), size), 0, 0
    clusters = Partition(index, count)

    def arm(base, shift=0.0):
        z = base + rng.normal(shift, 0.7, count)[index] + rng.normal(0, 0.5, index.size)
        return np.where(z < 1, 1, np.floor(2 + z)) if kind == "ties" else np.clip(np.floor(2.5 + 1.5 * z), 1, 8)

    for _ in range(60):
        base = rng.normal(0, 0.7, count)[index]
        wrong += any(d.differs for d in shift_function(arm(base), arm(base), clusters).deciles)
        found += any(d.differs for d in shift_function(arm(base), arm(base, 1.5), clusters).deciles)
    assert wrong <= 7  # 3 expected; more than 7 of 60 at 5% once in 60 times
    assert found > 45
