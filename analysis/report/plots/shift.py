"""The figure of the shift function: by how much the arms differ at each decile."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.style import ARM_COLOURS, INK, MUTED, WIDTH, Plot, name_arms


def shift_function(comparison: Comparison) -> Plot | None:
    """B - A at each decile of a prompt's tokens per step, with simultaneous intervals."""
    found = comparison.shift
    if found is None:
        return None
    data = pd.DataFrame([(d.q, d.a, d.b, d.difference, d.lo, d.hi) for d in found.deciles],
                        columns=["quantile", "a", "b", "difference", "lo", "hi"]).astype(float)  # fmt: skip
    figure = Figure(figsize=(WIDTH, 3.0))
    axes = figure.subplots()
    axes.axhline(0, color=INK, linewidth=0.8)
    errors = np.abs(data[["lo", "hi"]].to_numpy().T - data["difference"].to_numpy())
    colours = [MUTED if not d.differs else ARM_COLOURS["B" if d.difference > 0 else "A"] for d in found.deciles]
    for at, row, error, colour in zip(range(1, 10), data.itertuples(), errors.T, colours, strict=True):
        bar = None if np.isnan(error).any() else error[:, None]
        axes.errorbar([at], [row.difference], yerr=bar, color=colour, marker="o", markersize=5, elinewidth=1.6)
    axes.set_xticks(range(1, 10), [f"{d.q:.0%}\n{d.a:.2f}" for d in found.deciles])
    axes.set_xlabel("share of prompts below, with the decile of A (a prompt's tokens per step)")
    axes.set_ylabel("difference, B - A (tokens)")
    name_arms(axes, comparison.a.label, comparison.b.label)
    caption = (
        "Shift function: differences of the arms' deciles (Harrell-Davis) with simultaneous 95% intervals over prompt "
        "clusters; coloured where the interval excludes 0. Left are the hard prompts, right the easy ones."
    )
    return Plot("shift-function", caption, figure, data)
