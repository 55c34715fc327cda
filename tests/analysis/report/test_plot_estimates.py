"""The figure of paired differences where prompts are too many for a dot each."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from analysis.comparison.pairwise import compare_runs
from analysis.report.plots import estimates as plot_estimates
from analysis.report.plots.estimates import _bar_of, _bar_step, _draw_bars, paired_differences
from tests.analysis.runs import study


@pytest.mark.parametrize("protocol", ["prefix", "generate"])
def test_many_prompts_are_counted_by_data_set_and_said_so(tmp_path, monkeypatch, protocol):
    comparison = compare_runs(*study(tmp_path, protocol=protocol))
    frame = comparison.pairs.frame
    dots = paired_differences(comparison)
    assert len(dots.data) == len(frame)
    monkeypatch.setattr(plot_estimates, "MOST_DOTS", 50)
    plot = paired_differences(comparison)
    assert "50 prompts" in plot.caption and dots.caption != plot.caption
    assert len(plot.data) < len(frame)
    assert plot.data.groupby("dataset")["prompts"].sum().to_dict() == frame["dataset"].value_counts().to_dict()
    d = dots.data
    for row in plot.data.itertuples():
        inside = (d["dataset"] == row.dataset) & (d["difference"] > row._2 + 1e-9) & (d["difference"] < row.to - 1e-9)
        at_the_ends = (d["dataset"] == row.dataset) & np.isclose(np.abs(d["difference"] - (row._2 + row.to) / 2),
                                                                 (row.to - row._2) / 2)  # fmt: skip
        assert inside.sum() <= row.prompts <= inside.sum() + at_the_ends.sum()


numbers = st.lists(st.integers(-400, 400), min_size=2, max_size=200)


@given(numbers, st.sampled_from([1, 7, 16]))
def test_bars_hold_every_prompt_once_and_treat_both_signs_alike(values, steps):
    d = np.array(values) / steps
    step = _bar_step(d)
    assert np.ptp(d) / step <= 81
    assert step >= 1 or (d != d.round()).any()
    bars = _bar_of(d, step)
    np.testing.assert_array_equal(_bar_of(-d, step), -bars)
    assert (np.abs(d - bars * step) <= step / 2 * (1 + 1e-9)).all()


def test_the_width_of_bars_is_their_number_of_prompts_by_sign():
    d = np.array([0.0] * 6 + [0.2] * 3 + [-0.2] * 1 + [1.0] * 5 + [-2.0] * 2)
    axes = Figure().subplots()
    _draw_bars(axes, d, 1.0)
    bars = pd.DataFrame(
        {"y": round(bar.get_y() + bar.get_height() / 2, 6), "x": bar.get_x(), "width": bar.get_width()}
        for bar in axes.patches
    )
    assert (bars.groupby("y")["width"].sum() * 10).round(6).to_dict() == {-2.0: 2, 0.0: 10, 1.0: 5}
    middle = bars[(bars["y"] == 0)].sort_values("x")
    assert (middle["width"] * 10).round(6).tolist() == [1, 6, 3]  # below, at and above 0, from left to right
    assert middle["x"].iloc[0] == pytest.approx(-0.5)
