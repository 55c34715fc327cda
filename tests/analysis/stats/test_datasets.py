"""Data sets side by side: the balanced mean, Simpson's reversal, heterogeneity and contrasts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects
from statsmodels.stats.oneway import anova_oneway

from analysis.stats.datasets import balanced_mean, disagreement, heterogeneity, interactions, welch
from analysis.stats.estimate import of_pairs
from analysis.stats.method import Method
from analysis.wording import ACCEPTED_LENGTH, TAU_POOLED, Verdict


def frame_of(differences, clusters=None, base=20):
    """Pairs of accepted lengths from differences per data set."""
    rows = [
        {"dataset": name, "tokens_a": base, "tokens_b": base + int(x), "steps_a": 1, "steps_b": 1}
        for name, values in differences.items()
        for x in values
    ]
    ids = range(len(rows)) if clusters is None else clusters
    return pd.DataFrame(rows).assign(cluster_id=[f"c{i}" for i in ids])


def per_dataset(frame, estimand=ACCEPTED_LENGTH):
    return {name: of_pairs(frame, estimand, name) for name in sorted(frame["dataset"].unique())}


def codes(cautions):
    return [c.code for c in cautions]


# --- pooled and balanced ---------------------------------------------------------------------------------------


def test_the_published_split_recombines():
    # 647 prompts of one data set and 53 of another: the pooled mean is the weighted one, the balanced the plain one
    rng = np.random.default_rng(0)
    frame = frame_of({"metamath": rng.integers(-3, 4, 647), "orca": rng.integers(-2, 5, 53)})
    each = per_dataset(frame)
    pooled = of_pairs(frame, ACCEPTED_LENGTH).estimate
    assert pooled == pytest.approx((647 * each["metamath"].estimate + 53 * each["orca"].estimate) / 700)
    assert balanced_mean(frame, ACCEPTED_LENGTH).estimate == pytest.approx(np.mean([e.estimate for e in each.values()]))


def test_balanced_error_is_that_of_independent_data_sets():
    rng = np.random.default_rng(1)
    d = {"a": rng.integers(-3, 4, 400), "b": rng.integers(-3, 4, 30), "c": rng.integers(-1, 2, 100)}
    result = balanced_mean(frame_of(d), ACCEPTED_LENGTH)
    of_each = [v.var(ddof=1) / v.size for v in d.values()]
    assert result.se == pytest.approx(np.sqrt(sum(of_each)) / 3)
    df = sum(of_each) ** 2 / sum(v**2 / (x.size - 1) for v, x in zip(of_each, d.values(), strict=True))
    assert (result.df, result.n_effective) == pytest.approx((df, df + 1))
    assert result.hi - result.estimate == pytest.approx(stats.t.ppf(0.975, df) * result.se)
    assert result.mean_b - result.mean_a == pytest.approx(result.estimate)
    assert result.estimand.key == "accepted_length_balanced"


def test_balanced_error_knows_clusters_that_span_data_sets():
    # every prompt of b is an augmentation of the one in a, with the same difference: nothing is gained
    d = np.random.default_rng(2).integers(-3, 4, 50)
    both = balanced_mean(frame_of({"a": d, "b": d}, [*range(50), *range(50)]), ACCEPTED_LENGTH)
    once = of_pairs(frame_of({"a": d}), ACCEPTED_LENGTH)
    assert (both.se, both.df) == pytest.approx((once.se, once.df))
    assert both.n_clusters == 50


def test_one_data_set_has_no_balance_and_few_clusters_no_interval():
    assert balanced_mean(frame_of({"a": [1, 2, 3]}), ACCEPTED_LENGTH) is None
    result = balanced_mean(frame_of({"a": [1, 2, 3, 0, 1, 2], "b": [5]}), ACCEPTED_LENGTH)
    assert (result.estimate, result.lo, result.p, result.verdict) == (3.25, None, None, Verdict.INCONCLUSIVE)
    assert codes(result.cautions) == ["small-datasets"]
    few = balanced_mean(frame_of({"a": [1, 2, 3, 0, 1, 2], "b": [9, 4, 1]}), ACCEPTED_LENGTH)
    assert (few.lo, few.p, few.method) == (None, None, Method.NONE)
    # four prompts that hardly vary may do so by chance, so their weight decides: half of this mean
    rng = np.random.default_rng(4)
    rest = rng.integers(-9, 9, 60)
    by_chance = balanced_mean(frame_of({"a": rest, "b": [2, 1, 2, 1]}), ACCEPTED_LENGTH)
    assert by_chance.lo is None and codes(by_chance.cautions) == ["small-datasets"]
    # a sixth of it, with the degrees of freedom of clusters that vary alike
    six = {name: rng.integers(-9, 9, 60) for name in "bcdef"} | {"a": [2, 1, 2, 1]}
    small = balanced_mean(frame_of(six), ACCEPTED_LENGTH)
    df = (1 / 4 + 5 / 60) ** 2 / (1 / 4**2 / 3 + 5 / 60**2 / 59)
    assert small.lo is not None and small.df == pytest.approx(df)
    three = balanced_mean(frame_of(six | {"a": [2, 1, 2]}), ACCEPTED_LENGTH)
    assert three.lo is None and codes(three.cautions) == ["small-datasets"]


def test_a_small_data_set_that_is_half_of_a_mean_leaves_it_its_own_degrees_of_freedom():
    rng = np.random.default_rng(3)
    found = balanced_mean(frame_of({"a": rng.integers(-3, 4, 600), "b": rng.integers(-3, 4, 6)}), ACCEPTED_LENGTH)
    assert 5 < found.df < 5.2


def test_the_margin_holds_for_data_sets_weighing_the_same():
    frame = frame_of({"a": [0, 1, -1, 0] * 100, "b": [0, 0, 1, -1] * 100})
    balanced = balanced_mean(frame, ACCEPTED_LENGTH, 0.3)
    assert (balanced.verdict, balanced.equivalence.margin) == (Verdict.EQUIVALENT, 0.3)
    assert balanced_mean(frame, ACCEPTED_LENGTH).equivalence is None
    lone = frame_of({"a": [0, 1, -1, 0] * 100, "b": [0]})
    assert balanced_mean(lone, ACCEPTED_LENGTH, 0.3).equivalence is None


def test_simpson_by_mix():
    frame = frame_of({"big": [1] * 90 + [0] * 10, "small": [-3] * 9 + [-2]})
    pooled, balanced = of_pairs(frame, ACCEPTED_LENGTH), balanced_mean(frame, ACCEPTED_LENGTH)
    assert pooled.estimate > 0 > balanced.estimate
    assert codes(disagreement(pooled, balanced, per_dataset(frame))) == ["simpson-balanced"]
    agreed = frame_of({"big": [1] * 90, "small": [2] * 10})
    assert not disagreement(
        of_pairs(agreed, ACCEPTED_LENGTH), balanced_mean(agreed, ACCEPTED_LENGTH), per_dataset(agreed)
    )


def test_a_verdict_by_mix():
    # the large data set does not differ, the small one does: pooled 0.08 of noise, balanced 0.5
    rng = np.random.default_rng(12)
    frame = frame_of({"big": rng.permutation([-2, -1, 0, 1, 2] * 80), "small": [1] * 30 + [2] * 3})
    pooled, balanced = of_pairs(frame, ACCEPTED_LENGTH), balanced_mean(frame, ACCEPTED_LENGTH)
    assert (pooled.verdict, balanced.verdict) == (Verdict.INCONCLUSIVE, Verdict.B_BETTER)
    assert codes(disagreement(pooled, balanced, per_dataset(frame))) == ["verdict-by-mix"]


def test_without_an_interval_of_the_balanced_mean_its_verdict_is_none_to_disagree_with():
    frame = frame_of({"a": [1, 2, 3, 1, 1, 2, 1, 3], "b": [5]})
    pooled, balanced = of_pairs(frame, ACCEPTED_LENGTH), balanced_mean(frame, ACCEPTED_LENGTH)
    assert pooled.verdict is Verdict.B_BETTER
    assert disagreement(pooled, balanced, per_dataset(frame)) == ()


def test_simpson_of_a_ratio():
    # B needs fewer steps on the easy data set and spends them on the hard one: better on both, worse pooled
    frame = pd.DataFrame(
        {
            "dataset": ["easy", "hard"],
            "tokens_a": [400, 100],
            "steps_a": [100, 100],
            "tokens_b": [41, 660],
            "steps_b": [10, 600],
            "cluster_id": ["x", "y"],
        }
    )
    each = per_dataset(frame, TAU_POOLED)
    pooled = of_pairs(frame, TAU_POOLED)
    assert [round(e.estimate, 2) for e in each.values()] == [0.1, 0.1]
    assert pooled.estimate < 0
    assert "simpson" in codes(disagreement(pooled, balanced_mean(frame, TAU_POOLED), each))


# --- heterogeneity ---------------------------------------------------------------------------------------------


def test_heterogeneity_is_that_of_statsmodels():
    rng = np.random.default_rng(3)
    frame = frame_of({f"d{i}": np.round(rng.normal(m, 2, 80)) for i, m in enumerate([-1, 0, 0.4, 1, 3])})
    each = per_dataset(frame)
    found = heterogeneity(frame, each)
    effects, variances = np.array([e.estimate for e in each.values()]), np.array([e.se**2 for e in each.values()])
    reference = combine_effects(effects, variances, "iterated", use_t=True)
    assert (found.lo, found.hi) == pytest.approx(tuple(reference.conf_int()[3]))
    assert (found.q, found.p) == pytest.approx((reference.q, reference.test_homogeneity().pvalue))
    assert found.i_squared == pytest.approx(reference.i2)
    assert found.between_sd == pytest.approx(np.sqrt(reference.tau2))
    # Paule-Mandel by its definition: the scatter around the mean is what it should be
    weights = 1 / (variances + found.between_sd**2)
    assert weights @ (effects - found.estimate) ** 2 == pytest.approx(4, abs=1e-4)
    assert found.cautions == ()


def test_the_test_of_equality_is_welchs():
    rng = np.random.default_rng(8)
    groups = [rng.normal(m, sd, n) for m, sd, n in ((0, 1, 12), (0.5, 3, 30), (1, 2, 9), (0.2, 1, 50))]
    found = welch(
        np.array([g.mean() for g in groups]),
        np.array([g.var(ddof=1) / g.size for g in groups]),
        np.array([g.size - 1.0 for g in groups]),
    )
    reference = anova_oneway(groups, use_var="unequal", welch_correction=True)
    assert found == pytest.approx((reference.pvalue, reference.df_denom))


def test_agreement_by_luck_does_not_narrow_the_interval():
    d = np.array([-2, -1, 0, 1, 2, 3] * 10)
    frame = frame_of({"a": d, "b": d, "c": d})
    found = heterogeneity(frame, per_dataset(frame))
    assert (found.between_sd, found.i_squared, found.q, found.p) == (0, 0, 0, 1)
    se = d.std(ddof=1) / np.sqrt(180)
    assert found.hi - found.estimate == pytest.approx(stats.t.ppf(0.975, 2) * se)
    assert codes(found.cautions) == ["few-datasets"]


def test_data_sets_without_an_error_are_left_out_by_name():
    frame = frame_of({"a": [1, 2, 3, 4, -1, 1], "b": [2, 2, 1, -3, 1, 1], "lone": [4]})
    found = heterogeneity(frame, per_dataset(frame))
    assert found.datasets == 2
    assert "lone" in found.cautions[0].text
    assert heterogeneity(frame[frame["dataset"] != "b"], per_dataset(frame[frame["dataset"] != "b"])) is None


def test_a_data_set_in_which_hardly_a_prompt_differs_does_not_decide_how_much_data_sets_differ():
    # one of 60 differs: a standard error of 1/60, and with it 9 tenths of the fixed weights
    rng = np.random.default_rng(11)
    d = {name: rng.integers(-3, 4, 60) for name in "abcde"}
    sparse = frame_of({**d, "sparse": np.arange(60) == 7})
    each = per_dataset(sparse)
    weights = np.array([1 / e.se**2 for e in each.values()])
    assert weights[-1] / weights.sum() > 0.85
    found, without = heterogeneity(sparse, each), heterogeneity(frame_of(d), per_dataset(frame_of(d)))
    assert (found.datasets, found.q, found.p, found.lo) == (5, without.q, without.p, without.lo)
    assert codes(found.cautions) == ["heterogeneity-left-out"]
    assert "sparse" in found.cautions[0].text


# --- contrasts -------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(12, 60), st.integers(12, 60))
def test_two_data_sets_are_a_welch_test(seed, n, m):
    rng = np.random.default_rng(seed)
    d = {"x": rng.integers(-7, 8, n), "y": rng.integers(-1, 3, m)}
    assume(min(np.count_nonzero(v) for v in d.values()) >= 6)
    (found,) = interactions(frame_of(d), ACCEPTED_LENGTH)
    reference = stats.ttest_ind(d["x"], d["y"], equal_var=False)
    interval = reference.confidence_interval()
    assert (found.lo, found.hi) == pytest.approx((interval.low, interval.high))
    assert found.p == found.p_adjusted == pytest.approx(reference.pvalue)
    assert (found.dataset, found.against) == ("x", "y")


def test_clusters_on_both_sides_enter_with_their_covariance():
    rng = np.random.default_rng(4)
    shared = rng.normal(0, 3, 40)
    d = {name: np.round(shared + rng.normal(0, 1, 40)) for name in "xy"}
    frame = frame_of(d, [*range(40), *range(40)])
    (found,) = interactions(frame, ACCEPTED_LENGTH)
    paired = stats.ttest_rel(d["x"], d["y"])
    # balanced and all shared: a paired test
    assert (found.lo, found.hi) == pytest.approx(tuple(paired.confidence_interval()))
    assert found.p == pytest.approx(paired.pvalue)


def test_partly_shared_clusters_are_a_clustered_regression():
    rng = np.random.default_rng(7)
    frame = frame_of({"x": rng.integers(-3, 4, 200), "y": rng.integers(-3, 4, 150)}, [*range(200), *range(100, 250)])
    (found,) = interactions(frame, ACCEPTED_LENGTH)
    y = frame["tokens_b"] - frame["tokens_a"]
    x = sm.add_constant((frame["dataset"] == "x").astype(float))
    groups = frame["cluster_id"].factorize()[0]
    fit = sm.OLS(y, x).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False})
    assert (found.hi - found.lo) / 2 / stats.t.ppf(0.975, 149) == pytest.approx(fit.bse.iloc[1], rel=0.005)


def test_each_against_all_others_adjusted_by_holm():
    rng = np.random.default_rng(5)
    frame = frame_of({"a": rng.integers(-2, 3, 60), "b": rng.integers(-2, 3, 60), "c": rng.integers(1, 6, 60)})
    found = interactions(frame, ACCEPTED_LENGTH)
    assert [i.dataset for i in found] == ["a", "b", "c"]
    assert [i.shown for i in found] == [True, True, True]
    assert max(found, key=lambda i: i.estimate).dataset == "c"
    assert found[2].p_adjusted == pytest.approx(3 * found[2].p)


def test_the_small_side_limits_what_can_be_seen():
    rng = np.random.default_rng(6)
    (found,) = interactions(frame_of({"a": rng.integers(-3, 4, 600), "b": rng.integers(-3, 4, 12)}), ACCEPTED_LENGTH)
    alone = of_pairs(frame_of({"b": rng.integers(-3, 4, 12)}), ACCEPTED_LENGTH)
    assert found.mde == pytest.approx(alone.mde, rel=0.4)
    assert not found.shown


def test_contrasts_and_the_test_of_equality_say_that_units_are_few():
    rng = np.random.default_rng(7)
    frame = frame_of({"a": rng.integers(-3, 4, 400), "b": rng.integers(-3, 4, 12), "c": rng.integers(-3, 4, 400)})
    found = {i.dataset: {c.code for c in i.cautions} for i in interactions(frame, ACCEPTED_LENGTH)}
    assert found == {"a": set(), "b": {"few-units"}, "c": set()}
    told = {c.code: c.text for c in heterogeneity(frame, per_dataset(frame)).cautions}
    assert "(b)" in told["datasets-few-or-skewed"]
    enough = frame[frame["dataset"] != "b"]
    assert "datasets-few-or-skewed" not in {c.code for c in heterogeneity(enough, per_dataset(enough)).cautions}


@pytest.mark.parametrize("other", [[1], [1, 1, 1]])
def test_a_contrast_without_spread_is_not_defined(other):
    frame = frame_of({"a": [1, 1, 1], "b": other})
    (found,) = interactions(frame, ACCEPTED_LENGTH)
    assert (found.estimate, found.lo, found.p, found.mde, found.shown) == (0, None, None, None, False)
    assert interactions(frame_of({"a": [1, 2]}), ACCEPTED_LENGTH) == ()
