"""Partial pooling against the literature, against integration, and at its limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.stats.shrinkage import partially_pooled

SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def pooled(effects, errors):
    return partially_pooled([str(i) for i in range(len(effects))], np.asarray(effects), np.square(errors))


def test_the_eight_schools():
    # Gelman et al., Bayesian Data Analysis, table 5.3: quantiles of 200 draws, so to a few points
    found = pooled(SCHOOLS, ERRORS)
    for i, lo, hi in ((0, -2, 31), (1, -5, 23), (4, -9, 18), (6, -1, 26)):
        assert (found[i].lo, found[i].hi) == pytest.approx((lo, hi), abs=3.5)
    assert found[0].estimate == pytest.approx(11.4, abs=0.7)


def test_by_integration():
    """The posterior mean and the probability of a positive effect, from the joint density on a grid of mean and
    standard deviation, which the module integrates in closed form over the mean."""
    effects, errors = np.array([0.4, 0.1, -0.2, 0.3]), np.array([0.1, 0.2, 0.15, 0.1])
    found = pooled(effects, errors)[2]
    mu, tau = np.meshgrid(np.linspace(-6, 6, 3001), np.linspace(1e-6, 4.8, 1500))
    density = np.prod([stats.norm.pdf(y, mu, np.hypot(s, tau)) for y, s in zip(effects, errors, strict=True)], axis=0)
    density /= density.sum()
    own = tau**2 / (tau**2 + errors[2] ** 2)
    centre, sd = own * effects[2] + (1 - own) * mu, np.sqrt(own) * errors[2]
    assert found.estimate == pytest.approx(float((density * centre).sum()), abs=2e-3)
    assert found.p_positive == pytest.approx(float((density * stats.norm.sf(0, centre, sd)).sum()), abs=2e-3)


def test_the_limits():
    apart = pooled([-100.0, 0.0, 100.0], [0.1, 0.1, 0.1])
    assert [p.estimate for p in apart] == pytest.approx([-100, 0, 100], abs=0.01)
    assert min(p.weight for p in apart) > 0.999
    alike = pooled([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0, 9.0])
    assert [p.estimate for p in alike] == pytest.approx([1.0] * 6)
    assert alike[5].weight < alike[0].weight < 0.7
    assert alike[5].hi - alike[5].lo < 2 * 1.96 * 9 / 3


def test_the_order_and_the_unit_do_not_matter():
    forward, back = pooled(SCHOOLS, ERRORS), pooled(SCHOOLS[::-1], ERRORS[::-1])[::-1]
    small = pooled(SCHOOLS / 100, ERRORS / 100)
    for one, other, hundredth in zip(forward, back, small, strict=True):
        assert (one.estimate, one.lo, one.p_positive) == pytest.approx((other.estimate, other.lo, other.p_positive))
        assert (one.estimate / 100, one.hi / 100) == pytest.approx((hundredth.estimate, hundredth.hi))


def test_two_data_sets_say_nothing_about_their_spread():
    assert pooled([1.0, 2.0], [1.0, 1.0]) == ()
