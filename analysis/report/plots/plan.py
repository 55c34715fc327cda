"""Figure of a plan: the prompts that each number of seeds requires, and what that costs."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.report.plots.style import ARM_COLOURS, INK, MUTED, WIDTH, Plot, house_style, plain, plain_log
from analysis.stats.planning import Plan

PLAN = "plan"


def draw_plan(plan: Plan, pilot: tuple[int, int], unit: str) -> Plot:
    """``pilot``: seeds per arm and prompts that the variances come from; ``unit`` of the effect."""
    with house_style():
        return _plan(plan, pilot, unit)


def _plan(plan: Plan, pilot: tuple[int, int], unit: str) -> Plot:
    data = pd.DataFrame(
        [(d.seeds, d.prompts, d.clusters, d.trainings_cost, d.prompts_cost, d.cost, d.power) for d in plan.designs],
        columns=["seeds", "prompts", "clusters", "trainings_cost", "prompts_cost", "cost", "power"],
    )
    shown = data[data["cost"] <= 2 * data["cost"].min()] if len(data) else data
    figure = Figure(figsize=(WIDTH, 4.6))
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(shown["seeds"], shown["prompts"], color=INK, linewidth=1.6)
    above.plot(*pilot, "D", color=MUTED, label="pilot")
    below.fill_between(shown["seeds"], 0, shown["trainings_cost"], color="#BBBBBB", linewidth=0, label="trainings")
    below.fill_between(
        shown["seeds"], shown["trainings_cost"], shown["cost"], color="#E3E3E3", linewidth=0, label="prompts"
    )
    below.plot(shown["seeds"], shown["cost"], color=INK, linewidth=1.6)
    if (best := plan.cheapest) is not None:
        above.plot([best.seeds], [best.prompts], "o", color=ARM_COLOURS["B"], label="cheapest")
        below.plot([best.seeds], [best.cost], "o", color=ARM_COLOURS["B"])
        text = f"{best.seeds} seeds, {best.prompts:,} prompts"
        above.annotate(text, (best.seeds, best.prompts), xytext=(6, 8), textcoords="offset points")
    above.set_yscale("log")
    plain_log(above.yaxis)
    below.yaxis.set_major_formatter(FuncFormatter(plain))
    above.set_ylabel("prompts")
    below.set_ylabel("cost")
    below.set_ylim(bottom=0)
    below.set_xlabel("training seeds per arm")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (above, below):
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    caption = (
        f"Prompts required with each number of seeds to detect a difference of {plan.effect:g} {unit} with probability "
        f"{plan.wanted:g} (above), and the cost of both (below)."
    )
    return Plot(PLAN, caption, figure, data)
