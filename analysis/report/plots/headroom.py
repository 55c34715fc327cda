"""The figure of recall: how often the right token is among a slot's candidates."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.measures.headroom import CANDIDATES
from analysis.report.plots.style import ARM_COLOURS, WIDTH, Plot, legend

_STYLES = {CANDIDATES[0]: "-", CANDIDATES[-1]: "--"}


def recall(comparison: Comparison) -> Plot | None:
    """Recall at 1 and at the most candidates, by draft slot."""
    if not comparison.headroom:
        return None
    figure = Figure(figsize=(WIDTH, 3.2))
    axes = figure.subplots()
    arms = {"A": comparison.a, "B": comparison.b}
    for found in comparison.headroom:
        for k, style in _STYLES.items():
            axes.plot(
                found.recall["slot"], 100 * found.recall[f"recall_{k}"], style, color=ARM_COLOURS[found.side],
                marker="o", markersize=4, label=f"{legend(arms[found.side])}, first {k}",
            )  # fmt: skip
    axes.set_xlabel("draft slot")
    axes.set_ylabel("right token among the candidates (%)")
    axes.set_xticks(comparison.headroom[0].recall["slot"])
    axes.set_ylim(0, 100)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = (
        "How often the answer's token is a slot's likeliest (solid) and among its 16 likeliest (dashed), over all "
        "positions of the answers."
    )
    tables = [found.recall.assign(arm=found.side) for found in comparison.headroom]
    return Plot("recall", caption, figure, pd.concat(tables, ignore_index=True))
