"""Which method data get, what degenerate data give, and when there is a verdict."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from analysis.stats.cluster import cluster_t, partition
from analysis.stats.estimate import conclude, of_pairs, of_questions
from analysis.stats.exact import bootstrap_mean
from analysis.stats.families import adjust, holm
from analysis.stats.flips import flip_interval, flip_p, sign_flip_p
from analysis.stats.method import Method
from analysis.wording import ACCEPTED_LENGTH, TAU_MEAN, TAU_POOLED, Verdict


def pairs(tokens, steps, clusters=None):
    ids = [str(c) for c in (range(len(tokens[0])) if clusters is None else clusters)]
    columns = {"tokens_a": tokens[0], "tokens_b": tokens[1], "steps_a": steps[0], "steps_b": steps[1]}
    return pd.DataFrame({**{c: np.asarray(v, np.int64) for c, v in columns.items()}, "cluster_id": ids})


def estimate(d, clusters=None, base=20, margin=None):
    d, one = np.asarray(d, dtype=np.int64), np.ones(len(d), np.int64)
    return of_pairs(pairs((np.zeros_like(d) + base, base + d), (one, one), clusters), ACCEPTED_LENGTH, margin=margin)


def ratio(tokens, steps, clusters=None, estimand=TAU_POOLED, margin=None):
    return of_pairs(pairs(tokens, steps, clusters), estimand, margin=margin)


def codes(result):
    return [c.code for c in result.cautions]


# --- methods ---------------------------------------------------------------------------------------------------


def test_integers_with_clusters_of_one_get_the_exact_methods():
    d = np.random.default_rng(0).integers(-3, 5, 200)
    result = estimate(d)
    assert (result.method, result.n_pairs, result.n_clusters) == ("exact", 200, 200)
    assert (result.lo, result.hi) == bootstrap_mean(d).interval()
    assert result.p == result.p_adjusted == sign_flip_p(d)
    assert result.mean_b - result.mean_a == pytest.approx(result.estimate) == pytest.approx(d.mean())
    assert result.n_zero == (d == 0).sum()
    assert result.verdict is Verdict.B_BETTER


def test_few_real_clusters_get_the_exact_flip_and_its_inversion():
    d, clusters = np.random.default_rng(1).integers(-3, 5, 90), np.arange(90) % 15
    sums, sizes = np.bincount(clusters, d).astype(int), np.bincount(clusters)
    result = estimate(d, clusters)
    assert result.method == "cluster flip"
    assert result.p == flip_p(sums)
    assert (result.lo, result.hi) == flip_interval(sums, sizes)


def test_many_real_clusters_get_the_cluster_t():
    d, clusters = np.random.default_rng(2).integers(-3, 4, 90), np.arange(90) % 30
    reference = cluster_t(d, partition([str(c) for c in clusters]))
    result = estimate(d, clusters)
    assert result.method == "cluster t"
    assert (result.lo, result.hi, result.p) == (reference.lo, reference.hi, reference.p)
    assert result.design_effect == reference.design_effect


def test_many_clusters_of_which_one_dominates_get_the_flip():
    d, clusters = np.random.default_rng(2).integers(-3, 4, 120), np.repeat(np.arange(61), [60] + [1] * 60)
    sums, sizes = np.bincount(clusters, d).astype(int), np.bincount(clusters)
    result = estimate(d, clusters)
    assert result.method is Method.FLIPS
    assert (result.lo, result.hi) == flip_interval(sums, sizes)
    assert result.n_effective == pytest.approx(result.df + 1)
    assert {"few-units", "dominated"} <= set(codes(result))


def test_a_few_long_answers_are_few():
    rng = np.random.default_rng(5)
    steps = np.where(np.arange(100) < 3, 4000, rng.integers(8, 12, 100))
    tokens = [rng.poisson(4 * steps) for _ in "ab"]
    pooled, mean = ratio(tokens, (steps, steps)), ratio(tokens, (steps, steps), estimand=TAU_MEAN)
    assert (pooled.method, mean.method) == (Method.FLIPS, Method.T)
    assert pooled.n_effective < 6 < mean.n_effective == 100
    assert "dominated" in codes(pooled)


def test_a_ratio_over_the_same_steps_flips_differences_of_tokens():
    # the residual of a long answer takes its share of the mean with it, not one prompt's
    rng = np.random.default_rng(7)
    steps = np.r_[900, rng.integers(5, 30, 11)]
    tokens = [rng.poisson(rate * steps) for rate in (3.0, 3.3)]
    found = ratio(tokens, (steps, steps))
    assert found.method is Method.FLIPS
    assert found.p == pytest.approx(flip_p(tokens[1] - tokens[0]))
    lower, upper = flip_interval(tokens[1] - tokens[0], steps, 0.95, Fraction(1, 10_000))
    assert (found.lo, found.hi) == pytest.approx((lower, upper), abs=2 * found.se / 100)


def test_what_a_verdict_requires():
    assert [Method.FLIPS.enough(n, 2.1) for n in (5, 6)] == [False, True]  # signs count, whatever a cluster weighs
    assert [Method.T.enough(40, effective) for effective in (5.9, 6.0)] == [False, True]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_ratios_of_few_prompts_have_no_interval_and_no_verdict_as_integers_have_none(count):
    rng = np.random.default_rng(6)
    steps = rng.integers(5, 20, count)
    result = ratio((2 * steps, 3 * steps + rng.integers(0, 2, count)), (steps, steps))
    assert (result.lo, result.hi, result.verdict) == (None, None, Verdict.INCONCLUSIVE)
    assert result.p == 2.0 ** (1 - count)


def test_beyond_the_exact_range_the_t_takes_over():
    d = np.random.default_rng(3).integers(-3, 4, 20_001)
    assert estimate(d).method == "cluster t"
    assert estimate(d[:-1]).method == "exact"


def test_unsigned_counts_do_not_wrap():
    frame = pairs(([5, 5, 5], [3, 3, 4]), ([1] * 3, [1] * 3)).astype({"tokens_a": np.uint8, "tokens_b": np.uint8})
    assert of_pairs(frame, ACCEPTED_LENGTH).estimate == pytest.approx(-5 / 3)


def test_pooled_and_mean_ratios_are_told_apart():
    tokens, steps = [100, 40, 10], [20, 20, 10]
    more = [120, 40, 10]
    pooled, mean = ratio((tokens, more), (steps, steps)), ratio((tokens, more), (steps, steps), estimand=TAU_MEAN)
    assert (pooled.mean_a, pooled.mean_b) == pytest.approx((3.0, 3.4))
    assert (mean.mean_a, mean.mean_b) == pytest.approx((8 / 3, 3.0))
    assert pooled.n_zero == mean.n_zero == 2
    assert pooled.method is mean.method is Method.FLIPS
    assert codes(pooled) == ["few-clusters"]


# --- degenerate rows (reference, section 6) --------------------------------------------------------------------


def test_turns_of_a_question_are_taken_together():
    """Question x has two turns, 10/4 and 2/2: 12/6 = 2 tokens a step; y has one, 9/3; the mean over turns differs."""
    frame = pd.DataFrame(
        {
            "prompt_id": ["x", "x", "y", "x"], "turn": [0, 1, 0, 0], "sample": [0, 0, 0, 1],
            "tokens_a": [10, 2, 9, 8], "steps_a": [4, 2, 3, 2], "tokens_b": [12, 4, 9, 8], "steps_b": [4, 2, 3, 2],
            "cluster_id": ["x", "x", "y", "x"],
        }
    )  # fmt: skip
    found = of_questions(frame)
    assert (found.n_pairs, found.n_clusters, found.n_zero) == (3, 2, 2)
    assert found.mean_a == pytest.approx((2 + 3 + 4) / 3) and found.mean_b == pytest.approx((16 / 6 + 3 + 4) / 3)
    assert of_pairs(frame, TAU_MEAN).mean_a == pytest.approx((2.5 + 1 + 3 + 4) / 4)
    assert of_questions(frame[frame["turn"] == 0]) is None


def test_no_pairs():
    result = estimate([])
    assert (result.estimate, result.lo, result.p, result.n_pairs) == (None, None, None, 0)
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["no-pairs"])
    assert ratio(([], []), ([], [])).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("value", [0, 3])
def test_one_pair(value):
    result = estimate([value])
    assert (result.estimate, result.lo, result.hi, result.p) == (value, None, None, 1.0)
    assert (result.verdict, codes(result)) == (Verdict.INCONCLUSIVE, ["single-pair"])


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_under_six_pairs_nothing_is_concluded(n):
    result = estimate(np.arange(1, n + 1))
    assert result.p == 2.0 ** (1 - n)
    assert result.lo >= 1
    assert result.verdict is Verdict.INCONCLUSIVE
    assert codes(result) == ["few-pairs"]
    assert result.withheld


@pytest.mark.parametrize(
    ("d", "told"),
    [
        ([1, -1] * 14 + [1], ["few-units"]),  # 29 pairs
        ([1, -1] * 15, []),
        ([1, -1] * 14 + [1] + [0] * 500, ["few-units"]),  # 29 that differ
        ([1, -1] * 15 + [0] * 500, []),
        ([-1] * 33 + [8] * 4, ["skewed"]),  # one in nine makes up for the rest
        ([1] * 99 + [0] * 500, ["few-units"]),  # in one direction
        ([1] * 100 + [0] * 500, []),
        ([1] * 5, ["few-pairs"]),  # nothing can be concluded anyway
        ([0] * 12, ["zero-variance"]),
    ],
)
def test_few_that_differ_and_skewed_differences_carry_a_caution(d, told):
    about_data = [c for c in codes(estimate(d)) if c in ("few-units", "few-pairs", "skewed")]
    assert about_data == [c for c in told if c != "zero-variance"]


def test_the_caution_does_not_depend_on_the_method():
    rng = np.random.default_rng(4)
    steps = rng.integers(5, 9, 60)
    more = np.arange(60) < 20  # twenty that differ
    found = ratio((4 * steps, 4 * steps + more), (steps, steps))
    assert (found.method, "few-units" in codes(found)) == (Method.T, True)
    clustered = estimate(np.where(np.arange(120) < 20, 1, 0) * rng.integers(1, 3, 120), np.repeat(np.arange(60), 2))
    assert (clustered.method, "few-units" in codes(clustered)) == (Method.T, True)


@pytest.mark.parametrize("clusters", [None, [0, 0, 1, 1, 2, 2, 3], [0] * 7])
def test_all_equal(clusters):
    result = estimate([0] * 7, clusters)
    assert (result.lo, result.hi, result.p) == (0.0, 0.0, 1.0)
    assert (result.verdict, codes(result)) == (Verdict.IDENTICAL, ["zero-variance"])


def test_a_constant_difference():
    result = estimate([2] * 8)
    assert (result.lo, result.hi, result.p) == (2.0, 2.0, 2.0**-7)
    assert (result.verdict, codes(result)) == (Verdict.B_BETTER, ["few-units", "zero-variance"])
    assert estimate([-2] * 8).verdict is Verdict.A_BETTER


@pytest.mark.parametrize("count", [7, 40])
def test_a_constant_difference_in_clusters(count):
    result = estimate([1] * (3 * count), np.arange(3 * count) % count)
    assert (result.lo, result.hi) == (1.0, 1.0)
    assert result.p == 2.0 ** (1 - count)
    assert codes(result) == ["few-units", "zero-variance"]  # and all in one direction
    assert result.verdict is Verdict.B_BETTER


def test_a_constant_ratio_difference():
    steps = np.arange(1, 41)
    result = ratio((2 * steps, 3 * steps), (steps, steps))
    assert (result.lo, result.hi) == pytest.approx((1.0, 1.0))
    assert result.p == 2.0**-39
    assert codes(result) == ["few-units", "zero-variance"]


def test_cluster_error_of_zero_though_prompts_vary():
    golden = [1, 2, 0, -1, 3, 1, 0, 2, -2, 4]
    result = estimate(golden, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    assert (result.lo, result.hi, result.p) == (None, None, 1 / 8)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "zero-cluster-error" in codes(result)
    many = estimate(golden * 10, np.repeat(np.arange(40), [3, 3, 2, 2] * 10))
    assert (many.lo, many.p, many.verdict) == (None, 2.0**-39, Verdict.INCONCLUSIVE)
    assert codes(many) == ["zero-cluster-error"]


def test_one_cluster():
    result = estimate([1, 2, 3, 4, 5, 6, 7], [0] * 7)
    assert (result.lo, result.p, result.verdict) == (None, 1.0, Verdict.INCONCLUSIVE)
    assert codes(result) == ["one-cluster"]


def test_under_six_clusters_there_is_no_interval():
    result = estimate([1, 2, 3, 4, 5, 6, 7, 8, 9, 9], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    assert (result.lo, result.p, result.verdict) == (None, 2.0**-4, Verdict.INCONCLUSIVE)
    assert codes(result) == ["few-clusters"]


def test_identical_ratio_arms():
    result = ratio(([30, 40, 50], [30, 40, 50]), ([10, 11, 12], [10, 11, 12]))
    assert (result.estimate, result.lo, result.p, result.verdict) == (0.0, 0.0, 1.0, Verdict.IDENTICAL)


# --- verdicts and families -------------------------------------------------------------------------------------


def test_a_verdict_needs_both_interval_and_test():
    clear = estimate([1] * 40 + [-1] * 10 + [0] * 30)
    assert clear.verdict is Verdict.B_BETTER
    adjusted = conclude(clear, 0.06, 5)
    assert (adjusted.verdict, codes(adjusted)) == (Verdict.INCONCLUSIVE, ["alone-not-in-family"])
    assert "p = 0.06" in adjusted.cautions[0].text
    # one alone of which interval and test disagree
    apart = conclude(replace(clear, p=0.07), 0.14, 2)
    assert (apart.verdict, codes(apart)) == (Verdict.INCONCLUSIVE, ["interval-without-p"])
    assert "p = 0.14" in apart.cautions[0].text
    assert conclude(adjusted, 0.01, 5) == conclude(clear, 0.01, 5)  # earlier disagreement leaves no trace
    # many small gains against few large losses: the flip test rejects symmetry, the mean may well be 0
    skewed = estimate([1] * 40 + [-8] * 2 + [0] * 40)
    forced = conclude(skewed, 0.01, 1)
    assert skewed.lo < 0 < skewed.hi
    assert (forced.verdict, codes(forced)) == (Verdict.INCONCLUSIVE, ["skewed", "p-without-interval"])


@given(st.lists(st.integers(-7, 7), min_size=1, max_size=30))
def test_swapping_the_arms_mirrors_the_verdict(values):
    mirror = {Verdict.B_BETTER: Verdict.A_BETTER, Verdict.A_BETTER: Verdict.B_BETTER}
    forward, backward = estimate(values), estimate([-v for v in values])
    assert backward.p == forward.p
    assert backward.verdict is mirror.get(forward.verdict, forward.verdict)


def test_holm_golden():
    assert holm([0.01, 0.04]) == pytest.approx([0.02, 0.04])
    assert holm([0.01, None, 0.04]) == [pytest.approx(0.02), None, pytest.approx(0.04)]
    assert holm([]) == []
    assert holm([None]) == [None]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=8))
def test_holm_is_that_of_statsmodels(p_values):
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


def test_a_family_is_concluded_together():
    gain, weak, nothing = estimate([1] * 12), estimate([1] * 6), estimate([])
    together = adjust([gain, weak, nothing])
    assert [e.p_adjusted for e in together] == [2 * 2.0**-11, 2.0**-5, None]
    assert [e.family_size for e in together] == [2, 2, 0]
    assert [e.verdict for e in together] == [Verdict.B_BETTER, Verdict.B_BETTER, Verdict.INCONCLUSIVE]
    assert adjust([weak, weak])[0].verdict is Verdict.INCONCLUSIVE  # 2 * 0.03125
