"""Acceptance by draft position, against counts done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.comparison.pairwise import compare_runs
from analysis.measures.positions import positions
from analysis.report.sections.positions import ceilings, conditional_table, survival_table
from analysis.runlog.load import load
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from analysis.stats.cluster import cluster_t, partition
from tests.analysis.runs import BLOCK, prompt, prompts_of, write_run
from tests.analysis.stats.cr2 import dense, likeliest_icc


def loaded(folder, prompts, protocol="prefix"):
    run = write_run(folder, prompts, protocol=protocol, gates=False, history=False)
    return load(Run.open(run), protocol)


def both(tmp_path, a, b, protocol="prefix"):
    first, second = loaded(tmp_path / "a", a, protocol), loaded(tmp_path / "b", b, protocol)
    return positions(first, second, pair(first, second))


def curve(tmp_path, prompts, protocol="prefix"):
    return both(tmp_path, prompts, prompts, protocol)[0].curve


def test_survival_is_the_product_limit_estimate(tmp_path):
    # three reached slot 1 and two passed; of the two at slots 2 and 3 none failed, one was cut after 2; the last failed
    prompts = [prompt("x", 3, eligible=7), prompt("y", 0, eligible=1), prompt("z", 2, eligible=2)]
    table = curve(tmp_path, prompts)
    assert table["at_risk"].tolist() == [3, 2, 1, 1, 1, 1, 1]
    assert table["survival"].tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0, 0, 0, 0])


def test_survival_never_rises_where_cut_blocks_are_the_hard_ones(tmp_path):
    # every block with a slot 7 survives, of those cut before it most failed: the share of survivors goes 50%, 100%
    prompts = [*prompts_of([7] * 4), *(prompt(f"cut{i}", int(i == 0), eligible=1) for i in range(6))]
    table = curve(tmp_path, prompts)
    assert table["survival"].tolist() == pytest.approx([0.5] * 7)
    assert table["at_risk"].tolist() == [10, *[4] * 6]


def test_greenwood_by_hand(tmp_path):
    # 10 blocks: 4 fail at slot 1; of 6 two are cut after it and 1 of 4 fails at slot 2; of 3 one fails at slot 3
    cut = [prompt(f"cut{i}", 1, eligible=1) for i in range(2)]
    blocks = [*prompts_of([0] * 4 + [1, 2, 7, 7]), *cut]
    whole = [prompt(f"p{i:03d}", 0) for i in range(8)] + [prompt(p["prompt_id"], 0, eligible=1) for p in cut]
    _, survived, difference = both(tmp_path, whole, blocks)
    product = [0.6, 0.6 * 0.75, 0.6 * 0.75 * 2 / 3]
    assert survived.curve["survival"].tolist()[:3] == pytest.approx(product)
    terms = [4 / (10 * 6), 1 / (4 * 3), 1 / (3 * 2)]
    accepted, slots = np.array([1, 1, 0, 0, 0, 0, 1, 2, 7, 7]), np.array([1, 1, *[7] * 8])
    deviation, weight = np.zeros(10), np.zeros(10)
    for k, (s, term) in enumerate(zip(product, terms, strict=True), start=1):
        reached = (slots >= k) & (accepted >= k - 1)
        rate = (reached & (accepted >= k)).sum() / reached.sum()
        deviation = deviation + reached * ((accepted >= k) - rate) / (rate * reached.sum())
        weight = weight + term * (slots >= k) / (slots >= k).sum()
        assert s**2 * (deviation**2).sum() == pytest.approx(s**2 * sum(terms[:k]))  # Greenwood's
        shares = weight / weight.mean()
        icc = likeliest_icc(10 * deviation, np.arange(10), shares)
        variance, df = dense(10 * deviation, np.arange(10), icc, shares)
        row = difference.loc[k - 1]
        assert row["df"] == pytest.approx(df) and row["n_effective"] == pytest.approx(df + 1)
        half = stats.t.ppf(0.975, df) * s * math.sqrt(variance)  # A's survival is 0 without spread
        assert row["hi"] - row["difference"] == pytest.approx(half)
    assert difference.loc[0, "df"] == pytest.approx(9)  # at the first slot all prompts weigh the same


def test_prompts_without_a_slot_change_no_error(tmp_path):
    accepted = [0, 2, 1, 5, 3, 0, 7, 2]
    rest = [prompt(f"none{i}", 0, eligible=0) for i in range(6)]
    alone, beside = (
        both(tmp_path / name, [*prompts_of(accepted), *more], [*prompts_of(accepted[::-1]), *more])[2]
        for name, more in (("alone", []), ("beside", rest))
    )
    assert beside.equals(alone) or np.allclose(beside, alone)


def test_the_difference_of_products_has_the_error_of_a_cluster_bootstrap(tmp_path):
    rng = np.random.default_rng(5)
    clusters, per = 60, 3
    easy = rng.normal(1.5, 0.7, clusters).repeat(per)
    eligible = np.where(rng.random(clusters * per) < 0.4, rng.integers(1, 5, clusters * per), BLOCK - 1)
    arms = []
    for extra in (0.0, 0.4):
        drafted = rng.geometric(1 / (1 + np.exp(easy + extra + rng.normal(0, 0.3, clusters * per)))) - 1
        arms.append(np.minimum(drafted, eligible))
    ids = [f"p{i:03d}" for i in range(clusters * per)]
    made = [
        [
            prompt(i, int(n), eligible=int(e), cluster_id=f"c{j // per}")
            for j, (i, n, e) in enumerate(zip(ids, accepted, eligible, strict=True))
        ]
        for accepted in arms
    ]
    table = both(tmp_path, *made)[2].set_index("k")
    draws = rng.multinomial(clusters, np.full(clusters, 1 / clusters), 4000).repeat(per, axis=1)
    for k in (1, 3, 5, 7):
        products = [np.ones(4000), np.ones(4000)]
        for arm, accepted in enumerate(arms):
            for j in range(1, k + 1):
                reached = (eligible >= j) & (accepted >= j - 1)
                products[arm] *= (draws @ (reached & (accepted >= j))) / (draws @ reached)
        half = table.loc[k, "hi"] - table.loc[k, "difference"]
        assert half / stats.t.ppf(0.975, clusters - 1) == pytest.approx((products[1] - products[0]).std(), rel=0.06)


def test_where_every_survivor_was_cut_nothing_is_known(tmp_path):
    # slot 3 was there for x, which failed before it, and nobody else
    table = curve(tmp_path, [prompt("x", 0), prompt("y", 2, eligible=2), prompt("z", 2, eligible=2)])
    assert table["survival"].tolist()[:2] == pytest.approx([2 / 3, 2 / 3])
    assert table.loc[2:, ["survival", "lo", "hi"]].isna().all(axis=None)


def test_conditional_acceptance_is_of_steps_that_reached_the_slot(tmp_path):
    prompts = [prompt("x", 3), prompt("y", 0), prompt("z", 2, eligible=2), prompt("w", 1)]
    table = curve(tmp_path, prompts)
    # slot 2 was compared for x, z and w; slot 3 for x alone, since z had no third slot
    assert table["reached"].tolist() == [4, 3, 1, 1, 0, 0, 0]
    assert table["conditional"].tolist()[:4] == pytest.approx([3 / 4, 2 / 3, 1, 0])
    assert table["conditional"].isna().tolist()[4:] == [True] * 3


def test_survival_is_the_product_of_conditionals_where_all_slots_are_at_risk(tmp_path):
    accepted = np.random.default_rng(0).integers(0, BLOCK, 60).tolist()
    table = curve(tmp_path, prompts_of(accepted))
    assert table["conditional"].cumprod().tolist() == pytest.approx(table["survival"].tolist())
    assert table["survival"].sum() == pytest.approx(np.mean(accepted))


def test_misses_for_lack_of_vocabulary_are_told_apart(tmp_path):
    prompts = [prompt("x", 1, ended="vocabulary"), prompt("y", 1), prompt("z", 0, ended="vocabulary"), prompt("w", 4)]
    table = curve(tmp_path, prompts)
    assert table["missed_vocabulary"].tolist()[:3] == pytest.approx([1 / 4, 1 / 3, 0])


def test_survival_pools_steps(tmp_path):
    table = curve(tmp_path, prompts_of([[1, 0, 0], [2]]), "generate")
    assert table.loc[0, "survival"] == pytest.approx(2 / 4)
    assert table.loc[0, "at_risk"] == 4


def test_intervals_stay_inside_and_have_a_width(tmp_path):
    table = curve(tmp_path, prompts_of([0] * 30))
    assert (table["survival"] == 0).all()
    assert (table["lo"] == 0).all()
    assert table["hi"].between(0.05, 0.2).all()  # Wilson for 0 of 30: 0.11 with z, a little more with t


def test_the_difference_is_paired(tmp_path):
    rng = np.random.default_rng(1)
    a = rng.integers(0, 6, 80)
    b = np.minimum(a + rng.integers(0, 2, 80), BLOCK - 1)
    first, second, table = both(tmp_path, prompts_of(a.tolist()), prompts_of(b.tolist()))
    d = (b >= 2).astype(float) - (a >= 2)
    reference = cluster_t(d, partition([str(i) for i in range(80)]))
    row = table[table["k"] == 2].iloc[0]
    assert (row["difference"], row["lo"], row["hi"]) == pytest.approx((reference.mean, reference.lo, reference.hi))
    alone = first.curve.iloc[1]["hi"] - first.curve.iloc[1]["lo"]
    assert row["hi"] - row["lo"] < alone
    assert second.curve["survival"].sub(first.curve["survival"]).tolist() == pytest.approx(table["difference"].tolist())


def test_one_cluster_with_a_slot_leaves_its_survival_open(tmp_path):
    first, _, difference = both(
        tmp_path,
        [prompt("x", 3), prompt("y", 0, eligible=1), prompt("z", 1, eligible=1)],
        [prompt("x", 1), prompt("y", 1, eligible=1), prompt("z", 1, eligible=1)],
    )
    assert first.curve.loc[1, ["survival", "lo", "hi"]].tolist() == pytest.approx([2 / 3, 0, 1])
    assert difference.loc[1, "difference"] == pytest.approx(0 - 2 / 3)
    assert difference.loc[0, ["lo", "hi"]].notna().all()
    assert difference.loc[1, ["lo", "hi"]].isna().all()


def test_what_a_longer_block_could_add_is_bounded_not_extrapolated(tmp_path):
    top = BLOCK - 1
    # all that reach the last slot pass it: going on at that rate would never end
    rows = prompts_of([top] * 4 + [0] * 6)
    comparison = compare_runs(write_run(tmp_path / "a", rows), write_run(tmp_path / "b", prompts_of([0] * 10)))
    assert comparison.a.positions.ceiling == pytest.approx(0.4)
    assert comparison.b.positions.ceiling is None  # B never got so far
    (line,) = ceilings(comparison)
    assert line.startswith("A: ") and "40.0%" in line and "0.40" in line


def test_the_tables_and_the_figure_tell_the_steps_at_risk(tmp_path):
    rows = [*prompts_of([3] * 5), prompt("cut", 2, eligible=2)]
    comparison = compare_runs(write_run(tmp_path / "a", rows), write_run(tmp_path / "b", rows))
    assert "\n| 3 | 5 | 5 | 100.0% | 100.0% | 0.0 | 0.0 to 0.0 | — |\n" in survival_table(comparison)
    assert "\n| 5 | 0 | 0 | — | — | — | — |\n" in conditional_table(comparison)
    plot = next(plot for plot in comparison.figures() if plot.name == "survival")
    assert [label.get_text() for label in plot.figure.axes[1].get_xticklabels()][1:3] == ["2\n6", "3\n5"]
    assert plot.data.query("arm == 'A'")["at_risk"].tolist() == [6, 6, 5, 5, 5, 5, 5]


def test_lost_prompts_are_no_part_of_the_curve(tmp_path):
    a = loaded(tmp_path / "a", [prompt("x", 7), prompt("y", 0), prompt("only", 0)])
    b = loaded(tmp_path / "b", [prompt("x", 7), prompt("y", None)])
    assert positions(a, b, pair(a, b, min_coverage=0))[0].curve["survival"].tolist() == [1.0] * 7


def test_clusters_widen_the_interval(tmp_path):
    accepted = np.repeat(np.random.default_rng(2).integers(0, 8, 20), 5).tolist()
    apart = curve(tmp_path, prompts_of(accepted))
    together = curve(tmp_path, prompts_of(accepted, clusters=np.repeat(range(20), 5)))
    width = [t.loc[0, "hi"] - t.loc[0, "lo"] for t in (apart, together)]
    assert width[1] / width[0] == pytest.approx(math.sqrt(5), rel=0.2)
