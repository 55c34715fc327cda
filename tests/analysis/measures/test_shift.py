"""The shift function in a report: it follows the log."""

from __future__ import annotations

import json

import numpy as np
import pytest

from analysis.comparison.pairwise import compare_runs
from analysis.report.render import report
from analysis.report.result import to_json
from analysis.report.sections.shift import decile_table, sentence
from tests.analysis.runs import prompts_of, write_run

BARE = {"gates": False, "history": False}


def compared(folder, a, b):
    return compare_runs(write_run(folder / "a", prompts_of(a), **BARE), write_run(folder / "b", prompts_of(b), **BARE))


def test_a_gain_of_the_easy_prompts_is_shown_there(tmp_path):
    a = np.random.default_rng(0).integers(0, 5, 200)
    b = np.where(a >= 3, np.minimum(a + 2, 7), a)
    c = compared(tmp_path, a.tolist(), b.tolist())
    low, high, last = c.shift.deciles[0], c.shift.deciles[6], c.shift.deciles[-1]
    assert low.difference == pytest.approx(0, abs=1e-6) and not low.differs
    assert high.difference > 1.5 and high.differs
    assert last.difference == pytest.approx(2) and last.lo is None  # it is 2 in every draw, which is not certainty
    assert sentence(c).startswith("B is higher at ") and "70%" in sentence(c)
    assert "the same value" in sentence(c)
    text = report(c, c.figures())
    assert decile_table(c) in text and "figures/shift-function.png" in text
    stored = json.loads(to_json(c))["shift"]
    assert [d["difference"] for d in stored["deciles"]] == pytest.approx([d.difference for d in c.shift.deciles])
    turned = compared(tmp_path / "turned", b.tolist(), a.tolist())
    assert sentence(turned).startswith("B is lower at ")


def test_arms_that_are_equal_have_none(tmp_path):
    c = compared(tmp_path, [1, 2, 3, 4], [1, 2, 3, 4])
    assert c.shift is None and "shift-function" not in {plot.name for plot in c.figures()}
