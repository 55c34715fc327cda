"""Prompts without a pair: whether they are like the others, and what they could have changed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from analysis.commands.compare import main
from analysis.comparison.pairwise import compare_runs
from analysis.comparison.rules import judge, parse_rule
from analysis.errors import DataError, Exit, run_command
from analysis.measures.missing import bounds, missing, with_missing
from analysis.runlog.load import load
from analysis.runlog.pairing import pair
from analysis.runlog.reading import Run
from analysis.wording import ACCEPTED_LENGTH, TAU_MEAN, TAU_POOLED
from tests.analysis.runs import prompt, prompts_of, write_run

BARE = {"gates": False, "history": False}


def two(tmp_path, a, b, protocol="prefix"):
    """Runs of these prompts."""
    return [write_run(tmp_path / name, rows, protocol=protocol, **BARE) for name, rows in (("a", a), ("b", b))]


def paired(runs, protocol="prefix"):
    return pair(*(load(Run.open(run), protocol) for run in runs), min_coverage=0)


def lacking(accepted_a, accepted_b, kept, clusters=None, **more):
    """Prompts of A, and those of B, which has the first ``kept`` of them."""
    return prompts_of(accepted_a, clusters, **more), prompts_of(accepted_b, clusters, **more)[:kept]


def test_the_test_is_welchs_where_prompts_are_independent(tmp_path):
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.integers(2, 8, 40), rng.integers(0, 5, 15)])
    (found,) = missing(paired(two(tmp_path, *lacking(values.tolist(), [1] * 55, 40))))
    test = stats.ttest_ind(1 + values[40:], 1 + values[:40], equal_var=False)
    assert (found.side, found.lost, found.kept) == ("A", 15, 40)
    assert found.difference == pytest.approx(values[40:].mean() - values[:40].mean())
    assert found.p == pytest.approx(test.pvalue)
    assert (found.lo, found.hi) == pytest.approx(tuple(test.confidence_interval()))


def test_whole_clusters_are_the_units(tmp_path):
    """Copies of a prompt in its cluster add nothing: the p is that of one each."""
    rng = np.random.default_rng(1)
    once = rng.integers(0, 8, 24).tolist()
    alone = missing(paired(two(tmp_path / "1", *lacking(once, [1] * 24, 16))))[0]
    thrice = [value for value in once for _ in range(3)]
    clusters = [i for i in range(24) for _ in range(3)]
    (found,) = missing(paired(two(tmp_path / "3", *lacking(thrice, [1] * 72, 48, clusters))))
    assert (found.p, found.lo) == (pytest.approx(alone.p), pytest.approx(alone.lo))


def test_too_few_to_test(tmp_path):
    (found,) = missing(paired(two(tmp_path, *lacking([1, 2, 3, 4], [1] * 4, 3))))
    assert (found.mean_lost, found.mean_kept, found.p) == (5.0, 3.0, None)


def test_bounds_by_hand(tmp_path):
    """A has 1 + (1, 3, 6), B 1 + (2, 2) and nothing for the third: with 1 to 8 tokens there, the mean difference is
    (1 - 1 + [1 - 7, 8 - 7]) / 3."""
    pairs = paired(two(tmp_path, *lacking([1, 3, 6], [2, 2, 0], 2)))
    found = bounds(pairs, ACCEPTED_LENGTH, 8)
    assert (found.lo, found.hi, found.filled, found.unknown) == (pytest.approx(-2.0), pytest.approx(1 / 3), 1, 0)


def test_bounds_of_tau_by_hand(tmp_path):
    """A: 4 tokens in 2 steps, 6 in 2, 8 in 2; B lacks the last, whose 8 tokens take 8 steps or, by 4 a step, 2."""
    a = [prompt("x", [1, 1]), prompt("y", [2, 2]), prompt("z", [3, 3])]
    b = [prompt("x", [3]), prompt("y", [1, 1, 1])]
    pairs = paired(two(tmp_path, a, b, "generate"), "generate")
    pooled = bounds(pairs, TAU_POOLED, 4)
    assert (pooled.lo, pooled.hi) == pytest.approx((18 / 12 - 18 / 6, 18 / 6 - 18 / 6))
    mean = bounds(pairs, TAU_MEAN, 4)
    assert (mean.lo, mean.hi) == pytest.approx(((4 + 2 + 1) / 3 - 3, (4 + 2 + 4) / 3 - 3))


def test_the_bounds_hold_whatever_the_lost_values_are(tmp_path):
    rng = np.random.default_rng(2)
    for trial in range(20):
        a, b = rng.integers(0, 8, (2, 12)).tolist()
        whole = paired(two(tmp_path / f"w{trial}", prompts_of(a), prompts_of(b)))
        truth = float((whole.frame["tokens_b"] - whole.frame["tokens_a"]).mean())
        part = paired(two(tmp_path / f"p{trial}", *lacking(a, b, 8)))
        found = bounds(part, ACCEPTED_LENGTH, 8)
        assert found.lo - 1e-12 <= truth <= found.hi + 1e-12


def test_coverage_is_of_the_larger_run(tmp_path, capsys):
    a, b = lacking([1, 2] * 20, [2, 3] * 20, 20)
    runs = two(tmp_path, a, b)
    with pytest.raises(DataError, match=r"50\.0% of the larger run"):
        compare_runs(*runs)
    arguments = [*map(str, runs), "--out", str(tmp_path / "out")]
    assert run_command(main, arguments) == Exit.DATA
    assert run_command(main, [*arguments, "--min-coverage", "0.5"]) == Exit.OK
    assert "--min-coverage" in capsys.readouterr().err


def test_a_rule_is_undecided_where_lost_prompts_could_turn_it(tmp_path):
    """B is better on each of 38 pairs; A's other 2 prompts could take no more than 2 x 7 / 40 of it."""
    rng = np.random.default_rng(3)
    a = rng.integers(0, 4, 40)
    b = a + rng.integers(1, 4, 40)
    found = compare_runs(*two(tmp_path, *lacking(a.tolist(), b.tolist(), 38)))
    assert found.overall.lo > 1.5 and found.full_set.filled == 2
    assert judge(parse_rule("delta<1.0"), found).code is Exit.OK
    near = judge(parse_rule(f"delta<{found.overall.lo - 0.01:.4f}"), found)
    assert near.code is Exit.INCONCLUSIVE and near.widened and "without a pair" in near.sentence


