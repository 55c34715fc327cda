"""Figures of a serving experiment."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.measures.serving import Serving
from analysis.measures.throughput import DONE
from analysis.report.plots.style import INK, MUTED, WIDTH, Plot, cut, house_style

SERVING, SWEEP = "serving-throughput", "serving-concurrency"
#: Okabe and Ito's palette after the two colours of arms A and B.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")


def draw_all(s: Serving) -> list[Plot]:
    """The figures that the experiment has data for."""
    with house_style():
        return [plot for plot in (throughput(s), sweep(s)) if plot is not None]


def throughput(s: Serving) -> Plot | None:
    """Every finished trial of every arm, at the largest concurrency, and the mean over blocks."""
    if not s.changes:
        return None
    level = max(c.concurrency for c in s.changes)
    shown = [c for c in s.changes if c.concurrency == level]
    figure = Figure(figsize=(WIDTH, 1.0 + 0.38 * len(shown)))
    axes = figure.subplots()
    done = s.trials[(s.trials["status"] == DONE) & (s.trials["concurrency"] == level)]
    for place, c in enumerate(shown):
        values = done.loc[done["arm"] == c.arm, "tokens_per_s"].astype(float)
        axes.plot(values, [place] * len(values), "o", markersize=5, color=MUTED)
        axes.plot([c.tokens_per_s], [place], "|", markersize=16, markeredgewidth=2, color=INK)
    axes.set_yticks(range(len(shown)), [cut(c.arm, 32) for c in shown])
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0, None)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("output tokens per second")
    caption = f"Every finished trial at {level} concurrent requests; the stroke is the mean over blocks."
    data = done[["arm", "block", "order", "tokens_per_s"]]
    return Plot(SERVING, caption, figure, data.reset_index(drop=True))


def sweep(s: Serving) -> Plot | None:
    """Ratio to the baseline over concurrency."""
    rows = [
        {"arm": c.arm, "concurrency": c.concurrency, "ratio": c.ratio, "lo": c.lo, "hi": c.hi}
        for c in s.changes
        if c.ratio is not None
    ]
    data = pd.DataFrame(rows)
    if data.empty or data["concurrency"].nunique() < 2:
        return None
    figure = Figure(figsize=(WIDTH, 3.2))
    axes = figure.subplots()
    axes.axhline(1, color=INK, linewidth=0.8)
    for colour, (arm, of) in zip(_COLOURS * len(data), data.groupby("arm", sort=False), strict=False):
        axes.plot(of["concurrency"], of["ratio"], "o-", color=colour, label=cut(str(arm), 32))
    levels = sorted(data["concurrency"].unique())
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [str(level) for level in levels])
    axes.minorticks_off()
    axes.set_xlabel("concurrent requests")
    axes.set_ylabel(f"throughput / {cut(s.baseline, 24)}")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return Plot(SWEEP, "Throughput over the baseline's, geometric mean over blocks, by concurrency.", figure, data)
