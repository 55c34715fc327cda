"""Figures of estimates: every pair's difference beside the mean, and the forest over data sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import wording
from analysis.comparison.pairwise import Comparison
from analysis.comparison.values import ValueComparison
from analysis.report.plots.style import (
    ARM_COLOURS,
    INK,
    MUTED,
    VERDICT_COLOURS,
    WIDTH,
    Plot,
    house_style,
    name_arms,
)
from analysis.stats.estimate import Estimate
from analysis.wording import TAU_POOLED, cut_apart, one_line, signed

#: With more pairs than this the figure shows counts instead of one dot per pair.
MOST_DOTS = 10_000
#: Approximate maximum number of bars.
_BARS = 80
_COLOURS = (ARM_COLOURS["A"], MUTED, ARM_COLOURS["B"])  # of differences below, at and above 0


def draw_values(comparison: ValueComparison) -> list[Plot]:
    """The figures of one number per prompt."""
    with house_style():
        return [paired_differences(comparison), forest(comparison)]


def paired_differences(comparison: Comparison | ValueComparison) -> Plot:
    """Estimation plot: every pair's difference, and beside it, on a separate scale, their mean with its interval."""
    d = _differences(comparison)
    figure = Figure(figsize=(WIDTH, 3.4))
    raw, mean = figure.subplots(1, 2, width_ratios=[3, 1])
    raw.axhline(0, color=INK, linewidth=0.8)
    dataset = comparison.pairs.frame["dataset"]
    if d.size <= MOST_DOTS:
        colours = np.array(_COLOURS)[np.sign(np.sort(d)).astype(int) + 1]
        raw.scatter(*_packed(d), s=9, c=colours, alpha=0.7, linewidths=0, rasterized=True)
        data = pd.DataFrame({"prompt_id": comparison.pairs.frame["prompt_id"], "dataset": dataset, "difference": d})
        shown = "one dot per prompt (left)"
    else:
        step = _bar_step(d)
        data = _counts(d, dataset, step)
        _draw_bars(raw, d, step)
        shown = (
            f"number of prompts by difference, in steps of {step:g} (left; bars replace dots above {MOST_DOTS:,} "
            "prompts, the thinnest bars are widened to stay visible, and the table has the counts by data set)"
        )
    raw.set_xlim(-0.55, 0.55)
    raw.set_xticks([])
    raw.set_ylabel("difference per prompt, B - A" + _unit(comparison))
    raw.set_xlabel(f"{wording.counted(d.size, 'pair')}, {comparison.overall.n_zero:,} without a difference")
    name_arms(raw, *_labels(comparison))

    overall = comparison.overall
    mean.axhline(0, color=INK, linewidth=0.8)
    draw_interval(mean, 0, overall, vertical=True)
    mean.set_xlim(-1, 1)
    mean.set_xticks([])
    mean.margins(y=0.25)
    mean.set_ylabel(f"{'pooled' if comparison.estimand == TAU_POOLED else 'mean'} difference, B - A{_unit(comparison)}")
    caption = (
        f"Paired differences in {comparison.estimand.name}: {shown}, and the estimate with its 95% interval on a "
        "separate scale (right)."
    )
    return Plot("paired-differences", caption, figure, data)


def _bar_step(d: np.ndarray) -> float:
    """A round step, 1, 2 or 5 times a power of ten, that gives at most about _BARS bars; at least 1 for integers."""
    finest = max(float(np.ptp(d)) / _BARS, 1e-9)
    power = 10.0 ** np.floor(np.log10(finest))
    step = next(float(m * power) for m in (1, 2, 5, 10) if m * power >= finest * (1 - 1e-9))
    return max(step, 1.0) if (d == d.round()).all() else step


def _bar_of(d: np.ndarray, step: float) -> np.ndarray:
    """Which multiple of ``step`` is nearest; halves are rounded away from 0, so that both signs are treated alike."""
    return (np.sign(d) * np.floor(np.abs(d) / step + 0.5)).astype(np.int64)


def _counts(d: np.ndarray, dataset: pd.Series, step: float) -> pd.DataFrame:
    """Prompts by data set and bar: ``from``, ``to``, ``prompts``. Bars are about the multiples of ``step``."""
    table = pd.DataFrame({"dataset": dataset, "bar": _bar_of(d, step)}).value_counts(sort=False).sort_index()
    table = table.rename("prompts").reset_index()
    middle = table.pop("bar") * step
    table.insert(1, "from", middle - step / 2)
    table.insert(2, "to", middle + step / 2)
    return table


def _draw_bars(axes: Axes, d: np.ndarray, step: float) -> None:
    """A bar per multiple of ``step``, the part below 0, at 0 and above 0 side by side; the widest is 1 wide."""
    bar = _bar_of(d, step)
    first = int(bar.min())
    parts = [
        np.bincount(bar[of_sign] - first, minlength=int(bar.max()) - first + 1) for of_sign in (d < 0, d == 0, d > 0)
    ]
    total = np.sum(parts, axis=0)
    some = total > 0
    widths = np.maximum(total / total.max(), 0.004)[some]
    left = -widths / 2
    for counts, colour in zip(parts, _COLOURS, strict=True):
        width = widths * counts[some] / total[some]
        middle = (np.flatnonzero(some) + first) * step
        axes.barh(middle, width, height=0.9 * step, left=left, color=colour, alpha=0.7, linewidth=0)
        left = left + width


def forest(comparison: Comparison | ValueComparison) -> Plot:
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
    axes.set_yticks(range(len(estimates)), cut_apart(labels, 32))
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"difference in {comparison.estimand.name}, B - A{_unit(comparison)}")
    name_arms(axes, *_labels(comparison))
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
    caption = "Differences overall and per data set, with 95% intervals; coloured if there is a verdict."
    return Plot("forest", caption, figure, data[columns].fillna({"subset": "overall"}))


def _labels(comparison: Comparison | ValueComparison) -> tuple[str, str]:
    if isinstance(comparison, ValueComparison):
        return comparison.label_a, comparison.label_b
    return comparison.a.label, comparison.b.label


def _unit(comparison: Comparison | ValueComparison) -> str:
    return f" ({comparison.estimand.unit})" if comparison.estimand.unit else ""


def _differences(comparison: Comparison | ValueComparison) -> np.ndarray:
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
