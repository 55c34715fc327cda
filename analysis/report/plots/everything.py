"""The figures of a comparison, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.anchors import by_context
from analysis.report.plots.estimates import forest, paired_differences
from analysis.report.plots.gates import contribution_share, gate_against_norm
from analysis.report.plots.headroom import recall
from analysis.report.plots.positions import survival
from analysis.report.plots.shift import shift_function
from analysis.report.plots.speed import speed, throughput
from analysis.report.plots.style import Plot, house_style
from analysis.report.plots.training import training_curves

_FIGURES: dict[str, Callable[[Comparison], Plot | None]] = {
    "paired-differences": paired_differences,
    "forest": forest,
    "shift-function": shift_function,
    "survival": survival,
    "acceptance-by-context": by_context,
    "recall": recall,
    "speed": speed,
    "throughput": throughput,
    "gate-against-norm": gate_against_norm,
    "contribution-share": contribution_share,
    "training-curves": training_curves,
}
#: File stems of all figures that a report can have.
NAMES = tuple(_FIGURES)


def draw_all(comparison: Comparison) -> list[Plot]:
    """Every figure for which the comparison has data. Each function returns a figure, or None without data."""
    with house_style():
        return [plot for draw in _FIGURES.values() if (plot := draw(comparison)) is not None]