def test_a_balanced_rule_is_widened_by_each_data_set(tmp_path):
    """x lost 1 of 20, whose A is 1 + 0: with [1, 8] there the mean of x is ends[0] to ends[1]; y lost nothing."""
    a, b = prompts_of([0] * 20, dataset="x"), prompts_of([1] * 20, dataset="x")
    more = [[prompt(f"y{i}", v + i % 2, dataset="y") for i in range(20)] for v in (1, 4)]
    found = compare_runs(*two(tmp_path, a + more[0], b[:19] + more[1]))
    (e,) = (e for e in found.others if e.estimand.key == "accepted_length_balanced")
    ends = [((19 * 1 + low) / 20 + 3) / 2 for low in (0, 7)]
    assert with_missing(found.pairs, e, 8) == pytest.approx((e.lo + ends[0] - 2, e.hi + ends[1] - 2))


def test_lost_prompts_that_differ_draw_a_caution(tmp_path):
    hard = [0] * 20
    easy = [3, 4, 5, 6] * 20
    found = compare_runs(*two(tmp_path, *lacking(easy + hard, [4] * 100, 80)), min_coverage=0.8)
    codes = [c.code for c in found.cautions]
    assert codes.count("missing-differs") == 1 and codes.count("missing-bounds") == 1
    (m,) = found.missing
    assert (m.mean_lost, m.mean_kept, m.lo) == (1.0, 5.5, m.lo) and m.hi < 0
    same = compare_runs(*two(tmp_path / "same", *lacking(easy + easy[:20], [4] * 100, 80)), min_coverage=0.8)
    assert "missing-differs" not in [c.code for c in same.cautions]


def test_no_value_in_either_arm_is_counted_apart(tmp_path):
    a, b = prompts_of([1, 2, 3, None]), prompts_of([1, 2, 3, None])
    pairs = paired(two(tmp_path, a, b))
    assert missing(pairs) == ()
    found = bounds(pairs, ACCEPTED_LENGTH, 8)
    assert (found.filled, found.unknown, found.lo) == (0, 1, 0.0)
