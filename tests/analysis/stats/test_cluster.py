"""Cluster-robust means: golden numbers, statsmodels, and the inputs on which others give NaN or p = 0."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.errors import DataError
from analysis.stats.cluster import cluster_t, partition, satterthwaite
from tests.analysis.stats.cr2 import by_matrix_roots, dense, likeliest_icc

D = [1, 2, 0, -1, 3, 1, 0, 2, -2, 4]


def by(groups):
    return partition([str(g) for g in groups])


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 9), st.booleans())
def test_equals_a_dense_implementation(seed, count, weighted):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(count), rng.integers(1, 9, count))
    weights = rng.lognormal(0, 1, groups.size) if weighted else np.ones(groups.size)
    weights /= weights.mean()
    raw = weights * (rng.normal(0, 1, count)[groups] + rng.normal(0, 1, groups.size) / np.sqrt(weights))
    values = raw.mean() + raw - weights * raw.mean()  # as a ratio is linearised
    ours = cluster_t(values, by(groups), weights=weights if weighted else None)
    variance, df = dense(raw, groups, likeliest_icc(values, groups, weights), weights)
    assert ours.se**2 == pytest.approx(variance, rel=1e-9)
    assert ours.df == pytest.approx(df, rel=1e-6)
    assert ours.effective == ours.df + 1
    assert ours.p == pytest.approx(2 * stats.t.sf(abs(ours.mean) / ours.se, df), rel=1e-6)
    assert ours.hi - ours.mean == pytest.approx(stats.t.ppf(0.975, df) * ours.se, rel=1e-6)
    if not weighted:
        assert variance == pytest.approx(by_matrix_roots(values, groups), rel=1e-9)


def test_golden_standard_errors():
    # residual sums -2, 1, -2, 3 in clusters of 4, 3, 2, 1 of 10, each square over 1 - n_c/n
    result = cluster_t(D, by([0, 0, 0, 0, 1, 1, 1, 2, 2, 3]))
    assert result.se**2 == pytest.approx((4 / 0.6 + 1 / 0.7 + 4 / 0.8 + 9 / 0.9) / 100)
    independent = cluster_t(D, by(range(10)))
    assert independent.se == pytest.approx(0.57735, abs=5e-6)
    assert independent.df == pytest.approx(9)
    assert result.design_effect == pytest.approx(result.se**2 / independent.se**2)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(1, 6))
def test_equal_clusters_are_those_of_statsmodels(seed, count, size):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(count), size)
    values = rng.normal(0.3, 1.0, groups.size)
    fit = sm.OLS(values, np.ones(groups.size)).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "df_correction": True}, use_t=True
    )
    ours = cluster_t(values, by(groups))
    assert ours.se == pytest.approx(fit.bse[0], rel=1e-9)
    assert ours.df == pytest.approx(count - 1)
    assert ours.p == pytest.approx(fit.pvalues[0], abs=1e-9)
    assert (ours.lo, ours.hi) == pytest.approx(tuple(fit.conf_int()[0]), abs=1e-9)


def test_one_cluster_with_half_of_the_prompts_counts_for_half_of_the_mean():
    sizes = np.array([31.0] + [1.0] * 31)
    assert satterthwaite(sizes, 0.0) == pytest.approx(3.8, abs=0.05)  # of 31 with C - 1
    assert satterthwaite(sizes, 1.0) == pytest.approx(1.1, abs=0.05)
    assert satterthwaite(np.full(32, 7.0), 0.4) == pytest.approx(31)


def test_clusters_of_one_are_the_t_test():
    values = np.random.default_rng(3).normal(0.2, 1, 25)
    ours, reference = cluster_t(values, by(range(25))), stats.ttest_1samp(values, 0)
    assert ours.p == pytest.approx(reference.pvalue, rel=1e-12)
    assert (ours.lo, ours.hi) == pytest.approx(tuple(reference.confidence_interval()), rel=1e-12)
    assert ours.design_effect == pytest.approx(1.0)
    assert ours.icc is None


def test_icc_of_a_balanced_layout_is_the_textbook_one():
    # two clusters (1, 2, 3) and (5, 6, 7): MSB = 24, MSW = 1, n0 = 3, so (24 - 1) / (24 + 2)
    assert cluster_t([1, 2, 3, 5, 6, 7], by([0, 0, 0, 1, 1, 1])).icc == pytest.approx(23 / 26)


def test_copies_of_an_observation_add_nothing():
    values, groups = np.array([0.0, 1.0, 3.0, 2.0, 5.0]), range(5)
    once, thrice = cluster_t(values, by(groups)), cluster_t(np.repeat(values, 3), by(np.repeat(groups, 3)))
    assert (thrice.se, thrice.p) == pytest.approx((once.se, once.p))
    assert thrice.icc == pytest.approx(1.0)


def test_order_does_not_matter():
    rng = np.random.default_rng(9)
    values, groups = rng.normal(size=30), rng.integers(0, 7, 30)
    order = rng.permutation(30)
    assert cluster_t(values, by(groups)).p == pytest.approx(cluster_t(values[order], by(groups[order])).p)


@pytest.mark.parametrize("shift", [1.0, 1 / 3, 1e6 + 0.1])
def test_no_spread_has_no_p(shift):
    result = cluster_t(np.full(8, shift), by([0, 0, 1, 1, 2, 2, 3, 3]))
    assert (result.se, result.p, result.design_effect, result.icc) == (0.0, None, None, None)
    assert result.lo == result.hi == result.mean


def test_standard_error_can_be_zero_though_values_vary():
    result = cluster_t(D, by([0, 0, 0, 1, 1, 1, 2, 2, 3, 3]))
    assert (result.mean, result.se, result.p) == (1.0, 0.0, None)


def test_one_cluster_says_nothing():
    result = cluster_t(D, by([0] * 10))
    assert (result.mean, result.se, result.lo, result.p) == (1.0, None, None, None)


def test_p_is_never_zero():
    values = np.array([1.0, 1.0 + 1e-9] * 500)
    assert cluster_t(values, by(range(1000))).p > 0


@pytest.mark.parametrize("missing", [None, float("nan"), ""])
def test_a_missing_cluster_id_is_an_error(missing):
    with pytest.raises(DataError, match=r"cluster_id .* 1 of 3"):
        partition(["a", missing, "b"])


def test_integer_sums_stay_integers():
    sums = partition(["b", "a", "b"]).sums(np.array([2**60, 1, 2**60], dtype=np.int64))
    assert sums.dtype == np.int64
    assert sums.tolist() == [1, 2**61]
