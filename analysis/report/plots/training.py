"""The figure of training curves: the same loss for both arms, and accepted length on validation prompts."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.style import ARM_COLOURS, MUTED, WIDTH, Plot, legend, plain_log


def training_curves(comparison: Comparison) -> Plot | None:
    """Loss and accepted length over training, both arms. The loss is the unweighted cross-entropy where every history
    has it: weighted losses of different schedules do not share an axis."""
    arms = [arm for arm in (comparison.a, comparison.b) if arm.history is not None]
    if not arms:
        return None
    weighted = any(arm.history is not None and arm.history.curves["ce"].isna().any() for arm in arms)
    column_of_loss = "loss" if weighted else "ce"
    figure = Figure(figsize=(WIDTH, 3.0))
    loss, length = figure.subplots(1, 2)
    for arm in arms:
        assert arm.history is not None
        curves, colour = arm.history.curves, ARM_COLOURS[arm.side]
        steps = curves["step"]
        loss.plot(steps, curves[column_of_loss], color=colour, linewidth=0.5, alpha=0.3)
        smooth = curves[column_of_loss].rolling(1 + len(curves) // 20, center=True, min_periods=1).mean()
        loss.plot(steps, smooth, color=colour, label=legend(arm, 28))
        if spikes := arm.history.spikes:
            at = steps.isin(spikes)
            loss.plot(steps[at], curves.loc[at, column_of_loss], "x", color=colour, markersize=5)
        for column, style in (("val_accepted_length", "-"), ("val_unseen_accepted_length", "--")):
            measured = curves[column].notna()
            length.plot(steps[measured], curves.loc[measured, column], style, color=colour, marker="o", markersize=3)
    loss.set_ylabel("loss (weighted)" if weighted else "cross-entropy (nats per token)")
    loss.set_yscale("log")  # the first steps are far above all others
    plain_log(loss.yaxis)
    loss.legend(loc="upper right")
    length.set_ylabel("validation accepted length (tokens)")
    for style, what in (("-", "seen templates"), ("--", "unseen templates")):
        length.plot([], [], style, color=MUTED, label=what)
    length.legend(loc="lower right")
    for panel in (loss, length):
        panel.set_xlabel("optimizer step")
    data = pd.concat([a.history.curves.assign(arm=a.side) for a in arms if a.history], ignore_index=True)
    crosses = ", spikes marked by crosses" if any(arm.history and arm.history.spikes for arm in arms) else ""
    caption = (
        f"Training: {'weighted loss' if weighted else 'cross-entropy'} per step (faint) and its running mean over a "
        f"twentieth of the training{crosses}; accepted length on fixed validation prompts of seen (solid) and unseen "
        "templates (dashed)."
    )
    return Plot("training-curves", caption, figure, data)
