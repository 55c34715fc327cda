"""Minimum detectable effect and prompts needed, against statsmodels and the reference's numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statsmodels.stats.power import TTestPower

from analysis.stats.families import adjust
from analysis.stats.method import Method
from analysis.stats.sensitivity import clusters_needed, detectable, t_power
from tests.analysis.stats.test_estimate import estimate, ratio


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


def test_few_effective_clusters_need_more():
    # as many clusters, of which a tenth count: 2 degrees of freedom at 30, 9 at 100
    alike, unlike = (clusters_needed(1.5, 1.0, 30, effective=effective) for effective in (None, 3.0))
    assert (
        detectable(math.sqrt(30 / unlike), unlike / 10 - 1)
        <= 1.5
        < detectable(math.sqrt(30 / (unlike - 1)), (unlike - 1) / 10 - 1)
    )
    assert unlike > alike
    assert clusters_needed(1.5, 1.0, 30, effective=30.0) == alike


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


@pytest.mark.parametrize("clusters", [None, np.arange(60), np.repeat(np.arange(30), 2), np.repeat(np.arange(12), 5)])
@pytest.mark.parametrize("differ", [1, 5])
def test_a_spread_that_comes_from_few_prompts_detects_nothing(differ, clusters):
    # one pair of 60 that differs has a standard error of 1/60, of which a t would find 0.047 with probability 0.8;
    # the flip test cannot reject at all, as 60 pairs of which 5 differ never do: 2^(1 - 5) = 0.0625
    d = (np.arange(60) % 12 == 0) & (np.arange(60) < 12 * differ)
    result = estimate(d, clusters)
    assert (result.n_differ, result.se > 0, result.mde) == (differ, True, None)
    few = next(c for c in result.cautions if c.code == "few-differ")
    assert f"{result.n_clusters} {'clusters' if result.n_clusters < 60 else 'prompts'}" in few.text


def test_ties_of_a_ratio_do_not_differ_though_their_linearised_values_do():
    tokens, steps = np.arange(40, 100), np.arange(10, 70)
    more = tokens + (np.arange(60) == 7)
    result = ratio((tokens, more), (steps, steps))
    assert (result.n_zero, result.n_differ, result.mde) == (59, 1, None)


def test_a_family_wants_more_units_that_differ():
    # 2^(1 - k) is below 0.05 from 6 flips on, below 1/120 from 8, below 1/1280 from 12
    assert [Method.BOOTSTRAP.fewest_that_differ(0.05 / k) for k in (1, 6, 64)] == [6, 8, 12]
    assert Method.T.fewest_that_differ(0.05 / 6) == 6
    seven = [estimate([1, 2, 3, 1, 2, 2, 1] + [0] * 50)] * 6
    assert seven[0].mde is not None
    assert {e.mde for e in adjust(seven)} == {None}
    assert {e.cautions[-1].code for e in adjust(seven)} == {"few-differ"}
    assert all(e.mde for e in adjust([estimate([1, 2, 3, 1, 2, 2, 1, 1] + [0] * 50)] * 6))


def test_nothing_is_detectable_without_a_spread_or_degrees_of_freedom():
    assert detectable(None, 5) is detectable(1.0, 0) is None


@pytest.mark.parametrize("df", [1, 1.7, 4, 8.3, 200, 1500])
def test_power_rises_to_one_with_the_shift(df):
    found = [t_power(shift, df) for shift in np.arange(0, 80, 0.1)]
    assert found[0] == pytest.approx(0.05)
    assert np.isfinite(found).all()
    assert (np.diff(found) > -2e-3).all()  # a step where the approximation for large shifts sets in
    assert found[-1] > 0.999


def test_the_detectable_effect_of_one_degree_of_freedom():
    # 1/T is the ratio of a half-normal and nearly a constant: P(|T| > 12.7) = 0.8 needs 12.7 * 1.28 standard errors
    assert detectable(1.0, 1.0) == pytest.approx(12.706 * 1.2816, rel=0.01)
