"""The figure of acceptance at every position of the answers: against the place, and against the target's entropy."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.style import ARM_COLOURS, WIDTH, Plot, legend


def by_context(comparison: Comparison) -> Plot | None:
    """Mean accepted length of both arms by place in the answer and by entropy of the next token."""
    found = comparison.anchors
    if found is None:
        return None
    figure = Figure(figsize=(WIDTH, 3.4))
    panels = figure.subplots(1, 2, sharey=True)
    tables = []
    for axes, (what, label, curve) in zip(
        panels,
        (
            ("place", "token of the answer", found.by_place),
            ("entropy", "target's entropy of the next token (nats)", found.by_entropy),
        ),
        strict=True,
    ):
        at = np.arange(len(curve))
        for arm, shift in ((comparison.a, -0.07), (comparison.b, 0.07)):
            mean, lo, hi = (curve[f"{name}_{arm.side.lower()}"].to_numpy() for name in ("mean", "lo", "hi"))
            axes.errorbar(
                at + shift, mean, yerr=np.nan_to_num(np.abs([lo - mean, hi - mean])), color=ARM_COLOURS[arm.side],
                marker="o", markersize=4, linewidth=1.4, elinewidth=1, capsize=0, label=legend(arm),
            )  # fmt: skip
        axes.set_xticks(at, curve["class"], rotation=30)
        axes.set_xlabel(label)
        tables.append(curve.assign(against=what))
    panels[0].set_ylabel("mean accepted length (tokens)")
    panels[0].set_ylim(1, None)
    panels[0].legend(loc="best")
    caption = (
        "Mean accepted length over all positions of the answers, the bonus token counted, with 95% intervals over "
        "prompt clusters: against the place in the answer, and against the entropy of the target's next token. Near "
        "the end of an answer fewer tokens can be accepted."
    )
    return Plot("acceptance-by-context", caption, figure, pd.concat(tables, ignore_index=True))
