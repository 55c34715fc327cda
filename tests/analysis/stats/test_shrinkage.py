"""Partial pooling against the literature, against integration, and at its limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

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
    """The posterior mean and the probability of a positive effect, each by two nested integrals."""
    effects, errors = np.array([0.4, 0.1, -0.2, 0.3]), np.array([0.1, 0.2, 0.15, 0.1])
    found = pooled(effects, errors)[2]

    def joint(mu, tau, of_effect):
        marginal = np.prod(stats.norm.pdf(effects, mu, np.sqrt(errors**2 + tau**2)))
        own = tau**2 / (tau**2 + errors[2] ** 2)
        centre, sd = own * effects[2] + (1 - own) * mu, np.sqrt(own) * errors[2]
        return marginal * of_effect(centre, sd)

    def over_all(of_effect):
        return integrate.dblquad(lambda mu, tau: joint(mu, tau, of_effect), 1e-9, 4, -3, 3, epsabs=1e-7)[0]

    total = over_all(lambda centre, sd: 1.0)
    assert found.estimate == pytest.approx(over_all(lambda centre, sd: centre) / total, abs=2e-3)
    positive = over_all(lambda centre, sd: stats.norm.sf(0, centre, sd)) / total
    assert found.p_positive == pytest.approx(positive, abs=2e-3)


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
