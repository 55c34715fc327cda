"""The figure of what scales: the headline against the axis, a line per series."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from analysis.comparison.scaling import Scaling
from analysis.report.plots.style import ARM_COLOURS, MORE_COLOURS, WIDTH, Plot, cut, house_style

SCALING = "scaling"
#: One colour and marker per series.
_COLOURS = (ARM_COLOURS["A"], *MORE_COLOURS)
_MARKERS = "osD^vP*"


def draw_scaling(found: Scaling) -> list[Plot]:
    """Means with their intervals against the levels, on a logarithmic axis."""
    with house_style():
        return [_against(found)]


def _against(found: Scaling) -> Plot:
    figure = Figure(figsize=(WIDTH, 3.4))
    axes = figure.subplots()
    for number, series in enumerate(found.series):
        levels = [p.level for p in series.points]
        means = np.array([p.mean for p in series.points])
        lo, hi = (
            np.array([p.mean if b is None else b for p, b in zip(series.points, bounds, strict=True)])
            for bounds in ([p.lo for p in series.points], [p.hi for p in series.points])
        )
        axes.errorbar(
            levels,
            means,
            yerr=np.abs(np.array([lo - means, hi - means])),
            color=_COLOURS[number % len(_COLOURS)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=5,
            linewidth=1.4,
            elinewidth=1,
            capsize=0,
            label=cut(series.name, 40),
        )
    levels = sorted({p.level for series in found.series for p in series.points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(levels, [f"{level:,.0f}" if level < 1e9 else f"{level:.2g}" for level in levels])
    axes.minorticks_off()
    axes.set_xlabel(found.unit)
    axes.set_ylabel(f"{found.estimand.name} ({found.estimand.unit})")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = "Means of every run with 95% intervals over prompts. Differences between runs of a series are paired."
    return Plot(SCALING, caption, figure, found.to_frame())
