"""The figure of acceptance by draft position: survival of both arms, and the paired difference below."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.style import ARM_COLOURS, INK, WIDTH, Plot, legend


def survival(comparison: Comparison) -> Plot | None:
    """P(accepted >= k) by draft position, both arms, and B - A paired by prompt."""
    difference = comparison.position_difference
    if difference.empty:
        return None
    figure = Figure(figsize=(WIDTH, 4.6))
    curves, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    tables = []
    for arm, shift in ((comparison.a, -0.06), (comparison.b, 0.06)):
        curve = arm.positions.curve
        errors = np.abs(curve[["lo", "hi"]].to_numpy().T - curve["survival"].to_numpy())
        curves.errorbar(
            curve["k"] + shift, curve["survival"], yerr=errors, color=ARM_COLOURS[arm.side], marker="o", markersize=4,
            linewidth=1.4, elinewidth=1, capsize=0, label=legend(arm),
        )  # fmt: skip
        tables.append(curve.assign(arm=arm.side))
    curves.set_ylim(0, None)
    curves.set_ylabel("P(first k accepted)")
    curves.legend(loc="upper right")
    errors = np.abs(difference[["lo", "hi"]].to_numpy().T - difference["difference"].to_numpy())
    below.axhline(0, color=INK, linewidth=0.8)
    below.errorbar(
        difference["k"], difference["difference"], yerr=errors, color=INK, marker="o", markersize=4, linestyle="none",
        elinewidth=1.4,
    )  # fmt: skip
    at_risk = [
        arm.positions.curve.set_index("k")["at_risk"][difference["k"]].tolist() for arm in (comparison.a, comparison.b)
    ]
    same = at_risk[0] == at_risk[1]
    counts = [map(_short, of_arm) for of_arm in at_risk[: 1 if same else 2]]
    below.set_xticks(
        difference["k"], ["\n".join(lines) for lines in zip(map(str, difference["k"]), *counts, strict=True)]
    )
    below.set_xlabel(f"draft position k, with the steps at risk{' in each arm' if same else ' of A, of B'}")
    below.set_ylabel("difference, B - A")
    data = pd.concat(tables, ignore_index=True).merge(
        difference.rename(columns={"lo": "difference_lo", "hi": "difference_hi"}), on="k", how="left"
    )
    caption = (
        "Survival by draft position (product-limit estimate; blocks that end at the stop token or the length limit are "
        "censored), and the difference, paired by prompt, with 95% intervals over prompt clusters. The numbers below "
        "the axis are steps at risk. Acceptance is censored at the last position: a longer block might have continued."
    )
    return Plot("survival", caption, figure, data)


def _short(count: int) -> str:
    return f"{count:,}" if count < 100_000 else f"{count / 1000:,.0f}k"
