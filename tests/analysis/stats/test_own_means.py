"""Each arm's own mean and interval, against hand arithmetic and an independent implementation on the Parquet files;
the kinds of prompts that training had, or not."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.comparison.pairwise import compare_runs
from analysis.report.markdown import escape
from analysis.report.render import report
from analysis.report.result import to_json
from analysis.report.sections.datasets import seen_table
from analysis.report.sections.overview import own_means
from analysis.stats.datasets import balanced_mean
from analysis.wording import TAU_POOLED, Verdict, percent, with_interval
from tests.analysis.runs import prompts_of, study, two_runs, write_run
from tests.analysis.stats.cr2 import dense, likeliest_icc

BARE = {"gates": False, "history": False}


def test_by_hand(tmp_path):
    # lengths 1, 2 | 3, 4 of A in two clusters: residuals sum to -2 and 2, so se = sqrt(2/1 (4 + 4)) / 4 = 1, and t of
    # one degree of freedom is 12.7062; B has 2 everywhere: no spread, no interval
    e = compare_runs(*two_runs(tmp_path, [0, 1, 2, 3], [1, 1, 1, 1], clusters=[0, 0, 1, 1], **BARE)).overall
    assert (e.mean_a, e.lo_a, e.hi_a) == pytest.approx((2.5, 2.5 - 12.7062, 2.5 + 12.7062), abs=1e-4)
    assert (e.mean_b, e.lo_b, e.hi_b) == (2.0, None, None)


def test_one_cluster_has_a_mean_alone(tmp_path):
    e = compare_runs(*two_runs(tmp_path, [0, 1, 2], [1, 1, 3], clusters=[0, 0, 0], **BARE)).overall
    assert (e.mean_a, e.lo_a, e.hi_a) == (2.0, None, None)


def from_files(run, keep):
    """The ratio of sums and its interval, from the files alone: delta-method values, and the dense CR2."""
    key = ["prompt_id", "turn", "sample"]
    prompts, steps = (
        pd.concat(map(pd.read_parquet, (run / f"{t}.parquet").iterdir())) for t in ("prompts", "acceptance")
    )
    emitted = steps.assign(emitted=steps["accepted"] + 1).groupby(key)["emitted"].agg(["sum", "count"]).reset_index()
    rows = keep(prompts.merge(emitted, on=key))
    ratio = rows["sum"].sum() / rows["count"].sum()
    influence = ((rows["sum"] - ratio * rows["count"]) / rows["count"].mean()).to_numpy()
    weights = (rows["count"] / rows["count"].mean()).to_numpy(float)
    groups = pd.factorize(rows["cluster_id"])[0]
    variance, df = dense(rows["sum"] / rows["count"].mean(), groups, likeliest_icc(influence, groups, weights), weights)
    half = stats.t.ppf(0.975, df) * np.sqrt(variance)
    return ratio, ratio - half, ratio + half


@pytest.mark.parametrize("protocol", ["prefix", "generate"])
def test_equals_a_dense_implementation_on_the_files(tmp_path, protocol):
    runs = study(tmp_path, protocol=protocol)
    c = compare_runs(*runs)
    cases = [(c.overall, lambda r: r)]
    cases += [(e, lambda r, n=name: r[r["dataset"] == n]) for name, e in c.by_dataset.items()]
    cases += [(e, lambda r, n=name: r[r["seen"] == n]) for name, e in c.by_seen.items()]
    assert len(cases) == 1 + 3 + 2
    for e, keep in cases:
        a, b = (from_files(run, keep) for run in runs)
        assert (e.mean_a, e.lo_a, e.hi_a) == pytest.approx(a, rel=1e-9)
        assert (e.mean_b, e.lo_b, e.hi_b) == pytest.approx(b, rel=1e-9)


def test_report_and_json_show_them(tmp_path):
    c = compare_runs(*study(tmp_path))
    text, result = report(c, ()), json.loads(to_json(c))
    for name, e in c.by_dataset.items():
        cells = f"| {e.mean_a:.3f} ({e.lo_a:.2f} to {e.hi_a:.2f}) | {e.mean_b:.3f} ({e.lo_b:.2f} to {e.hi_b:.2f}) |"
        assert f"| {escape(name)} {cells}" in text
        assert result["by_dataset"][name]["hi_b"] == pytest.approx(e.hi_b)
    assert f"| unseen | {with_interval(c.by_seen['unseen'].mean_a, None, None)} (" in text
    assert result["by_seen"]["template seen"]["n_pairs"] == 120


def test_kinds_of_prompts_are_a_family_of_their_own(tmp_path):
    c = compare_runs(*study(tmp_path))
    assert list(c.by_seen) == ["template seen", "unseen"]
    assert [(e.subset, e.n_pairs, e.family_size) for e in c.by_seen.values()] == [
        ("template seen", 120, 2),
        ("unseen", 150, 2),
    ]
    p = sorted(e.p for e in c.by_seen.values())
    assert sorted(e.p_adjusted for e in c.by_seen.values()) == pytest.approx(
        sorted([min(1, 2 * p[0]), max(2 * p[0], p[1])])
    )


def test_one_kind_or_none_is_no_table(tmp_path):
    for seen in (None, "unseen"):
        rows = prompts_of([1, 2, 3], seen=seen)
        c = compare_runs(write_run(tmp_path / "a", rows, **BARE), write_run(tmp_path / "b", rows, **BARE))
        assert list(c.by_seen) == ([] if seen is None else ["unseen"])
        assert seen_table(c) is None


def test_equal_tokens_in_other_steps_are_no_tie():
    # lossless arms emit the same tokens; only their steps differ
    rows = [
        {"dataset": d, "cluster_id": f"{d}{i}", "tokens_a": 12, "tokens_b": 12, "steps_a": 6, "steps_b": 3 + i}
        for d in "xy"
        for i in range(4)
    ]
    found = balanced_mean(pd.DataFrame(rows), TAU_POOLED)
    assert found is not None and found.n_zero == 2  # i = 3 in both
    assert found.verdict is not Verdict.IDENTICAL


def test_cells():
    assert with_interval(3.785, 3.1299, 4.4401) == "3.785 (3.13 to 4.44)"
    assert with_interval(1.0, None, None) == "1.000"
    assert with_interval(None, None, None) == "—"
    assert percent(float("nan")) == "—"


def test_of_few_clusters_the_report_shows_means_alone(tmp_path):
    # t of one degree of freedom would let a length of at least 1 be -10.2
    c = compare_runs(*two_runs(tmp_path, [0, 1, 2, 3], [1, 1, 1, 3], clusters=[0, 0, 1, 1], **BARE))
    assert c.overall.lo_a == pytest.approx(2.5 - 12.7062, abs=1e-4)
    assert own_means(c.overall) == ("2.500", "2.500")
