"""The figure of a factorial of arms: its effects, and the means of its cells."""

from __future__ import annotations

from matplotlib.figure import Figure

from analysis.comparison.factorial import Factorial
from analysis.report.plots.style import INK, MUTED, VERDICT_COLOURS, WIDTH, Plot, cut, house_style

FACTORIAL = "effects"


def draw_factorial(found: Factorial) -> list[Plot]:
    """Effects with their intervals, main effects above the line."""
    with house_style():
        return [_effects(found)]


def _effects(found: Factorial) -> Plot:
    figure = Figure(figsize=(WIDTH, 1.2 + 0.36 * len(found.effects)))
    axes = figure.subplots()
    axes.axvline(0, color=INK, linewidth=0.8)
    names = []
    for row, effect in enumerate(found.effects):
        e, main = effect.estimate, row < len(found.factors)
        names.append(f"{effect.name}: {found.factors[row].high}" if main else effect.name)
        colour = VERDICT_COLOURS.get(e.verdict, MUTED)
        if e.estimate is not None:
            axes.plot([e.estimate], [row], "o" if main else "D", markersize=6, color=colour)
        if e.lo is not None and e.hi is not None:
            axes.plot([e.lo, e.hi], [row, row], color=colour, linewidth=2)
    axes.axhline(len(found.factors) - 0.5, color=MUTED, linewidth=0.6)
    axes.set_yticks(range(len(names)), [cut(name, 44) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"effect on {found.estimand.name} ({found.estimand.unit})")
    caption = (
        "Main effects (circles) and interactions (diamonds, differences of differences) with 95% intervals. Grey: no "
        "verdict after Holm correction."
    )
    return Plot(FACTORIAL, caption, figure, found.to_frame())
