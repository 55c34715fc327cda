"""Exact inference: golden fractions, full enumeration, agreement with scipy, and the sizes that it must bear."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from analysis.stats import flips
from analysis.stats.cluster import cluster_t, partition
from analysis.stats.exact import SMALLEST_P, as_integers, bootstrap_mean
from analysis.stats.flips import flip_interval, flip_p, sign_flip_p


def sums_of(values):
    return np.array(values, dtype=np.int64)


def bootstrap_interval(differences, level=0.95):
    return bootstrap_mean(differences).interval(level)


GOLDEN = [
    # differences, sign-flip p, bootstrap 95% bounds
    ([0, 0, 0, 0, 0], "1", "0", "0"),
    ([1, 1, 1, 1], "1/8", "1", "1"),
    ([1] * 6, "1/32", "1", "1"),
    ([3], "1", "3", "3"),
    ([1, 2], "1/2", "1", "2"),
    ([1, -1, 2, -2], "1", "-3/2", "3/2"),
    ([0, 0, 1, -1, 2], "3/4", "-2/5", "7/5"),
    ([1, 1, 1, -1, 0, 2, 2, -3], "11/16", "-3/4", "11/8"),
    ([1, 2, 0, -1, 3, 1, 0, 2, -2, 4], "21/128", "-1/10", "21/10"),
    ([15, -15, 15, 15], "5/8", "-15/2", "15"),
]


@pytest.mark.parametrize(("differences", "p", "lower", "upper"), GOLDEN)
def test_golden_fractions(differences, p, lower, upper):
    assert Fraction(sign_flip_p(differences)) == Fraction(p)
    assert bootstrap_interval(differences) == (float(Fraction(lower)), float(Fraction(upper)))


def enumerated_flip_p(values, shift=Fraction(0), sizes=None):
    """P(|sum of flipped| >= |sum|) in fractions, all 2^C sign vectors one by one."""
    sizes = sizes or [1] * len(values)
    shifted = [v - shift * n for v, n in zip(values, sizes, strict=True)]
    observed = abs(sum(shifted))
    signs = list(itertools.product((1, -1), repeat=len(values)))
    hits = sum(abs(sum(s * v for s, v in zip(sign, shifted, strict=True))) >= observed for sign in signs)
    return Fraction(hits, len(signs))


def enumerated_bootstrap(values, level):
    """Bounds in fractions from all n^n resamples."""
    n = len(values)
    sums = sorted(sum(draw) for draw in itertools.product(values, repeat=n))

    def quantile(q):
        return next(Fraction(s, n) for i, s in enumerate(sums, 1) if Fraction(i, len(sums)) >= q)

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


@given(st.lists(st.integers(-15, 15), min_size=1, max_size=6))
def test_sign_flip_is_the_enumeration(values):
    assert Fraction(sign_flip_p(values)) == enumerated_flip_p(values)
    assert Fraction(flip_p(sums_of(values))) == enumerated_flip_p(values)


@given(st.lists(st.integers(-7, 7), min_size=1, max_size=5), st.sampled_from([Fraction(9, 10), Fraction(19, 20)]))
def test_bootstrap_is_the_enumeration(values, level):
    lower, upper = enumerated_bootstrap(values, level)
    assert bootstrap_interval(values, float(level)) == (float(lower), float(upper))


def test_bootstrap_is_the_enumeration_at_six():
    values = [3, -2, 0, 7, 1, 1]
    assert bootstrap_interval(values) == tuple(float(b) for b in enumerated_bootstrap(values, Fraction(19, 20)))


def test_a_distribution_function_that_meets_its_target_counts_as_reached():
    # ten draws of 0 or 1: P(sum <= 0) = 1/1024 exactly, so at that tail the bound is 0, and just under it 0 too
    values = [0] * 5 + [1] * 5
    assert bootstrap_interval(values, 1 - 2 / 1024)[0] == 0.0
    assert bootstrap_interval(values, 1 - 2.001 / 1024)[0] == 0.1


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_sign_flip_agrees_with_scipy(seed, n):
    values = np.random.default_rng(seed).integers(-15, 16, n)
    reference = stats.permutation_test(
        (values,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=True, axis=-1
    )
    assert sign_flip_p(values) == pytest.approx(reference.pvalue, abs=1e-12)


@given(st.lists(st.integers(-15, 15), min_size=1, max_size=40), st.integers(1, 1000))
def test_symmetries(values, scale):
    d = np.array(values)
    assert sign_flip_p(d) == sign_flip_p(-d) == sign_flip_p(scale * d) == sign_flip_p(np.append(d, [0, 0]))
    shifted = np.array(bootstrap_interval(d + 3))
    assert shifted == pytest.approx(np.array(bootstrap_interval(d)) + 3)


def test_the_two_flips_agree_where_both_apply():
    rng = np.random.default_rng(5)
    for size in (7, 18, 29):
        values = rng.integers(-6, 8, size)
        assert flip_p(values) == pytest.approx(sign_flip_p(values), rel=1e-12)


def test_tiny_p_keeps_its_digits():
    # all of one sign: exactly 2^(1 - n)
    for n in (53, 200, 900):
        assert sign_flip_p(np.full(n, 2)) == pytest.approx(2.0 ** (1 - n), rel=1e-12)
    # one of the smallest differences against the rest: two sign vectors and their mirrors
    assert sign_flip_p([-1] + [2] * 99) == pytest.approx(2 * 2 / 2**100, rel=1e-12)
    assert sign_flip_p(np.ones(5_000, dtype=np.int8)) == SMALLEST_P > 0


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32])
def test_narrow_integers_do_not_wrap(dtype):
    assert bootstrap_interval(np.full(200, 100, dtype)) == (100.0, 100.0)
    assert sign_flip_p(np.full(10, 100, dtype)) == 2.0**-9
    assert as_integers(np.array([3], np.uint8)) - as_integers(np.array([5], np.uint8)) == -2


def test_floats_are_refused():
    with pytest.raises(TypeError, match="float"):
        sign_flip_p(np.array([0.5, 1.0]))


@pytest.mark.parametrize("n", [700, 20_000])
@pytest.mark.parametrize("spread", ["narrow", "full range"])
def test_large_samples_agree_with_the_t_and_are_fast(n, spread):
    rng = np.random.default_rng(n)
    d = np.rint(rng.normal(0.02, 1.5, n)).astype(int) if spread == "narrow" else rng.integers(-15, 16, n)
    start = time.process_time()
    lower, upper = bootstrap_interval(d)
    p = sign_flip_p(d)
    assert time.process_time() - start < 1.0
    reference = cluster_t(d, partition([str(i) for i in range(n)]))
    width = reference.hi - reference.lo
    assert lower == pytest.approx(reference.lo, abs=0.01 * width + 1 / n)
    assert upper == pytest.approx(reference.hi, abs=0.01 * width + 1 / n)
    assert p == pytest.approx(reference.p, abs=1 / (d.std() * n**0.5))  # a step of the lattice of sums


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=6, max_size=8),
)
def test_inverted_interval_holds_exactly_the_shifts_that_are_not_rejected(clusters):
    sums, sizes = [d for d, _ in clusters], [n for _, n in clusters]
    interval = flip_interval(sums_of(sums), sums_of(sizes))
    assert interval is not None
    lower, upper = (round(100 * bound) for bound in interval)
    assume(lower < upper)  # else the bounds are the estimate, off the lattice
    for step, kept in ((lower, True), (upper, True), (lower - 1, False), (upper + 1, False)):
        assert (enumerated_flip_p(sums, Fraction(step, 100), sizes) > Fraction(1, 20)) is kept


def test_inverted_interval_excludes_zero_exactly_where_the_test_rejects():
    rng = np.random.default_rng(11)
    outcomes = set()
    for _ in range(200):
        sizes = rng.integers(1, 8, 12)
        sums = rng.integers(-3, 6, 12) * sizes
        lower, upper = flip_interval(sums, sizes)
        assert (lower > 0 or upper < 0) == (flip_p(sums) <= 0.05)
        outcomes.add(lower > 0)
    assert outcomes == {True, False}


def test_too_few_clusters_bound_nothing():
    assert flip_interval(sums_of([4, 3, 5, 1, 2]), np.ones(5, int)) is None  # 2^-4 = 0.0625
    assert flip_interval(sums_of([4, 3, 5, 1, 2, 6]), np.ones(6, int)) is not None


def test_equal_cluster_means_give_the_estimate_itself():
    # sums are 0.875 times the sizes: every other shift is rejected, and 0.875 is no multiple of 1/100
    assert flip_interval(sums_of([7, 14, 7, 7, 14, 7]), sums_of([8, 16, 8, 8, 16, 8])) == (0.875, 0.875)


def test_golden_clusters():
    assert Fraction(flip_p(sums_of([3, 3, 2, 2]))) == Fraction(1, 8)


# --- more units than can be counted, and sums that are no integers ---------------------------------------------


@given(st.lists(st.integers(-200, 200), min_size=6, max_size=16))
def test_convolving_is_counting(values):
    sums = sums_of(values)
    sums = sums if sums.sum() > 0 else -sums
    assert flips._convolved(sums) == pytest.approx(flips._share_at_most_zero(sums), rel=1e-12)


def test_a_lattice_is_fine_beside_the_scatter():
    rng = np.random.default_rng(8)
    for count in (12, 29, 30, 64, 300):
        sums = rng.normal(0.3, 1, count) * rng.lognormal(0, 1, count)
        draws = rng.choice([-1, 1], (20_000, count)) @ np.abs(sums)
        share = (np.abs(draws) >= abs(sums.sum())).mean()
        assert flip_p(sums) == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 20_000) + 1e-3)


def test_integers_and_the_same_as_floats_agree():
    rng = np.random.default_rng(9)
    for count in (12, 40):
        sums, sizes = rng.integers(-30, 60, count), rng.integers(1, 9, count)
        assert flip_p(sums * 1.0) == pytest.approx(flip_p(sums), rel=0.01)
        exact, rounded = flip_interval(sums, sizes), flip_interval(sums * 1.0, sizes * 1.0)
        assert rounded == pytest.approx(exact, abs=0.011)


def test_one_huge_cluster_does_not_make_a_small_p():
    # its sign alone decides the sign of the sum
    assert flip_p(sums_of([10_000] + [-1] * 40)) == pytest.approx(1.0)
    assert flip_p(sums_of([10_000] + [1] * 40)) == pytest.approx(2.0**-40)


def test_an_interval_by_convolution_excludes_zero_where_its_test_rejects():
    rng = np.random.default_rng(12)
    outcomes = set()
    for _ in range(20):
        sizes = rng.integers(1, 20, 45)
        sums = np.rint(rng.normal(0.35, 1, 45) * sizes).astype(int)
        lower, upper = flip_interval(sums, sizes)
        assert (lower > 0 or upper < 0) == (flip_p(sums) <= 0.05)
        outcomes.add(lower > 0)
    assert outcomes == {True, False}
