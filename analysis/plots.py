"""The figures of a comparison. Each function draws one from a :class:`Comparison`, or gives None if it has no data."""

from __future__ import annotations

from collections.abc import Callable

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis import wording
from analysis.answers import moving
from analysis.comparison import Comparison
from analysis.estimate import Estimate
from analysis.facts import ArmSummary
from analysis.figures import ARM_COLOURS, INK, MUTED, WIDTH, Plot, house_style, settle
from analysis.wording import Verdict, one_line, signed

_VERDICT_COLOURS = {Verdict.B_BETTER: ARM_COLOURS["B"], Verdict.A_BETTER: ARM_COLOURS["A"]}


def draw_all(comparison: Comparison) -> list[Plot]:
    """Every figure that the comparison has data for, in the order of the report."""
    with house_style():
        plots = [plot for draw in _FIGURES.values() if (plot := draw(comparison)) is not None]
    for plot in plots:
        settle(plot.figure)
    return plots


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
    _interval(mean, 0, overall, vertical=True)
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
        _interval(axes, row, estimate)
        bounds = wording.interval(estimate.lo, estimate.hi, 2)
        text = f"{signed(estimate.estimate, 2)}  ({bounds})  n = {estimate.n_pairs:,}"
        axes.text(1.02, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=9)
    axes.axhline(0.5, color=MUTED, linewidth=0.6)
    axes.set_yticks(range(len(estimates)), [_cut(label, 32) for label in labels])
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


def survival(comparison: Comparison) -> Plot | None:
    """P(accepted >= k) by draft position, both arms."""
    curves = {a.side: a.positions.curve for a in (comparison.a, comparison.b) if len(a.positions.curve)}
    if not curves:
        return None
    figure = Figure(figsize=(WIDTH, 3.2))
    axes = figure.subplots()
    for arm in (comparison.a, comparison.b):
        if (curve := curves.get(arm.side)) is not None:
            shift = {"A": -0.06, "B": 0.06}[arm.side]
            colour = ARM_COLOURS[arm.side]
            errors = np.abs(curve[["lo", "hi"]].to_numpy().T - curve["survival"].to_numpy())
            axes.errorbar(
                curve["k"] + shift, curve["survival"], yerr=errors, color=colour, marker="o", markersize=4,
                linewidth=1.4, elinewidth=1, capsize=0, label=_legend(arm),
            )  # fmt: skip
    axes.set_xticks(sorted({k for curve in curves.values() for k in curve["k"]}))
    axes.set_ylim(0, None)
    axes.set_xlabel("draft position k")
    axes.set_ylabel("P(first k draft tokens accepted)")
    axes.legend(loc="upper right")
    data = pd.concat([c.assign(arm=side) for side, c in curves.items()], ignore_index=True)
    caption = (
        "Survival by draft position, with 95% intervals over prompt clusters. Only slots at risk count; at the last "
        "position acceptance is censored: a longer block might have gone on."
    )
    return Plot("survival", caption, figure, data)


def gate_against_norm(comparison: Comparison) -> Plot | None:
    """Gate against feature norm, single tokens and layer means, for the arm whose gate moves (B if both do)."""
    arm = next((a for a in (comparison.b, comparison.a) if moving(a)), None)
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
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("feature norm of the target layer (log scale)")
    axes.set_ylabel(f"gate ({_cut(arm.label, 30)})")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    data = arm.gates.table.assign(arm=arm.side)
    caption = (
        f"Gate against feature norm in {one_line(arm.label)}, {_role(arm.gates.table)} tokens: single tokens (small) "
        "and the mean of each layer (large). Levels of gates are not identified; their ranking is descriptive."
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
                elinewidth=1.4, label=_legend(arm),
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
        steps = curves["step"] + 1
        loss.plot(steps, curves["loss"], color=colour, linewidth=0.5, alpha=0.3)
        smooth = curves["loss"].rolling(1 + len(curves) // 20, center=True, min_periods=1).mean()
        loss.plot(steps, smooth, color=colour, label=_legend(arm))
        for column, style in (("val_accepted_length", "-"), ("val_unseen_accepted_length", "--")):
            measured = curves[column].notna()
            length.plot(steps[measured], curves.loc[measured, column], style, color=colour, marker="o", markersize=3)
    loss.set_ylabel("loss (weighted)")
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


_FIGURES: dict[str, Callable[[Comparison], Plot | None]] = {
    "paired-differences": paired_differences,
    "forest": forest,
    "survival": survival,
    "gate-against-norm": gate_against_norm,
    "contribution-share": contribution_share,
    "training-curves": training_curves,
}
#: File stems of all figures that a report can have.
NAMES = tuple(_FIGURES)


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


def _interval(axes: Axes, at: float, estimate: Estimate, *, vertical: bool = False) -> None:
    colour = _VERDICT_COLOURS.get(estimate.verdict, INK)
    if estimate.estimate is None:
        return
    along, across = [estimate.estimate], [at]
    axes.plot(*((across, along) if vertical else (along, across)), marker="o", markersize=7, color=colour)
    if estimate.lo is not None and estimate.hi is not None:
        ends, same = [estimate.lo, estimate.hi], [at, at]
        axes.plot(*((same, ends) if vertical else (ends, same)), color=colour, linewidth=2.2, solid_capstyle="butt")


def _role(table: pd.DataFrame) -> str:
    """The tokens to show where one panel shows one kind: those of the answer, if there are any."""
    return "answer" if (table["role"] == "answer").any() else str(table["role"].iloc[0])


def _layer_colours(layers: pd.Index) -> dict[int, tuple[float, float, float, float]]:
    ramp = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.92, len(layers)))
    return {int(layer): tuple(colour) for layer, colour in zip(layers, ramp, strict=True)}


def _legend(arm: ArmSummary) -> str:
    return f"{arm.side}: {_cut(arm.label, 40)}"


def _cut(text: str, at_most: int) -> str:
    text = one_line(text)
    return text if len(text) <= at_most else text[: at_most - 1] + "…"
