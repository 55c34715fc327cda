"""Tables and lines of a report."""

from __future__ import annotations

import numpy as np

from analysis.comparison import compare_runs
from analysis.sections import cautions
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
    (few,) = [text for text in told if "8 clusters only" in text]
    about, _ = few.split(": ", 1)
    assert about.split("; ") == [
        *("Tau, pooled", "tau, mean over prompts", "sums"),
        *("B against held (gate frozen)", "held (gate frozen) against A", "speed", "speed on sums"),
    ]
    assert any(text.startswith("Unseen: 7 clusters only") for text in told)
    assert any(text.startswith("Template seen: All prompts belong to one cluster") for text in told)
