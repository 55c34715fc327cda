"""Figures of the fusion: gate against feature norm, and the share of each target layer."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.comparison.pairwise import Comparison
from analysis.report.plots.style import ARM_COLOURS, INK, WIDTH, Plot, cut, legend, plain_log
from analysis.wording import one_line


def gate_against_norm(comparison: Comparison) -> Plot | None:
    """Gate against feature norm, single tokens and layer means, for the arm whose gate moves (B if both do)."""
    arm = next((a for a in (comparison.b, comparison.a) if a.gates is not None and a.gates.moving), None)
    if arm is None or arm.gates is None:
        return None
    means = arm.gates.table
    means = means[means["role"] == _role(means)].pivot(index="layer", columns="quantity", values=["mean", "lo", "hi"])
    sample = arm.gates.sample
    sample = sample[sample["role"] == _role(arm.gates.table)]
    figure = Figure(figsize=(WIDTH, 3.6))
    axes = figure.subplots()
    axes.axhline(1, color=INK, linewidth=0.8)
    for layer, colour in _layer_colours(means.index).items():
        tokens = sample[sample["layer"] == layer]
        tokens = tokens.iloc[:: max(1, len(tokens) // 800)]
        axes.scatter(
            tokens["feature_norm"], tokens["gate"], s=7, color=colour, alpha=0.35, linewidths=0, rasterized=True
        )
        x, y = means.at[layer, ("mean", "feature_norm")], means.at[layer, ("mean", "gate")]
        axes.scatter([x], [y], s=70, color=colour, edgecolors=INK, linewidths=1, zorder=3, label=f"layer {layer}")
    axes.set_xscale("log")
    plain_log(axes.xaxis)
    axes.set_xlabel("feature norm of the target layer (log scale)")
    axes.set_ylabel(f"gate ({cut(arm.label, 30)})")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    data = arm.gates.table.assign(arm=arm.side)
    caption = (
        f"Gate against feature norm in {one_line(arm.label)}, {_role(arm.gates.table)} tokens: single tokens (small) "
        "and the mean of each layer (large). Gate levels are not identified; their ranking is descriptive."
    )
    return Plot("gate-against-norm", caption, figure, data)


def contribution_share(comparison: Comparison) -> Plot | None:
    """Share of each target layer in the projected sum, both arms."""
    arms = [arm for arm in (comparison.a, comparison.b) if arm.gates is not None]
    if not arms:
        return None
    tables = {a.side: a.gates.table[a.gates.table["quantity"] == "contribution_share"] for a in arms if a.gates}
    roles = sorted({role for table in tables.values() for role in table["role"]}, reverse=True)
    figure = Figure(figsize=(WIDTH, 3.0))
    panels = np.atleast_1d(figure.subplots(1, len(roles), sharey=True))
    layers = sorted({int(layer) for table in tables.values() for layer in table["layer"]})
    for panel, role in zip(panels, roles, strict=True):
        panel.axhline(0, color=INK, linewidth=0.8)
        for arm in arms:
            rows = tables[arm.side][tables[arm.side]["role"] == role]
            x = np.array([layers.index(layer) for layer in rows["layer"]]) + {"A": -0.12, "B": 0.12}[arm.side]
            errors = np.abs(rows[["lo", "hi"]].to_numpy().T - rows["mean"].to_numpy())
            panel.errorbar(
                x, rows["mean"], yerr=errors, color=ARM_COLOURS[arm.side], marker="o", markersize=5, linestyle="none",
                elinewidth=1.4, label=legend(arm, 28),
            )  # fmt: skip
        panel.set_xticks(range(len(layers)), [str(layer) for layer in layers])
        panel.set_xlabel("target layer (index into hidden states)")
        panel.set_title(f"{role} tokens", loc="left")
    panels[0].set_ylabel("contribution share")
    panels[-1].legend(loc="best")
    data = pd.concat([t.assign(arm=side) for side, t in tables.items()], ignore_index=True)
    caption = (
        "Additive share of each target layer in the projected context feature, with 95% intervals; shares add to 1."
    )
    return Plot("contribution-share", caption, figure, data)


def _role(table: pd.DataFrame) -> str:
    """The role shown in a single panel: answer tokens if there are any."""
    return "answer" if (table["role"] == "answer").any() else str(table["role"].iloc[0])


def _layer_colours(layers: pd.Index) -> dict[int, tuple[float, float, float, float]]:
    ramp = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.92, len(layers)))
    return {int(layer): tuple(colour) for layer, colour in zip(layers, ramp, strict=True)}
