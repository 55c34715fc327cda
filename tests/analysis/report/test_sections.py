"""Tables and lines of a report."""

from __future__ import annotations

import numpy as np

from analysis.comparison.pairwise import compare_runs
from analysis.report.sections.cautions import cautions, gathered_cautions
from analysis.report.sections.datasets import ClusterCounts, cluster_counts, clustering, dataset_caveats, family_size
from analysis.report.sections.fairness import run_caveats
from tests.analysis.runs import prompts_of, write_run

BARE = {"gates": False, "history": False}


def variant(manifest):
    manifest.variant, manifest.parent, manifest.label = "gate frozen", "b", "held"


# --- cautions --------------------------------------------------------------------------------------------------


def test_what_everything_estimated_warns_of_is_told_once_and_named(tmp_path):
    rng = np.random.default_rng(0)
    clusters = [i // 3 for i in range(24)]  # eight

    def arm(name, **more):
        steps = rng.integers(0, 4, (24, 3)).tolist()
        rows = prompts_of(steps, clusters)
        for i, row in enumerate(rows):
            row["seen"] = "unseen" if i < 21 else "template seen"  # one cluster of those
        timings = [
            {"prompt_id": row["prompt_id"], "mode": "draft", "repeat": 0, "order": 0, "output_tokens": 20}
            | {"decode_s": float(s), "draft_s": 0.0, "verify_s": float(s), "other_s": 0.0}
            for row, s in zip(rows, rng.gamma(9, 1, 24), strict=True)
        ]
        return write_run(tmp_path / name, rows, protocol="generate", timings=timings, **more, **BARE)

    comparison = compare_runs(arm("a"), arm("b"), controls=[arm("c", fusion="gated", change=variant)])
    gathered = gathered_cautions(comparison)
    lines = cautions(comparison)
    assert len(lines) == len(set(lines)) == len(gathered)
    groups = [names for x, names in gathered.items() if x.code == "few-units"]
    assert ["held (gate frozen) against A"] in groups and ["unseen"] in groups
    few = max(groups, key=len)
    assert few == [
        *("Tau, pooled", "Tau, mean over responses", "sums"),
        *("B against held (gate frozen)", "Speed", "Speed on sums"),
    ]
    assert [names for x, names in gathered.items() if x.code == "one-cluster"] == [["template seen"]]
    assert any(line.startswith("; ".join(few) + ": ") for line in lines)


def test_a_caveat_of_several_data_sets_or_arms_is_told_once(tmp_path):
    texts = {"aiw": "aiw: drawn", "sum": "sum: drawn", "gsm/seen": "gsm: of one: kind", "gsm/new": "gsm: of one: kind"}
    texts |= {"own": "note: it is what it is"}  # no name of a family before the colon

    def change(manifest):
        manifest.caveats = ["x: one prompt was left out"]
        (evaluation,) = manifest.evaluations.values()
        for name, text in texts.items():
            evaluation.datasets[name]["caveat"] = text

    rows = [row for name in texts for row in prompts_of([1, 2], dataset=name)]
    for i, row in enumerate(rows):
        row["prompt_id"] = f"{i}"
    a, b = (write_run(tmp_path / name, rows, change=change, **BARE) for name in "ab")
    comparison = compare_runs(a, b)
    assert dataset_caveats(comparison) == [
        "aiw, sum: drawn",
        "gsm/new, gsm/seen: of one: kind",
        "own: note: it is what it is",
    ]
    assert run_caveats(comparison) == ["A and B: x: one prompt was left out"]
    report = comparison.to_markdown()
    assert "\n\n* aiw, sum: drawn\n* gsm/new, gsm/seen: of one: kind\n* own: note" in report
    assert "\n\nA and B: x: one prompt was left out\n" in report


# --- clusters --------------------------------------------------------------------------------------------------


def test_clusters_are_counted_by_how_many_prompts_they_hold(tmp_path):
    templates = prompts_of([1, 2, 3, 1, 2, 3], [0, 0, 0, 1, 1, 2], dataset="templates")
    drawn = [{**row, "prompt_id": f"x{i}", "cluster_id": f"x{i}"} for i, row in enumerate(prompts_of([1] * 4))]
    a, b = (write_run(tmp_path / name, [*templates, *drawn], **BARE) for name in "ab")
    both = compare_runs(a, b)
    assert cluster_counts(both) == {
        None: ClusterCounts(several=2, largest=3, single=5),
        "sums": ClusterCounts(several=0, largest=1, single=4),
        "templates": ClusterCounts(several=2, largest=3, single=1),
    }
    assert all(str(counts) in clustering(both) for counts in cluster_counts(both).values())
    alone = cluster_counts(compare_runs(a, b, datasets=["templates"]))
    assert alone[None] == alone["templates"] == ClusterCounts(several=2, largest=3, single=1)
    apart = compare_runs(a, b, datasets=["sums"])
    assert (cluster_counts(apart), clustering(apart)) == ({}, None)


def test_the_size_of_the_family_is_told(tmp_path):
    rows = [{**row, "prompt_id": f"{i}", "dataset": "xyz"[i % 3]} for i, row in enumerate(prompts_of([1] * 30))]
    worse = [{**row, "accepted": [None] if row["dataset"] == "z" else [i % 2]} for i, row in enumerate(rows)]
    a, b = write_run(tmp_path / "a", rows, **BARE), write_run(tmp_path / "b", worse, **BARE)
    assert family_size(compare_runs(a, b, min_coverage=0)).startswith("2 ")  # the third data set has no test
