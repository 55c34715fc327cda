"""Several seeds per arm: seeds and prompts are crossed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.stats.cluster import cluster_t, partition
from analysis.stats.families import adjust
from analysis.stats.seeds import crossed, unchanged
from analysis.wording import ACCEPTED_LENGTH, Verdict


def of(a, b, clusters=None, paired=True):
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    ids = [str(c) for c in (range(a.shape[1]) if clusters is None else clusters)]
    return crossed(a, b, partition(ids), ACCEPTED_LENGTH, paired=paired)


def drawn(seeds, prompts, *, of_seeds, of_prompts, of_both=1.0, rng=None, effect=0.0):
    rng = rng or np.random.default_rng(0)
    d = effect + rng.normal(0, of_seeds, (seeds, 1)) + rng.normal(0, of_prompts, prompts)
    return d + rng.normal(0, of_both, (seeds, prompts))


# --- the variance ----------------------------------------------------------------------------------------------


def test_parts_are_the_mean_squares_of_a_two_way_layout():
    d = drawn(6, 40, of_seeds=0.5, of_prompts=0.7)
    found = of(np.zeros_like(d), d)
    grand, s, n = d.mean(), *d.shape
    seeds = ((d.mean(1) - grand) ** 2).sum() * n / (s - 1)
    prompts = ((d.mean(0) - grand) ** 2).sum() * s / (n - 1)
    rest = ((d - d.mean(1, keepdims=True) - d.mean(0) + grand) ** 2).sum() / ((s - 1) * (n - 1))
    assert found.parts.seeds == pytest.approx(seeds / (s * n))
    assert found.parts.prompts == pytest.approx(prompts / (s * n))
    assert found.parts.residual == pytest.approx(rest / (s * n))
    assert found.parts.total == pytest.approx((seeds + prompts - rest) / (s * n))


def test_both_tests_by_hand():
    # deltas of seeds 1 and 3 over six prompts: seeds' variance of the mean 1, df 1; prompts' 0.7, df 5; residual 0.3
    profile, rest = np.array([-1.0, -1, 0, 0, 1, 1]), np.array([1.0, -1, 1, -1, 1, -1])
    d = 2 + profile + np.array([[-1.0], [1.0]]) * (1 + rest / 2)
    parts = of(np.zeros_like(d), d).parts
    of_seeds, of_prompts = 2 / 2, profile.var(ddof=1) / 6
    residual = (rest / 2).var(ddof=1) / 6
    assert (parts.seeds, parts.prompts, parts.residual) == pytest.approx((of_seeds, of_prompts, residual))
    assert (parts.df_seeds, parts.df_prompts) == pytest.approx((1, 5))
    total = of_seeds + of_prompts - residual
    assert parts.total == pytest.approx(total)
    assert parts.df == pytest.approx(total**2 / (of_seeds**2 + of_prompts**2 / 5 + residual**2 / 5))
    found = of(np.zeros_like(d), d).estimate
    p = [2 * stats.t.sf(2 / math.sqrt(v), df) for v, df in ((of_seeds, 1), (total, parts.df))]
    assert found.p == pytest.approx(max(p))
    halves = [stats.t.ppf(0.975, df) * math.sqrt(v) for v, df in ((of_seeds, 1), (total, parts.df))]
    assert (found.lo, found.hi) == pytest.approx((2 - max(halves), 2 + max(halves)))


def test_the_t_over_seeds_is_a_paired_one():
    d = drawn(5, 60, of_seeds=0.3, of_prompts=0.5, effect=0.4)
    a = np.random.default_rng(1).normal(3, 1, d.shape)
    found = of(a, a + d)
    assert found.parts.p_of_seeds(d.mean()) == pytest.approx(stats.ttest_1samp(d.mean(1), 0).pvalue)
    assert found.estimate.p >= found.parts.p_of_seeds(d.mean())


def test_unpaired_arms_get_welch():
    rng = np.random.default_rng(2)
    a, b = rng.normal(3, 1, (5, 30)) + rng.normal(0, 0.4, (5, 1)), rng.normal(3.5, 1, (7, 30))
    found = of(a, b, paired=False)
    welch = stats.ttest_ind(b.mean(1), a.mean(1), equal_var=False)
    assert found.parts.p_of_seeds(b.mean() - a.mean()) == pytest.approx(welch.pvalue)
    assert found.parts.df_seeds == pytest.approx(welch.df)
    assert (found.deltas, found.design, found.seeds) == ((), "independent", 2 / (1 / 5 + 1 / 7))
    assert found.parts.seeds == pytest.approx(a.mean(1).var(ddof=1) / 5 + b.mean(1).var(ddof=1) / 7)


def test_one_run_is_a_fixed_opponent_of_every_training():
    rng = np.random.default_rng(3)
    a, b = rng.normal(3, 1, (1, 40)), rng.normal(3.5, 1, (6, 40))
    found, repeated = of(a, b, paired=False), of(np.repeat(a, 6, axis=0), b)
    assert (found.design, found.estimate.method) == ("one run", "crossed, one run")
    assert found.parts == repeated.parts
    assert found.estimate.p == repeated.estimate.p
    assert found.deltas == pytest.approx(b.mean(1) - a.mean())
    turned = of(b, a, paired=False)
    assert turned.deltas == pytest.approx([-d for d in found.deltas])
    assert turned.estimate.p == pytest.approx(found.estimate.p)


def test_residual_of_unequal_clusters_is_unbiased():
    # no part of seeds or prompts: all three mean squares estimate one variance
    rng, clusters = np.random.default_rng(4), np.repeat(range(8), [1, 2, 3, 4, 6, 9, 15, 20])
    found = []
    for _ in range(200):
        d = rng.normal(0, 1, (4, 8))[:, clusters] + rng.normal(0, 0.5, (4, 60))
        parts = of(np.zeros_like(d), d, clusters).parts
        found.append((parts.seeds, parts.prompts, parts.residual))
    true = (np.bincount(clusters) ** 2).sum() / 60**2 / 4 + 0.25 / 60 / 4
    assert np.mean(found, axis=0) == pytest.approx([true] * 3, rel=0.2)


def test_data_sets_that_weigh_the_same():
    d = drawn(5, 90, of_seeds=0.3, of_prompts=0.5, effect=0.2)
    datasets = np.repeat([0, 1], [60, 30])
    found = crossed(np.zeros_like(d), d, partition(range(90)), ACCEPTED_LENGTH, paired=True, datasets=datasets)
    halves = [of(np.zeros_like(x), x) for x in (d[:, :60], d[:, 60:])]
    assert found.estimate.estimate == pytest.approx(np.mean([h.estimate.estimate for h in halves]))
    assert found.deltas == pytest.approx(np.mean([h.deltas for h in halves], axis=0))
    assert found.parts.prompts == pytest.approx(sum(h.parts.prompts for h in halves) / 4)
    assert found.parts.residual == pytest.approx(sum(h.parts.residual for h in halves) / 4)
    variances = [h.parts.prompts for h in halves]
    assert found.parts.df_prompts == pytest.approx(
        sum(variances) ** 2 / (variances[0] ** 2 / 59 + variances[1] ** 2 / 29)
    )


def test_a_data_set_of_few_clusters_leaves_the_balanced_mean_alone():
    d = drawn(5, 90, of_seeds=0.3, of_prompts=0.5)
    ids = np.r_[np.arange(60), np.repeat([60, 61, 62, 63, 64], 6)]
    found = crossed(
        np.zeros_like(d), d, partition(ids), ACCEPTED_LENGTH, paired=True, datasets=np.repeat([0, 1], [60, 30])
    )
    assert (found.parts, found.estimate.lo, found.estimate.p) == (None, None, None)
    assert found.estimate.verdict is Verdict.INCONCLUSIVE


@given(st.integers(0, 10**6), st.integers(2, 8), st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1))
def test_p_is_the_intervals_own(seed, seeds, of_seeds, of_prompts, effect):
    rng = np.random.default_rng(seed)
    d = drawn(seeds, 20, of_seeds=of_seeds, of_prompts=of_prompts, rng=rng, effect=effect)
    e = of(np.zeros_like(d), d, np.arange(20) // 2).estimate
    assert (e.p < 0.05) == (e.lo > 0 or e.hi < 0)
    assert e.lo <= e.estimate <= e.hi


def test_seeds_that_agree_leave_the_error_of_prompts():
    d = np.tile(np.random.default_rng(3).normal(0.2, 1, 50), (5, 1))
    found = of(np.zeros_like(d), d)
    alone = cluster_t(d[0], partition([str(i) for i in range(50)]))
    assert (found.parts.seeds, found.parts.residual) == pytest.approx((0, 0), abs=1e-20)
    assert (found.estimate.lo, found.estimate.hi) == pytest.approx((alone.lo, alone.hi))


def test_prompts_that_agree_leave_the_error_of_seeds():
    d = np.repeat(np.random.default_rng(4).normal(0.2, 1, (6, 1)), 30, axis=1)
    found = of(np.zeros_like(d), d)
    interval = stats.ttest_1samp(d[:, 0], 0).confidence_interval()
    assert (found.estimate.lo, found.estimate.hi) == pytest.approx((interval.low, interval.high))


def test_copies_of_prompts_in_one_cluster_add_nothing():
    d = drawn(5, 30, of_seeds=0.3, of_prompts=0.5)
    once = of(np.zeros_like(d), d)
    thrice = of(np.zeros((5, 90)), np.repeat(d, 3, axis=1), clusters=np.repeat(range(30), 3))
    assert thrice.estimate.se == pytest.approx(once.estimate.se)
    assert thrice.parts.df == pytest.approx(once.parts.df)


def test_the_total_is_never_under_a_part():
    rng = np.random.default_rng(5)
    for _ in range(50):
        d = drawn(5, 20, of_seeds=0, of_prompts=0, rng=rng)
        parts = of(np.zeros_like(d), d).parts
        assert parts.total >= max(parts.seeds, parts.prompts)


def test_a_wide_seed_spread_is_not_hidden_by_many_prompts():
    d = drawn(5, 5000, of_seeds=1.0, of_prompts=0.1, effect=0.3)
    found = of(np.zeros_like(d), d)
    assert found.estimate.se == pytest.approx(d.mean(1).std(ddof=1) / math.sqrt(5), rel=0.01)
    assert found.estimate.verdict is Verdict.INCONCLUSIVE


# --- verdicts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seeds", "verdict"), [(4, Verdict.INCONCLUSIVE), (5, Verdict.B_BETTER)])
def test_no_verdict_about_training_under_five_seeds(seeds, verdict):
    d = drawn(seeds, 200, of_seeds=0.02, of_prompts=0.3, effect=1.0)
    found = of(np.zeros_like(d), d).estimate
    assert found.lo > 0
    assert found.verdict is verdict
    assert ("few-seeds" in {c.code for c in found.cautions}) == (seeds < 5)


def test_identical_arms():
    a = np.random.default_rng(6).normal(3, 1, (5, 20))
    found = of(a, a).estimate
    assert (found.estimate, found.p, found.lo, found.verdict) == (0.0, 1.0, None, Verdict.IDENTICAL)
    assert of(a[:3], a[:3]).estimate.verdict is Verdict.INCONCLUSIVE


def test_few_clusters_have_no_interval():
    d = drawn(5, 60, of_seeds=0.1, of_prompts=0.1, effect=2)
    five, six = (of(np.zeros_like(d), d, np.arange(60) % count).estimate for count in (5, 6))
    assert (five.lo, five.p, five.verdict) == (None, None, Verdict.INCONCLUSIVE)
    assert {c.code for c in five.cautions} == {"few-clusters-crossed"}
    assert six.verdict is Verdict.B_BETTER


def test_a_difference_that_prompts_alone_hide_is_named():
    profile = np.random.default_rng(8).normal(0.1, 1, 40)
    d = profile + np.random.default_rng(9).normal(0, 0.02, (5, 40))
    found = of(np.zeros_like(d), d).estimate
    assert found.p >= 0.05
    assert "seeds-without-prompts" in {c.code for c in found.cautions}


def test_one_difference_everywhere_has_no_interval():
    d = np.full((5, 20), 0.5)
    found = of(np.zeros_like(d), d).estimate
    assert (found.lo, found.p, found.verdict) == (None, None, Verdict.INCONCLUSIVE)
    assert "zero-variance" in {c.code for c in found.cautions}


def test_equivalence_by_both_tests():
    a = np.tile(np.arange(200) % 4, (6, 1)).astype(float)
    d = drawn(6, 200, of_seeds=0.02, of_prompts=0.1, of_both=0.1, effect=0.03)
    found = crossed(a, a + d, partition(range(200)), ACCEPTED_LENGTH, paired=True, margin=0.3)
    e, parts = found.estimate, found.parts
    sides = [
        stats.t.sf((0.3 - side * e.estimate) / math.sqrt(v), df)
        for side in (1, -1)
        for v, df in ((parts.seeds, parts.df_seeds), (parts.total, parts.df))
    ]
    assert e.equivalence.p == pytest.approx(max(*sides, e.equivalence.p_unseen))
    assert e.verdict is Verdict.EQUIVALENT
    few = crossed(a[:4], (a + d)[:4], partition(range(200)), ACCEPTED_LENGTH, paired=True, margin=0.3)
    assert few.estimate.verdict is Verdict.INCONCLUSIVE


def false_verdicts(rng, datasets, sizes, of_seeds, of_prompts, studies=80):
    clusters = partition(np.repeat(np.arange(len(sizes)), sizes))
    wrong = 0
    for _ in range(studies):
        family = []
        for _ in range(datasets):
            d = rng.normal(0, of_seeds, (5, 1)) + rng.normal(0, of_prompts, len(sizes))[clusters.index]
            d = d + rng.normal(0, 0.5, (5, clusters.index.size))
            family.append(crossed(np.zeros_like(d), d, clusters, ACCEPTED_LENGTH, paired=True).estimate)
        wrong += any(e.verdict is not Verdict.INCONCLUSIVE for e in adjust(family))
    return wrong / studies


@pytest.mark.parametrize(
    ("datasets", "sizes", "of_seeds", "of_prompts", "before"),
    [
        (6, [1] * 60, 0.02, 0.7, 0.247),  # p over seeds alone was adjusted
        (1, [50, *[2] * 25], 0.02, 0.7, 0.295),  # one cluster holds half of the prompts
    ],
)
def test_false_verdicts_are_far_below_what_they_were(datasets, sizes, of_seeds, of_prompts, before):
    assert false_verdicts(np.random.default_rng(10), datasets, sizes, of_seeds, of_prompts) < before / 2


def test_no_verdict_rests_on_one_cluster():
    d = drawn(5, 120, of_seeds=0.02, of_prompts=0.0, effect=2.0) + np.repeat(
        np.random.default_rng(11).normal(0, 0.5, 31), [60, *[2] * 30]
    )
    found = of(np.zeros_like(d), d, np.repeat(range(31), [60, *[2] * 30]))
    assert found.estimate.n_effective == found.parts.effective < 6
    assert found.estimate.lo is not None
    assert found.estimate.verdict is Verdict.INCONCLUSIVE
    assert "dominated" in {c.code for c in found.estimate.cautions}


def test_prompts_that_no_pair_of_runs_tells_apart_are_ties():
    a, b = np.array([[1, 1, 2], [1, 2, 3]]), np.array([[1, 1, 2], [1, 2, 4]])
    assert unchanged(a, b, paired=True).tolist() == [True, True, False]
    assert unchanged(a, b, paired=False).tolist() == [True, False, False]
    assert unchanged(a[:1], b, paired=False).tolist() == [True, False, False]


def test_long_answers_leave_fewer_effective_prompts():
    d = drawn(5, 40, of_seeds=0.1, of_prompts=1.0)
    weights = np.r_[np.full(4, 7.0), np.full(36, 12 / 36)]
    plain = of(np.zeros_like(d), d).parts
    weighted = crossed(np.zeros_like(d), d, partition(range(40)), ACCEPTED_LENGTH, paired=True, weights=weights).parts
    assert weights.mean() == pytest.approx(1)
    assert plain.effective == pytest.approx(40)
    assert 4 < weighted.effective < 10  # four answers carry 70%
    assert weighted.seeds == plain.seeds
