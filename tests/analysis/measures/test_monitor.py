"""The sequence of a comparison: clusters in the order of the log, bounded by the block size."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.commands import compare
from analysis.comparison.pairwise import compare_runs
from analysis.errors import UsageError, run_command
from analysis.stats.sequential import sequential
from tests.analysis.runs import BLOCK, prompt, prompts_of, write_run


def test_each_cluster_counts_once_in_the_order_of_the_log(tmp_path):
    ids = ["b", "a", "b", "c", "a", "b"]
    of_a, of_b = [1, 2, 3, 4, 5, 6], [2, 2, 6, 4, 3, 6]
    runs = [
        write_run(
            tmp_path / side,
            [prompt(f"p{5 - i}", n - 1, cluster_id=c) for i, (n, c) in enumerate(zip(of_side, ids, strict=True))],
        )
        for side, of_side in (("a", of_a), ("b", of_b))
    ]
    found = compare_runs(*runs, sequential=True).sequential
    expected = sequential(np.array([(1 + 3 + 0) / 3, (0 - 2) / 2, 0.0]), BLOCK - 1)
    assert found == expected
    assert compare_runs(*runs).sequential is None


def test_through_the_command(tmp_path, capsys):
    a = write_run(tmp_path / "a", prompts_of([1] * 60))
    b = write_run(tmp_path / "b", prompts_of([5] * 60))
    asked = [str(a), str(b), "--sequential", "--out", str(tmp_path / "out")]
    assert run_command(compare.main, asked) == 0
    assert "0 was excluded after" in capsys.readouterr().out
    assert "Looked at after every prompt" in (tmp_path / "out/report.md").read_text()
    assert run_command(compare.main, [*asked, "--vs", str(b)]) == 64


def test_without_a_block_size_nothing_bounds_a_difference(tmp_path):
    runs = [write_run(tmp_path / side, prompts_of([1, 2, 3])) for side in "ab"]
    for run in runs:
        text = (run / "run.json").read_text()
        (run / "run.json").write_text(text.replace(f'"block_size": {BLOCK}', '"block_size": null'))
    with pytest.raises(UsageError, match="--sequential requires the block size"):
        compare_runs(*runs, sequential=True)
