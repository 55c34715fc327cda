"""Equivalence by two one-sided tests: against enumeration, statsmodels, and common sense."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.weightstats import DescrStatsW

from analysis.exact import bootstrap_mean, cluster_flip_above, cluster_flip_p
from analysis.families import adjust
from analysis.wording import TAU_MEAN, Verdict
from tests.analysis.test_estimate import codes, estimate, ratio


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=5), st.fractions(-4, 4, max_denominator=20))
def test_bootstrap_tails_are_those_of_all_resamples(values, bound):
    means = [Fraction(sum(draw), len(values)) for draw in itertools.product(values, repeat=len(values))]
    least = Fraction(1, 2 ** len(values))
    below = max(least, Fraction(sum(m <= bound for m in means), len(means)))
    above = max(least, Fraction(sum(m >= bound for m in means), len(means)))
    mean = bootstrap_mean(values)
    assert (mean.at_most(bound), mean.at_least(bound)) == pytest.approx((float(below), float(above)), abs=1e-12)


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 4)), min_size=1, max_size=7),
    st.fractions(-3, 3, max_denominator=30),
)
def test_one_sided_flip_is_that_of_all_sign_vectors(clusters, bound):
    sums, sizes = zip(*clusters, strict=True)
    shifted = [s - bound * n for s, n in clusters]
    flipped = [
        sum(x * y for x, y in zip(s, shifted, strict=True)) for s in itertools.product((1, -1), repeat=len(sums))
    ]
    expected = Fraction(sum(f >= sum(shifted) for f in flipped), len(flipped))
    assert cluster_flip_above(sums, sizes, bound) == float(expected)


def test_the_two_sided_flip_is_twice_the_one_sided():
    sums, sizes = [3, 5, -1, 4, 2, 2, 7], [1, 2, 1, 1, 1, 2, 3]
    assert cluster_flip_p(sums) == 2 * cluster_flip_above(sums, sizes, Fraction(0))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 2.0))
def test_the_t_is_that_of_statsmodels(seed, margin):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(10, 60, (2, 40))
    steps = rng.integers(5, 20, (2, 40))
    found = ratio(tokens, steps, estimand=TAU_MEAN, margin=margin).equivalence
    d = tokens[1] / steps[1] - tokens[0] / steps[0]
    bound = found.margin  # rounded to 1/10,000ths
    assert found.p == pytest.approx(DescrStatsW(d).ttost_mean(-bound, bound)[0], rel=1e-9)
    assert (found.lo, found.hi) == pytest.approx(DescrStatsW(d).tconfint_mean(alpha=0.1))


@pytest.mark.parametrize("clusters", [None, np.arange(200) % 20, np.arange(200) % 50])
def test_a_small_difference_is_equivalent_within_a_wide_margin_only(clusters):
    d = np.random.default_rng(1).integers(-1, 2, 200)
    wide, narrow, none = (estimate(d, clusters, margin=m) for m in (0.5, 0.01, None))
    assert wide.verdict is Verdict.EQUIVALENT
    assert wide.equivalence.p < 0.05
    assert -0.5 < wide.equivalence.lo < wide.equivalence.hi < 0.5
    assert wide.lo < wide.equivalence.lo < wide.equivalence.hi < wide.hi
    assert narrow.verdict is Verdict.INCONCLUSIVE
    assert narrow.equivalence.p > 0.05
    assert (none.equivalence, none.verdict) == (None, Verdict.INCONCLUSIVE)


@given(st.lists(st.integers(-7, 7), min_size=6, max_size=60), st.sampled_from([0.05, 0.5, 1.0, 3.0]))
def test_tests_and_interval_of_the_exact_method_agree(values, margin):
    found = estimate(values, margin=margin).equivalence
    inside = -margin < found.lo and found.hi < margin
    if 2.0 ** -len(values) < found.p < 0.0499 or found.p > 0.0501:
        assert (found.p < 0.05) == inside


def test_no_difference_is_equivalent_from_six_pairs_on_and_p_is_not_zero():
    assert estimate([0] * 5, margin=0.1).verdict is Verdict.IDENTICAL
    result = estimate([0] * 6, margin=0.1)
    assert (result.verdict, result.equivalence.p) == (Verdict.EQUIVALENT, 2.0**-6)
    assert estimate([0] * 6).verdict is Verdict.IDENTICAL
    assert estimate([0] * 12, [0, 1, 2] * 4, margin=0.1).verdict is Verdict.IDENTICAL  # three clusters say too little


def test_a_constant_difference_against_its_margin():
    inside, outside = estimate([1] * 8, margin=1.5), estimate([1] * 8, margin=0.5)
    assert (inside.verdict, codes(inside)) == (Verdict.EQUIVALENT, ["zero-variance", "inside-margin"])
    assert outside.verdict is Verdict.B_BETTER
    assert outside.equivalence.p == 1.0


def test_a_difference_told_from_zero_inside_the_margin_counts_as_none():
    result = estimate([1] * 40 + [0] * 160, margin=0.5)
    assert result.lo > 0
    assert (result.verdict, codes(result)) == (Verdict.EQUIVALENT, ["inside-margin"])
    assert "0.5" in result.cautions[0].text


@pytest.mark.parametrize("clusters", [None, [0, 0, 1, 2, 3]])
def test_few_pairs_or_clusters_never_show_equivalence(clusters):
    assert estimate([0, 1, 0, -1, 0], clusters, margin=7).verdict is not Verdict.EQUIVALENT


def test_equivalence_is_a_family_too():
    one = estimate([0] * 9 + [2, -2], margin=0.7)
    assert one.equivalence.p < 0.05 < 10 * one.equivalence.p
    together = adjust([one] * 10)
    assert {e.verdict for e in together} == {Verdict.INCONCLUSIVE}
    assert together[0].equivalence.p_adjusted == pytest.approx(10 * one.equivalence.p)
