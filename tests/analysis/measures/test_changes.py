"""How many prompts change: by hand, and against the estimate."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.measures.changes import changes
from tests.analysis.runs import prompts_of, write_run


def frame(rows):
    columns = ["tokens_a", "steps_a", "tokens_b", "steps_b", "cluster"]
    return pd.DataFrame(rows, columns=columns)


def test_by_hand():
    # 3/2 against 6/4 is equal, in integers; 1/3 more and 1/2 less per step
    found = changes(frame([(3, 2, 6, 4, "x"), (6, 3, 7, 3, "y"), (4, 2, 3, 2, "z"), (6, 3, 9, 3, "w")]))
    assert [(c.direction, c.n, c.share) for c in found] == [
        ("B higher", 2, 0.5),
        ("A higher", 1, 0.25),
        ("equal", 1, 0.25),
    ]
    assert (found[0].mean, found[0].median) == pytest.approx((2 / 3, 2 / 3))
    assert (found[1].mean, found[2].mean) == (-0.5, None)
    assert found[0].lo == 0 and found[0].hi == 1
    assert changes(frame([])) == ()


def test_together_they_are_the_estimate(tmp_path):
    a, b = (
        write_run(tmp_path / "a", prompts_of([1, 2, 3, 4, 5, 6, 7])),
        write_run(tmp_path / "b", prompts_of([1, 3, 3, 7, 4, 6, 7])),
    )
    comparison = compare_runs(a, b)
    assert sum(c.n for c in comparison.changes) == comparison.overall.n_pairs
    total = sum(c.n * c.mean for c in comparison.changes if c.mean is not None)
    assert total / comparison.overall.n_pairs == pytest.approx(comparison.overall.estimate)
