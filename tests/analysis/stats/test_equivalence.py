"""Equivalence by two one-sided tests: against enumeration, statsmodels, and common sense."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from analysis.stats.cluster import Partition, cluster_t
from analysis.stats.exact import bootstrap_mean
from analysis.stats.families import adjust
from analysis.stats.flips import flip_above, flip_p
from analysis.stats.inference import infer
from analysis.wording import TAU_MEAN, TAU_POOLED, Verdict
from tests.analysis.stats.test_estimate import codes, estimate, ratio


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
    assert flip_above(np.array(sums), np.array(sizes), bound) == float(expected)


def test_the_two_sided_flip_is_twice_the_one_sided():
    sums, sizes = np.array([3, 5, -1, 4, 2, 2, 7]), np.array([1, 2, 1, 1, 1, 2, 3])
    assert flip_p(sums) == 2 * flip_above(sums, sizes, Fraction(0))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 2.0))
def test_the_t_is_that_of_statsmodels(seed, margin):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(10, 60, (2, 40))
    steps = rng.integers(5, 20, (2, 40))
    found = ratio(tokens, steps, estimand=TAU_MEAN, margin=margin).equivalence
    d = tokens[1] / steps[1] - tokens[0] / steps[0]
    bound = found.margin  # rounded to 1/10,000ths
    expected = max(DescrStatsW(d).ttost_mean(-bound, bound)[0], found.p_unseen)
    assert found.p == pytest.approx(expected, rel=1e-9)
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
    if found.p < 0.0499:
        assert inside
    elif found.p > 0.0501:
        assert not inside or found.p == found.p_unseen


def answers_of(n, seed=0):
    """Accepted lengths 1 to 8 of n prompts."""
    return np.random.default_rng(seed).permutation(np.arange(n) % 8) + 1


def test_no_difference_is_equivalent_once_prompts_are_many_enough_to_have_shown_one():
    # the lengths span 7: (1 - 0.1/7)^n
    few, enough = (estimate([0] * n, base=answers_of(n), margin=0.1) for n in (208, 209))
    assert few.equivalence.p == pytest.approx((1 - 0.1 / 7) ** 208)
    assert (few.verdict, codes(few)) == (Verdict.IDENTICAL, ["zero-variance", "unseen-values"])
    assert {"208", "209"} <= set(re.findall(r"\d+", few.cautions[1].text))  # those there are, and those that would do
    assert (enough.verdict, codes(enough)) == (Verdict.EQUIVALENT, ["zero-variance"])
    assert enough.equivalence.p == pytest.approx((1 - 0.1 / 7) ** 209)


def test_twelve_equal_pairs_say_nothing_of_a_narrow_margin():
    result = estimate([0] * 12, base=answers_of(12), margin=0.05)
    assert result.equivalence.p == pytest.approx((1 - 0.05 / 7) ** 12)
    assert result.verdict is Verdict.IDENTICAL


def test_no_difference_without_a_margin_or_in_few_pairs_is_identical():
    assert estimate([0] * 5, base=answers_of(5), margin=9).verdict is Verdict.IDENTICAL
    assert estimate([0] * 900, base=answers_of(900)).verdict is Verdict.IDENTICAL
    assert estimate([0] * 12, [0, 1, 2] * 4, answers_of(12), margin=9).verdict is Verdict.IDENTICAL  # three clusters


def test_a_margin_beyond_what_values_can_differ_by_asks_for_six_pairs():
    result = estimate([0] * 6, base=answers_of(6), margin=9)
    assert (result.verdict, result.equivalence.p) == (Verdict.EQUIVALENT, 2.0**-6)


def test_values_that_are_all_one_do_not_show_how_far_they_can_differ():
    result = estimate([0] * 1000, margin=0.1)
    assert (result.verdict, codes(result)) == (Verdict.IDENTICAL, ["zero-variance", "no-range"])
    assert result.equivalence.p == 1.0


@pytest.mark.parametrize(("value", "share"), [(1, 0.05), (1, 0.1), (5, 0.02), (7, 1 / 70), (-7, 1 / 70)])
@pytest.mark.parametrize("n", [6, 12, 20, 60, 100, 200, 300, 400, 1000])
def test_at_the_margin_at_most_one_in_twenty_is_called_equivalent(value, share, n):
    # exactly, by the number k of prompts that differ: no simulation error
    margin, error, clusters = abs(value) * share, 0.0, Partition(np.arange(n), n)
    for k in range(math.ceil(n * share)):
        d = value * (np.arange(n) < k)
        found = infer(d, clusters, cluster_t(d, clusters), margin, reach=abs(value)).equivalence
        error += stats.binom.pmf(k, n, share) * (found is not None and found.shown)
    assert error <= 0.05


def test_clusters_are_the_units_that_may_have_been_missed():
    d, ids = np.zeros(600, int), np.repeat(np.arange(60), 10)
    result = estimate(d, ids, answers_of(600), margin=0.3)
    assert result.equivalence.p == pytest.approx((1 - 0.3 / 7) ** 60)
    assert "60 clusters" in estimate(d, ids, answers_of(600), margin=0.1).cautions[-1].text


@pytest.mark.parametrize("estimand", [TAU_MEAN, TAU_POOLED])
def test_ratios_too(estimand):
    steps = np.full(30, 4)
    tokens = steps * answers_of(30)
    result = ratio((tokens, tokens), (steps, steps), estimand=estimand, margin=0.1)
    assert result.equivalence.p == pytest.approx((1 - 0.1 / 7) ** 30)


def test_a_constant_difference_against_its_margin():
    inside, outside = estimate([1] * 8, margin=1.5), estimate([1] * 8, margin=0.5)
    assert inside.verdict is Verdict.EQUIVALENT
    assert codes(inside) == ["few-units", "zero-variance", "inside-margin"]
    assert outside.verdict is Verdict.B_BETTER
    assert outside.equivalence.p == 1.0


def test_a_difference_told_from_zero_inside_the_margin_counts_as_none():
    result = estimate([1] * 40 + [0] * 160, margin=0.5)
    assert result.lo > 0
    assert (result.verdict, codes(result)) == (Verdict.EQUIVALENT, ["few-units", "inside-margin"])
    assert "0.5" in result.cautions[-1].text


@pytest.mark.parametrize("clusters", [None, [0, 0, 1, 2, 3]])
def test_few_pairs_or_clusters_never_show_equivalence(clusters):
    assert estimate([0, 1, 0, -1, 0], clusters, margin=7).verdict is not Verdict.EQUIVALENT


def test_equivalence_is_a_family_too():
    one = estimate([0] * 18 + [2, -2], margin=0.7)
    assert one.equivalence.p < 0.05 < 10 * one.equivalence.p
    together = adjust([one] * 10)
    assert {e.verdict for e in together} == {Verdict.INCONCLUSIVE}
    assert together[0].equivalence.p_adjusted == pytest.approx(10 * one.equivalence.p)
