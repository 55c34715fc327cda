"""Figures of estimates: every pair's difference beside the mean, and the forest over data sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import wording
from analysis.comparison import Comparison
from analysis.estimate import Estimate
from analysis.figures import ARM_COLOURS, INK, MUTED, VERDICT_COLOURS, WIDTH, Plot, cut
from analysis.wording import one_line, signed


def paired_differences(comparison: Comparison) -> Plot:
    """Estimation plot: every pair's difference, and beside it, on its own scale, their mean with its interval."""
    d = _differences(comparison)
    figure = Figure(figsize=(WIDTH, 3.4))
    raw, mean = figure.subplots(1, 2, width_ratios=[3, 1])
    raw.axhline(0, color=INK, linewidth=0.8)
    colours = np.array([ARM_COLOURS["A"], MUTED, ARM_COLOURS["B"]])[np.sign(np.sort(d)).astype(int) + 1]
    raw.scatter(*_packed(d), s=9, c=colours, alpha=0.7, linewidths=0, rasterized=True)
    raw.set_xlim(-0.55, 0.55)
    raw.set_xticks([])
    raw.set_ylabel(f"difference per prompt, B - A ({comparison.estimand.unit})")
    raw.set_title(f"{wording.counted(d.size, 'pair')}, {comparison.overall.n_zero:,} without a difference", loc="left")

    overall = comparison.overall
    mean.axhline(0, color=INK, linewidth=0.8)
    draw_interval(mean, 0, overall, vertical=True)
    mean.set_xlim(-1, 1)
    mean.set_xticks([])
    mean.margins(y=0.25)
    mean.set_title(f"{'pooled' if comparison.protocol == 'generate' else 'mean'}, 95%", loc="left")
    frame = comparison.pairs.frame
    data = pd.DataFrame({"prompt_id": frame["prompt_id"], "dataset": frame["dataset"], "difference": d})
    caption = (
        f"Paired differences in {comparison.estimand.name}: every prompt, dots of one value together (left), and "
        "the estimate with its 95% interval on a scale of its own (right)."
    )
    return Plot("paired-differences", caption, figure, data)


def forest(comparison: Comparison) -> Plot:
    """The estimate overall and per data set, with intervals."""
    estimates = [comparison.overall, *comparison.by_dataset.values()]
    labels = ["overall", *map(one_line, comparison.by_dataset)]
    figure = Figure(figsize=(WIDTH, 1.1 + 0.36 * len(estimates)))
    axes = figure.subplots()
    axes.axvline(0, color=INK, linewidth=0.8)
    for row, estimate in enumerate(estimates):
        draw_interval(axes, row, estimate)
        bounds = wording.interval(estimate.lo, estimate.hi, 2)
        text = f"{signed(estimate.estimate, 2)}  ({bounds})  n = {estimate.n_pairs:,}"
        axes.text(1.02, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9)
    axes.axhline(0.5, color=MUTED, linewidth=0.6)
    axes.set_yticks(range(len(estimates)), [cut(label, 32) for label in labels])
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"difference in {comparison.estimand.name}, B - A ({comparison.estimand.unit})")
    data = comparison.to_frame()
    data = data[data["estimand"] == comparison.estimand.key]
    columns = [
        "subset",
        "mean_a",
        "mean_b",
        "estimate",
        "lo",
        "hi",
        "p",
        "p_adjusted",
        "n_pairs",
        "n_clusters",
        "verdict",
    ]
    caption = "Differences overall and per data set, with 95% intervals; coloured where there is a verdict."
    return Plot("forest", caption, figure, data[columns].fillna({"subset": "overall"}))


def _differences(comparison: Comparison) -> np.ndarray:
    (tokens_a, steps_a), (tokens_b, steps_b) = (comparison.pairs.counts(side) for side in "ab")
    return tokens_b / steps_b - tokens_a / steps_a


def _packed(d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the sorted values as dots: about equal ones side by side, integers in several rows if many."""
    whole = bool((d == d.round()).all())
    _, counts = np.unique(d.round(0 if whole else 1), return_counts=True)
    rows = -(-int(counts.max()) // 70) if whole else 1
    rank = np.arange(d.size) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = -(-counts // rows)
    x = (rank // rows - (np.repeat(columns, counts) - 1) / 2) / max(columns.max(), 20)
    return x, np.sort(d) + (rank % rows - (rows - 1) / 2) * min(0.16, 0.7 / rows)


def draw_interval(axes: Axes, at: float, estimate: Estimate, *, vertical: bool = False) -> None:
    colour = VERDICT_COLOURS.get(estimate.verdict, INK)
    if estimate.estimate is None:
        return
    along, across = [estimate.estimate], [at]
    axes.plot(*((across, along) if vertical else (along, across)), marker="o", markersize=7, color=colour)
    if estimate.lo is not None and estimate.hi is not None:
        ends, same = [estimate.lo, estimate.hi], [at, at]
        axes.plot(*((same, ends) if vertical else (ends, same)), color=colour, linewidth=2.2, solid_capstyle="butt")
