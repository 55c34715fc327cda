"""Tables and lines of a report."""

from __future__ import annotations

import numpy as np

from analysis.comparison.pairwise import compare_runs
from analysis.report.sections.overview import cautions, clustering, dataset_caveats, run_caveats
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
    told = cautions(comparison)
    assert len(told) == len(set(told))
    assert any(text.startswith("held (gate frozen) against A: 7 of 8 clusters differ") for text in told)
    (few,) = [text for text in told if "8 of 8 clusters differ" in text]
    about, _ = few.split(": ", 1)
    assert about.split("; ") == [
        *("Tau, pooled", "Tau, mean over responses", "sums"),
        *("B against held (gate frozen)", "Speed", "Speed on sums"),
    ]
    assert any(text.startswith("unseen: 7 of 7 clusters differ") for text in told)
    assert any(text.startswith("template seen: All prompts belong to one cluster") for text in told)


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
    told = clustering(compare_runs(a, b))
    assert told.startswith(
        "The 10 prompts form 7 clusters, the units of interval and p: 2 of several prompts (at most 3), 5 of a single "
        "one. Clusters by data set: sums, 4 of a single prompt; templates, 2 of several prompts (at most 3), 1 of a "
        "single one. Where "
    )
    alone = clustering(compare_runs(a, b, datasets=["templates"]))
    assert (
        "form 3 clusters, the units of interval and p: 2 of several prompts (at most 3), 1 of a single one. Where"
        in alone
    )
    assert clustering(compare_runs(a, b, datasets=["sums"])) is None


def test_the_size_of_the_family_is_told(tmp_path):
    rows = [{**row, "prompt_id": f"{i}", "dataset": "xyz"[i % 3]} for i, row in enumerate(prompts_of([1] * 30))]
    worse = [{**row, "accepted": [None] if row["dataset"] == "z" else [i % 2]} for i, row in enumerate(rows)]
    a, b = write_run(tmp_path / "a", rows, **BARE), write_run(tmp_path / "b", worse, **BARE)
    report = compare_runs(a, b, min_coverage=0).to_markdown()  # of the third data set there is no test
    assert "p adjusted by Holm, over a family of 2 data sets; intervals are not adjusted" in report
