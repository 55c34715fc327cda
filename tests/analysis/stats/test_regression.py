"""Slopes with CR2 standard errors, against n x n matrices and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.stats.cluster import cluster_t, partition
from analysis.stats.regression import slope


def numbers(values):
    return partition(np.unique(np.asarray(values), return_inverse=True)[1])


def dense(x, y, groups, clusters):
    """Slope, CR2 variance and degrees of freedom by adjustment matrices, (I - H)^(-1/2) per cluster as pseudo-inverse
    roots, and eigenvalues of the quadratic form."""
    n = x.size
    design = np.column_stack([x, groups[:, None] == np.unique(groups)[None, :]]).astype(float)
    inverse = np.linalg.inv(design.T @ design)
    maker = np.eye(n) - design @ inverse @ design.T
    vectors = []
    for c in np.unique(clusters):
        inside = clusters == c
        values, basis = np.linalg.eigh(maker[np.ix_(inside, inside)])
        root = np.where(values > 1e-8, np.maximum(values, 1e-12) ** -0.5, 0.0)
        adjusted = basis @ np.diag(root) @ basis.T
        vectors.append(inverse[0] @ design[inside].T @ adjusted @ maker[inside])
    vectors = np.array(vectors)
    eigenvalues = np.linalg.eigvalsh(vectors @ vectors.T)
    return inverse[0] @ design.T @ y, ((vectors @ y) ** 2).sum(), eigenvalues.sum() ** 2 / (eigenvalues**2).sum()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_equals_a_dense_implementation(seed, count, crossed):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(9), rng.integers(1, 8, 9))
    groups = rng.integers(0, count, clusters.size) if crossed else clusters % count
    x, y = rng.normal(0, 1, (2, clusters.size)) + rng.normal(0, 1, 9)[clusters]
    found = slope(x, y, numbers(groups), numbers(clusters))
    if found is None:
        return
    estimate, variance, df = dense(x, y, groups, clusters)
    assert found.slope == pytest.approx(estimate, rel=1e-8)
    assert found.se**2 == pytest.approx(variance, rel=1e-6)
    assert found.df == pytest.approx(df, rel=1e-6)


def test_prompts_of_their_own_are_nearly_hc2():
    rng = np.random.default_rng(1)
    x, y = rng.normal(0, 1, (2, 400))
    own = numbers(np.arange(400))
    found = slope(x, y, numbers(np.zeros(400, int)), own)
    fit = sm.OLS(y, sm.add_constant(x)).fit(cov_type="HC2", use_t=True)
    assert (found.slope, found.se) == pytest.approx((fit.params[1], fit.bse[1]), rel=1e-9)


def test_two_equal_groups_of_one_prompt_per_cluster_are_a_mean():
    # y on a 0/1 variable that changes within every cluster: the paired t test
    rng = np.random.default_rng(2)
    d = rng.normal(0.3, 1, 15)
    y = np.concatenate([np.zeros(15), d])
    found = slope(np.repeat([0.0, 1.0], 15), y, numbers(np.tile(np.arange(15), 2)), numbers(np.tile(np.arange(15), 2)))
    paired = cluster_t(d, numbers(np.arange(15)))
    assert (found.slope, found.se) == pytest.approx((paired.mean, paired.se))
    assert found.df == pytest.approx(paired.df)


@pytest.mark.parametrize("x", [np.zeros(12), np.repeat([1.0, 2.0], 6)])
def test_without_variation_within_groups_there_is_none(x):
    y = np.arange(12.0)
    assert slope(x, y, numbers(np.repeat([0, 1], 6)), numbers(np.arange(12))) is None
