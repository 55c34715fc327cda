"""Acceptance by draft position, against counts done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.cluster import cluster_t, partition
from analysis.load import load
from analysis.pair import pair
from analysis.positions import positions
from analysis.ratio import linearise
from analysis.runlog import Run
from tests.analysis.runs import BLOCK, prompt, prompts_of, write_run


def loaded(folder, prompts, protocol="prefix"):
    run = write_run(folder, prompts, protocol=protocol, gates=False, history=False)
    return load(Run.open(run), protocol)


def both(tmp_path, a, b, protocol="prefix"):
    first, second = loaded(tmp_path / "a", a, protocol), loaded(tmp_path / "b", b, protocol)
    return positions(first, second, pair(first, second))


def curve(tmp_path, prompts, protocol="prefix"):
    return both(tmp_path, prompts, prompts, protocol)[0].curve


def test_survival_counts_slots_at_risk_only(tmp_path):
    prompts = [prompt("x", 3, eligible=7), prompt("y", 0, eligible=1), prompt("z", 2, eligible=2)]
    table = curve(tmp_path, prompts)
    assert table["at_risk"].tolist() == [3, 2, 1, 1, 1, 1, 1]
    assert table["survival"].tolist() == pytest.approx([2 / 3, 1.0, 1.0, 0, 0, 0, 0])


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


def test_a_slot_at_risk_in_one_arm_only_counts_there(tmp_path):
    a = [prompt("x", 2), prompt("y", 0, eligible=1), prompt("z", 0)]
    b = [prompt("x", 0, eligible=1), prompt("y", 3), prompt("z", 5)]
    first, second, table = both(tmp_path, a, b)
    assert (first.curve.loc[1, "at_risk"], second.curve.loc[1, "at_risk"]) == (2, 2)
    assert table.loc[1, "difference"] == pytest.approx(1 - 1 / 2)
    values = linearise([0, 1, 1], [0, 1, 1]) - linearise([1, 0, 0], [1, 0, 1])
    reference = cluster_t(values, partition(["x", "y", "z"]))
    assert (table.loc[1, "lo"], table.loc[1, "hi"]) == pytest.approx((reference.lo, reference.hi))


def test_the_ceiling_and_what_it_hides(tmp_path):
    top = BLOCK - 1
    # of 10 steps 4 fill the block, 1 fails at the last slot: conditional 4/5 there
    prompts = prompts_of([top] * 4 + [top - 1] + [0] * 5)
    ceiling = both(tmp_path, prompts, prompts)[0].ceiling
    assert (ceiling.k, ceiling.mass) == (top, pytest.approx(0.4))
    assert ceiling.hidden == pytest.approx(0.4 * 0.8 / 0.2)
    assert ceiling.lo < 0.4 < ceiling.hi


@pytest.mark.parametrize(("accepted", "hidden"), [([BLOCK - 1] * 6, None), ([0] * 6, 0.0)])
def test_a_ceiling_of_all_or_nothing(tmp_path, accepted, hidden):
    assert both(tmp_path, prompts_of(accepted), prompts_of(accepted))[0].ceiling.hidden == hidden


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
