"""Figures of speed: times faster than plain decoding per data set, and serving throughput block by block."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.style import ARM_COLOURS, INK, MUTED, WIDTH, Plot, cut, legend


def speed(comparison: Comparison) -> Plot | None:
    """Each arm's pooled speed-up over plain decoding, all prompts and per data set."""
    if comparison.speed is None:
        return None
    ratios_of = {side: comparison.speed.pooled(side, "plain") for side in "AB"}
    subsets = [s for s in (None, *comparison.by_dataset) if any(s in ratios for ratios in ratios_of.values())]
    if not subsets:
        return None
    figure = Figure(figsize=(WIDTH, 1.3 + 0.42 * len(subsets)))
    axes = figure.subplots()
    axes.axvline(1, color=INK, linewidth=0.8)
    rows = []
    for arm, shift in ((comparison.a, -0.14), (comparison.b, 0.14)):
        label = legend(arm)
        for row, subset in enumerate(subsets):
            if (r := ratios_of[arm.side].get(subset)) is None:
                continue
            axes.plot([r.estimate], [row + shift], "o", markersize=6, color=ARM_COLOURS[arm.side], label=label)
            label = "_"
            if r.lo is not None and r.hi is not None:
                axes.plot([r.lo, r.hi], [row + shift] * 2, color=ARM_COLOURS[arm.side], linewidth=2)
            rows.append({"arm": arm.side, "subset": subset or "all", "times": r.estimate, "lo": r.lo, "hi": r.hi})
    axes.axhline(0.5, color=MUTED, linewidth=0.6)
    axes.set_yticks(range(len(subsets)), ["all prompts", *(cut(s, 32) for s in subsets[1:] if s is not None)])
    axes.set_ylim(len(subsets) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("times faster than plain decoding (pooled seconds per token)")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "Speed-up over plain decoding of the same prompts, with 95% intervals over prompt clusters."
    return Plot("speed", caption, figure, pd.DataFrame(rows))


def throughput(comparison: Comparison) -> Plot | None:
    """Every trial of both arms, blocks joined by a line, and the ratio per block beside them."""
    if comparison.throughput is None or not comparison.throughput.ratios:
        return None
    levels = comparison.throughput.ratios
    trials = comparison.throughput.trials
    figure = Figure(figsize=(WIDTH, 3.0))
    raw, ratio = figure.subplots(1, 2, width_ratios=[2, 1])
    for place, level in enumerate(levels):
        of_level = trials[trials["concurrency"].isna() if level.concurrency is None
                          else trials["concurrency"] == level.concurrency]  # fmt: skip
        of_level = of_level[of_level["block"].isin(level.blocks)]
        for _, block in of_level.groupby("block"):
            means = block.groupby("side")["tokens_per_s"].mean()
            raw.plot([place - 0.15, place + 0.15], [means["A"], means["B"]], color=MUTED, linewidth=0.8)
        for arm, x in ((comparison.a, place - 0.15), (comparison.b, place + 0.15)):
            values = of_level.loc[of_level["side"] == arm.side, "tokens_per_s"].to_numpy(dtype=float)
            label = legend(arm) if place == 0 else "_"
            raw.plot(np.full(values.size, x), values, "o", markersize=5, color=ARM_COLOURS[arm.side], label=label)
        ratio.plot(np.full(len(level.ratios), place), level.ratios, "o", markersize=4, color=MUTED)
        ratio.plot([place + 0.2], [level.estimate], "o", markersize=7, color=INK)
        if level.lo is not None and level.hi is not None:
            ratio.plot([place + 0.2] * 2, [level.lo, level.hi], color=INK, linewidth=2)
    ratio.axhline(1, color=INK, linewidth=0.8)
    names = ["—" if level.concurrency is None else str(level.concurrency) for level in levels]
    for panel in (raw, ratio):
        panel.set_xticks(range(len(levels)), names)
        panel.set_xlim(-0.6, len(levels) - 0.4)
        panel.set_xlabel("concurrent requests")
        panel.grid(visible=False, axis="x")
    raw.set_ylim(0, None)
    raw.set_ylabel("output tokens per second")
    ratio.set_ylabel("ratio B / A per block")
    raw.legend(loc="best")
    caption = (
        "Serving throughput: every successful trial, with lines between the two arms of a block (left); the ratio of "
        "each block and their geometric mean with its 95% t interval (right)."
    )
    return Plot("throughput", caption, figure, trials)
