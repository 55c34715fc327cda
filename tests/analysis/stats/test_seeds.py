"""Several seeds per arm: seeds and prompts are crossed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from analysis.comparison.seed_study import compare_seeds
from analysis.errors import DataError, Exit, UsageError, run_command
from analysis.stats.cluster import cluster_t, partition
from analysis.stats.seeds import crossed
from analysis.wording import ACCEPTED_LENGTH, Verdict
from tests.analysis.runs import prompts_of, write_run

BARE = {"gates": False, "history": False}


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


def test_the_p_is_a_paired_t_over_seeds():
    d = drawn(5, 60, of_seeds=0.3, of_prompts=0.5, effect=0.4)
    a = np.random.default_rng(1).normal(3, 1, d.shape)
    assert of(a, a + d).estimate.p == pytest.approx(stats.ttest_1samp(d.mean(1), 0).pvalue)


def test_unpaired_arms_get_welch():
    rng = np.random.default_rng(2)
    a, b = rng.normal(3, 1, (5, 30)) + rng.normal(0, 0.4, (5, 1)), rng.normal(3.5, 1, (7, 30))
    found = of(a, b, paired=False)
    assert found.estimate.p == pytest.approx(stats.ttest_ind(a.mean(1), b.mean(1), equal_var=False).pvalue)
    assert found.deltas == ()
    assert found.parts.seeds == pytest.approx(a.mean(1).var(ddof=1) / 5 + b.mean(1).var(ddof=1) / 7)


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


# --- runs ------------------------------------------------------------------------------------------------------


def seeded(seed):
    return lambda manifest: manifest.training.seeds.update(init=seed, data=seed, anchors=seed)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Five seeds of two arms over 60 prompts in 30 clusters and two data sets; B is a token better on most."""
    root, rng = tmp_path_factory.mktemp("seeds"), np.random.default_rng(7)
    base = rng.integers(0, 4, 60)
    runs = {}
    for seed in range(5):
        noise = rng.integers(0, 2, 60)
        better = noise + (rng.random(60) < 0.9)
        for arm, extra, fusion in (("a", noise, "concat"), ("b", better, "gated")):
            rows = prompts_of((base + extra).tolist(), clusters=np.arange(60) % 30)
            for i, row in enumerate(rows):
                row["dataset"] = "sums" if i < 40 else "words"
            runs[arm, seed] = write_run(root / f"{arm}{seed}", rows, fusion=fusion, change=seeded(seed), **BARE)
    return runs


def arms(trainings, order_b=range(5), seeds=range(5)):
    return [trainings["a", s] for s in seeds], [trainings["b", s] for s in order_b]


def test_runs_are_paired_by_seed_whatever_their_order(trainings):
    straight, mixed = compare_seeds(*arms(trainings)), compare_seeds(*arms(trainings, [3, 0, 4, 1, 2]))
    assert straight == mixed
    assert straight.seeds_a == straight.seeds_b == ("0", "1", "2", "3", "4")
    assert straight.overall.estimate.verdict is Verdict.B_BETTER
    assert straight.overall.deltas == pytest.approx([e.estimate for e in straight.per_seed])
    assert np.mean(straight.overall.deltas) == pytest.approx(straight.overall.estimate.estimate)
    assert {c.estimate.family_size for c in straight.by_dataset.values()} == {2}
    assert len(straight.to_frame()) == 1 + 2 + 5


def test_other_seeds_are_not_paired(trainings):
    found = compare_seeds([trainings["a", s] for s in (0, 1, 2)], [trainings["b", s] for s in (2, 3, 4)])
    assert (found.overall.paired, found.per_seed) == (False, ())
    assert [c.code for c in found.cautions] == ["unpaired-seeds"]
    assert found.overall.estimate.verdict is Verdict.INCONCLUSIVE


def test_copies_of_a_seed_are_refused(trainings, tmp_path):
    copy = write_run(tmp_path / "copy", prompts_of([1, 2]), change=seeded(0), **BARE)
    with pytest.raises(DataError, match=r"runs of one arm with the same seeds \(0\)"):
        compare_seeds([trainings["a", 0], copy], [trainings["b", 0], trainings["b", 1]])
    with pytest.raises(UsageError, match="at least two runs per arm"):
        compare_seeds([trainings["a", 0]], [trainings["b", 0]])
    with pytest.raises(UsageError, match="at least two runs per arm"):
        compare_seeds("a0", "b0")


def test_prompts_that_one_run_lacks_count_nowhere(trainings, tmp_path):
    rows = prompts_of([1] * 59, clusters=np.arange(59) % 30)
    for i, row in enumerate(rows):
        row["dataset"] = "sums" if i < 40 else "words"
    short = write_run(tmp_path / "short", rows, fusion="gated", change=seeded(1), **BARE)
    found = compare_seeds([trainings["a", 0], trainings["a", 1]], [trainings["b", 0], short])
    assert (found.prompts, found.prompts_lost) == (59, 1)
    assert [e.n_pairs for e in found.per_seed] == [59, 59]


def test_through_the_command(trainings, tmp_path, monkeypatch, capsys):
    from analysis.commands.compare import main

    monkeypatch.chdir(tmp_path)
    a, b = arms(trainings)
    argv = [*map(str, a), "--vs", *map(str, b)]
    assert run_command(main, argv) == Exit.OK
    out = capsys.readouterr().out
    assert out.startswith("DynaDFlash (B) is better than DFlash (A)")
    folder = tmp_path / "reports" / "a0-x5-vs-b0-x5"
    report = (folder / "report.md").read_text(encoding="utf-8")
    assert "| 3 | a3 | b3 |" in report
    assert "five" not in report and "no verdict about training" not in report
    assert {p.name for p in (folder / "figures").iterdir()} == {"seeds.png", "seeds.svg", "seeds.csv"}
    first = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    run_command(main, argv)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == first
    capsys.readouterr()
    assert run_command(main, [*map(str, a[:2]), "--vs", *map(str, b[:2])]) == Exit.OK
    assert "With under 5 seeds per arm there is no verdict about training" in capsys.readouterr().out
    assert run_command(main, [*argv, "--margin", "0.1"]) == Exit.USAGE
    assert run_command(main, [*argv, "--fail-if", "delta<0"]) == Exit.USAGE
