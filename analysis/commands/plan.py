"""Planning over seeds and prompts, for ``python -m analysis.power A1 A2 ... --vs B1 B2 ...``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from rich.table import Table
from scipy import special

from analysis.comparison.seed_study import SeedComparison
from analysis.errors import DataError, UsageError
from analysis.report.plots import plan as plots
from analysis.report.plots import style
from analysis.report.terminal import terminal
from analysis.runlog.writing import write_atomic
from analysis.stats.planning import Design, Plan, Spread, plan
from analysis.wording import counted, number

#: Numbers of seeds shown in the table, in addition to the cheapest and its neighbours.
_SHOWN = {5, 6, 8, 10, 12, 15, 20, 30, 50, 100, 200, 500, 1000}
#: Probability that the spread of seeds lies above (and below) its interval.
_TAIL = 0.1


def carry_out(study: SeedComparison, args: argparse.Namespace) -> None:
    """Print the plan for ``args.effect`` and, with ``args.out``, write its figure."""
    overall = study.overall
    if overall.parts is None or overall.parts.total <= 0:
        raise DataError(
            "the pilot has no variance to plan from: planning requires two trainings of an arm, six clusters of "
            "prompts, and differences that vary"
        )
    e = overall.estimate
    spread = Spread.of(overall.parts, overall.seeds, e.n_clusters, e.n_pairs)
    lower, upper = _of_seeds_between(spread, overall.seeds)
    cheapest_plan, wider = (_plan(s, study, args) for s in (spread, replace(spread, of_seeds=upper)))
    console = terminal()
    console.print(_table(cheapest_plan))
    unit = e.estimand.unit
    lines = [
        f"Designs that detect a difference of {args.effect:g} {unit} in {e.estimand.name} with probability "
        f"{args.power:g} at p < 0.05 over seeds and prompts.",
        f"Pilot: {len(study.runs_a)} and {len(study.runs_b)} trainings, {e.n_pairs:,} prompts in {e.n_clusters:,} "
        f"clusters ({overall.parts.effective:.1f} effective). Standard deviation of a difference between seeds "
        f"{number(spread.of_seeds**0.5)} (80% interval {number(lower**0.5)} to {number(upper**0.5)}), between clusters "
        f"{number(spread.of_clusters**0.5)}, of both together {number(spread.of_both**0.5)}.",
        f"Cheapest: {_in_words(cheapest_plan)}",
        f"At the upper end of the spread of seeds: {_in_words(wider)}",
    ]
    if args.out is not None:
        pilot = (round(overall.seeds), e.n_pairs)
        lines.append(f"figure: {_write(plots.draw_plan(cheapest_plan, pilot, unit), args.out)}")
    for line in lines:
        console.print(line, soft_wrap=True)


def _plan(spread: Spread, study: SeedComparison, args: argparse.Namespace) -> Plan:
    fixed = int(study.overall.design == "one run")
    costs = {"cost_training": args.cost_training, "cost_prompt": args.cost_prompt}
    return plan(spread, args.effect, **costs, trained=2 - fixed, fixed=fixed, power=args.power)


def _of_seeds_between(spread: Spread, seeds: float) -> tuple[float, float]:
    """80% interval of the variance between seeds, whose estimate with the residual is chi-squared."""
    df, residual = spread.df_seeds * (seeds - 1), spread.of_both / spread.clusters
    both = spread.of_seeds + residual
    bounds = (df * both / float(special.chdtri(df, tail)) - residual for tail in (_TAIL, 1 - _TAIL))
    lower, upper = (max(bound, 0.0) for bound in bounds)
    return lower, upper


def _in_words(planned: Plan) -> str:
    best = planned.cheapest
    if best is None:
        return "no design with up to 1,000 seeds detects it."
    return (
        f"{counted(best.seeds, 'seed')} per arm and {counted(best.prompts, 'prompt')} in "
        f"{counted(best.clusters, 'cluster')}, cost {best.cost:,.6g} ({best.trainings_cost:,.6g} for trainings, "
        f"{best.prompts_cost:,.6g} for prompts)."
    )


def _table(planned: Plan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for header in ("seeds per arm", "prompts", "clusters", "trainings cost", "prompts cost", "cost", "power"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    for d in planned.designs:
        if _shown(d, planned.cheapest):
            cells = [f"{d.seeds:,}", f"{d.prompts:,}", f"{d.clusters:,}", f"{d.trainings_cost:,.6g}"]
            cells += [f"{d.prompts_cost:,.6g}", f"{d.cost:,.6g}", number(d.power, 3)]
            table.add_row(*cells, "cheapest" if d == planned.cheapest else "")
    return table


def _shown(design: Design, cheapest: Design | None) -> bool:
    return design.seeds in _SHOWN or (cheapest is not None and abs(design.seeds - cheapest.seeds) <= 1)


def _write(plot: style.Plot, folder: Path) -> Path:
    files: dict[str, bytes | str] = {"png": style.png(plot.figure), "svg": style.svg(plot.figure)}
    files["csv"] = style.csv(plot.data)
    try:
        for kind, data in files.items():
            write_atomic(folder / f"{plot.name}.{kind}", data)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}; choose another folder") from error
    return folder / f"{plot.name}.png"
