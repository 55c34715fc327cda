"""Figures of studies: every arm against the first; every seed, all of them together, and by data set."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from analysis.comparison.matrix import Matrix
from analysis.comparison.seed_study import SeedComparison
from analysis.report.plots.style import (
    ARM_COLOURS,
    INK,
    MORE_COLOURS,
    MUTED,
    VERDICT_COLOURS,
    WIDTH,
    Plot,
    cut,
    house_style,
    name_arms,
)
from analysis.wording import interval, signed

MATRIX, SEEDS, BY_DATASET = "arms", "seeds", "seeds-by-dataset"


def draw_matrix(matrix: Matrix) -> list[Plot]:
    """The differences from the first arm, overall and per data set, one colour per arm."""
    with house_style():
        return [_matrix(matrix)]


def draw_seeds(study: SeedComparison) -> list[Plot]:
    """The difference of every seed, over all of them, and by data set."""
    with house_style():
        drawn = [_seeds(study)]
        return [*drawn, _heat_map(study)] if study.overall.deltas and len(study.by_dataset) > 1 else drawn


def _matrix(matrix: Matrix) -> Plot:
    rows: list[str | None] = [None, *matrix.datasets]
    arms = len(matrix.comparisons)
    figure = Figure(figsize=(WIDTH, 1.2 + 0.17 * len(rows) * (arms + 1)))
    axes = figure.subplots()
    axes.axvline(0, color=INK, linewidth=0.8)
    for number, (c, overall, each) in enumerate(
        zip(matrix.comparisons, matrix.overall, matrix.by_dataset, strict=True)
    ):
        colour, label = MORE_COLOURS[number % len(MORE_COLOURS)], cut(c.b.label, 30)
        for row, name in enumerate(rows):
            e = overall if name is None else each.get(name)
            if e is None or e.estimate is None:
                continue
            at = row + (number - (arms - 1) / 2) * 0.7 / arms
            axes.plot([e.estimate], [at], "o", markersize=5, color=colour, label=f"{label}")
            label = "_"
            if e.lo is not None and e.hi is not None:
                axes.plot([e.lo, e.hi], [at, at], color=colour, linewidth=2)
    axes.axhline(0.5, color=MUTED, linewidth=0.6)
    axes.set_yticks(range(len(rows)), ["overall", *(cut(name, 32) for name in matrix.datasets)])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    first = matrix.comparisons[0]
    axes.set_xlabel(f"difference in {first.estimand.name} from {cut(first.a.label, 30)} ({first.estimand.unit})")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "Every arm against the first, overall and per data set, with 95% intervals."
    return Plot(MATRIX, caption, figure, matrix.to_frame())


def _seeds(study: SeedComparison) -> Plot:
    figure = Figure(figsize=(WIDTH, 3.2))
    axes = figure.subplots()
    axes.axhline(0, color=INK, linewidth=0.8)
    data = _seed_rows(study)
    verdict = VERDICT_COLOURS.get(study.overall.estimate.verdict, INK)
    for place, row in enumerate(data.itertuples()):
        last = row.seed == "all"
        colour = ARM_COLOURS[row.arm] if row.arm else verdict if last else MUTED
        axes.plot([place + 0.5 * last], [row.estimate], "o", markersize=8 if last else 5, color=colour)
        axes.plot([place + 0.5 * last] * 2, [row.lo, row.hi], color=colour, linewidth=2.4 if last else 1.4)
    overall, end = study.overall.estimate, len(data) - 0.5
    text = f"{signed(overall.estimate, 2)}\n({interval(overall.lo, overall.hi, 2)})"
    axes.annotate(text, (end, overall.estimate or 0.0), xytext=(10, 0), textcoords="offset points", va="center")
    axes.set_xticks([*range(len(data) - 1), end], [cut(seed, 14) for seed in data["seed"]])
    axes.set_xlim(-0.6, end + 1.6)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("training seed")
    name_arms(axes, study.label_a, study.label_b)
    axes.set_ylabel(f"difference, B - A ({overall.estimand.unit})")
    caption = (
        "Each seed with its interval over prompts (grey), and all seeds together with the interval over seeds and "
        "prompts."
        if study.overall.design != "independent"
        else "Each run's distance from the mean of A, and the difference between the arms over seeds and prompts."
    )
    return Plot(SEEDS, caption, figure, data)


def _seed_rows(study: SeedComparison) -> pd.DataFrame:
    """What the figure shows: a row per seed (or per run of an arm, if not paired), then one for all."""
    c = study.overall
    rows: list[tuple[object, ...]] = []
    if c.design != "independent":
        rows += [
            (seed, "", e.estimate, e.lo, e.hi, "prompts") for seed, e in zip(study.seeds, study.per_seed, strict=True)
        ]
    else:
        centre = sum(c.means_a) / len(c.means_a)
        for arm, seeds, means in (("A", study.seeds_a, c.means_a), ("B", study.seeds_b, c.means_b)):
            rows += [(f"{arm}, {s}", arm, m - centre, None, None, "one run") for s, m in zip(seeds, means, strict=True)]
    rows.append(("all", "", c.estimate.estimate, c.estimate.lo, c.estimate.hi, "seeds and prompts"))
    table = pd.DataFrame(rows, columns=["seed", "arm", "estimate", "lo", "hi", "covers"])
    return table.astype({"estimate": float, "lo": float, "hi": float})


def _heat_map(study: SeedComparison) -> Plot:
    """Differences, one seed per row and one data set per column, then all seeds."""
    names, seeds = list(study.by_dataset), [*study.seeds, "all"]
    values = np.array([[*c.deltas, c.estimate.estimate] for c in study.by_dataset.values()], dtype=float).T
    figure = Figure(figsize=(WIDTH, 1.4 + 0.36 * len(seeds)))
    axes = figure.subplots()
    colours = LinearSegmentedColormap.from_list("arms", [ARM_COLOURS["A"], "#FFFFFF", ARM_COLOURS["B"]])
    widest = float(np.abs(values).max()) or 1.0
    image = axes.imshow(values, cmap=colours, vmin=-widest, vmax=widest, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        light = abs(value) > 0.8 * widest
        axes.text(column, row, signed(value, 2), ha="center", va="center", color="#FFFFFF" if light else INK)
    axes.axhline(len(seeds) - 1.5, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(names)), [cut(name, 24) for name in names], rotation=25, ha="right")
    axes.set_yticks(range(len(seeds)), [cut(seed, 20) for seed in seeds])
    axes.set_ylabel("training seed")
    name_arms(axes, study.label_a, study.label_b)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, label=f"difference, B - A\n({study.overall.estimate.estimand.unit})")
    rows = [(seed, name, values[i, j]) for i, seed in enumerate(seeds) for j, name in enumerate(names)]
    data = pd.DataFrame(rows, columns=["seed", "dataset", "difference"])
    return Plot(BY_DATASET, "The difference of every seed on every data set.", figure, data)
