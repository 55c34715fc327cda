"""The figure of training curves."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.style import ARM_COLOURS, WIDTH, Plot, legend


def training_curves(comparison: Comparison) -> Plot | None:
    """Loss and accepted length over training, both arms."""
    arms = [arm for arm in (comparison.a, comparison.b) if arm.history is not None]
    if not arms:
        return None
    figure = Figure(figsize=(WIDTH, 3.0))
    loss, length = figure.subplots(1, 2)
    for arm in arms:
        assert arm.history is not None
        curves, colour = arm.history.curves, ARM_COLOURS[arm.side]
        steps = curves["step"]
        loss.plot(steps, curves["loss"], color=colour, linewidth=0.5, alpha=0.3)
        smooth = curves["loss"].rolling(1 + len(curves) // 20, center=True, min_periods=1).mean()
        loss.plot(steps, smooth, color=colour, label=legend(arm))
        for column, style in (("val_accepted_length", "-"), ("val_unseen_accepted_length", "--")):
            measured = curves[column].notna()
            length.plot(steps[measured], curves.loc[measured, column], style, color=colour, marker="o", markersize=3)
    loss.set_ylabel("loss (weighted)")
    loss.set_yscale("log")  # the first steps are far above all others
    loss.legend(loc="upper right")
    length.set_ylabel("validation accepted length")
    for panel in (loss, length):
        panel.set_xlabel("optimizer step")
    data = pd.concat([a.history.curves.assign(arm=a.side) for a in arms if a.history], ignore_index=True)
    caption = (
        "Training: loss per step (faint) and its running mean; accepted length on fixed validation slices, of seen "
        "(solid) and of unseen templates (dashed)."
    )
    return Plot("training-curves", caption, figure, data)
