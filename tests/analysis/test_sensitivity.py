"""Minimum detectable effect and prompts needed, against statsmodels and the reference's numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from analysis.sensitivity import clusters_needed, detectable
from tests.analysis.test_estimate import estimate


@pytest.mark.parametrize(("n", "printed"), [(700, "0.106"), (100, "0.283")])
def test_reference_numbers(n, printed):
    found = detectable(1 / math.sqrt(n), n - 1)
    assert f"{found:.3f}" == printed
    assert found == pytest.approx(TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8), rel=1e-4)


@pytest.mark.parametrize("n", [6, 10, 40, 3000])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("power", [0.8, 0.95])
def test_power_at_the_detectable_effect_is_the_power_asked_for(n, alpha, power):
    effect = detectable(1 / math.sqrt(n), n - 1, alpha=alpha, power=power)
    assert TTestPower().power(effect, n, alpha) == pytest.approx(power, abs=2e-4)


def test_prompts_for_an_effect():
    # normal approximation: 1766; the t costs two more
    assert clusters_needed(0.1, 1.5, 1) == 1768
    assert clusters_needed(-0.1, 1.5 / math.sqrt(50), 50) == 1768
    assert clusters_needed(100.0, 1.5, 1) == 2
    assert clusters_needed(100.0, 1.5, 1, fewest=6) == 6
    assert clusters_needed(1e-6, 1.5, 1) is None


def test_what_was_found_needed_detects_the_effect_and_one_less_does_not():
    for effect in (0.05, 0.3, 1.0):
        n = clusters_needed(effect, 2.0, 1)
        assert detectable(2.0 / math.sqrt(n), n - 1) <= effect < detectable(2.0 / math.sqrt(n - 1), n - 2)


def test_copies_of_prompts_detect_no_more():
    d = np.random.default_rng(0).integers(-3, 4, 60)
    once, thrice = estimate(d), estimate(np.repeat(d, 3), np.repeat(np.arange(60), 3))
    assert thrice.mde == pytest.approx(once.mde)
    assert once.mde == pytest.approx(detectable(d.std(ddof=1) / math.sqrt(60), 59))


def test_nothing_is_detectable_where_the_test_cannot_reject():
    assert estimate([1, 2, 3, 1, 2]).mde is None  # 2^-4 > 0.05
    assert estimate([1, 2, 3, 1, 2, 2]).mde is not None
    assert estimate([0] * 20).mde is None
    assert detectable(None, 5) is detectable(1.0, 0) is None
