"""Prompts and trainings needed to detect an effect: ``python -m analysis.power RUN_A RUN_B --effect 0.1``.

    RUN_A RUN_B --effect E                          prompts, for two runs
    A1 A2 ... --vs B1 B2 ... --effect E             trainings and prompts, for two arms
        --cost-training X --cost-prompt Y

For two runs: the minimum detectable effect (MDE), and the number of prompts that detect ``--effect`` with probability
``--power`` in a two-sided test at 5%, overall and per data set. Both follow from the spread of the paired differences;
prompts are assumed to be of the same kind, in clusters of the same size. For two arms of several trainings: the
cheapest number of trainings and prompts, if a training of an arm costs X and a prompt in a run costs Y; with ``--out``
also as a figure. As in ``python -m analysis.compare`` a run may be a log file.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from analysis import wording
from analysis.commands.log_options import add_log_options, log_options
from analysis.comparison.pairwise import Comparison, compare_runs
from analysis.comparison.question import of_evaluation
from analysis.comparison.seed_study import compare_seeds
from analysis.errors import Parser, UsageError, finite, out_folder
from analysis.importers.direct import open_references
from analysis.report.terminal import terminal
from analysis.stats.estimate import Estimate
from analysis.stats.method import FEWEST
from analysis.stats.sensitivity import POWER, clusters_needed, detectable
from analysis.wording import number

#: Cautions about the estimated spread; other cautions concern the verdict.
_OF_THE_SPREAD = {"single-pair", "few-pairs", "one-cluster", "few-clusters", "few-units", "dominated",
                  "few-differ", "zero-variance", "zero-cluster-error"}  # fmt: skip


def needed(estimate: Estimate, effect: float, power: float = POWER) -> tuple[int, int] | None:
    """(prompts, clusters) that detect ``effect``, with at least FEWEST clusters that differ and as many effective ones;
    None without an estimate of the spread, if fewer differ here, and beyond a billion clusters."""
    if not estimate.se or estimate.n_differ < FEWEST:
        return None
    count = estimate.n_clusters
    effective = float(count) if estimate.method.counts_signs else estimate.n_effective
    fewest = math.ceil(FEWEST * count / min(estimate.n_differ, effective) - 1e-9)
    clusters = clusters_needed(effect, estimate.se, count, effective=effective, power=power, fewest=fewest)
    if clusters is None:
        return None
    return -(-clusters * estimate.n_pairs // estimate.n_clusters), clusters


def tabulate(comparison: Comparison, effect: float, power: float) -> Table:
    """A row for all prompts, then one per data set, each as a test of its own."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("")
    for header in ("pairs", "clusters", "SD of differences", "design effect", "MDE", "prompts needed", "clusters"):
        table.add_column(header, justify="right", no_wrap=True)
    for name, e in (("overall", comparison.overall), *comparison.by_dataset.items()):
        spread = wanted = None
        if e.se:
            spread = (e.se**2 * e.n_pairs / (e.design_effect or 1)) ** 0.5
            wanted = needed(e, effect, power)
        counts = ["—", "—"] if wanted is None else [f"{count:,}" for count in wanted]
        mde = detectable(e.se, e.df, power=power) if e.n_differ >= FEWEST else None
        cells = [number(spread, 3), number(e.design_effect, 2), number(mde, 3), *counts]
        table.add_row(wording.one_line(name), f"{e.n_pairs:,}", f"{e.n_clusters:,}", *cells)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    args = _parser().parse_args(argv)
    _require_sense(args)
    with tempfile.TemporaryDirectory() as folder:
        opened = open_references([*args.runs, *(args.vs or ())], Path(folder), options=log_options(args))
        a, b = opened[: len(args.runs)], opened[len(args.runs) :]
        if args.evaluation is not None:
            (a, b), args.protocol = of_evaluation((a, b), args.evaluation, args.protocol)
        asked = {"protocol": args.protocol, "metric": args.metric}
        if args.vs:
            from analysis.commands import plan  # imports matplotlib, which two runs do not need

            plan.carry_out(compare_seeds(a, b, **asked), args)
        else:
            _show(compare_runs(*a, **asked), args.effect, args.power)
    return 0


def _require_sense(args: argparse.Namespace) -> None:
    """Raises UsageError for values and options that do not go together."""
    if args.effect == 0:
        raise UsageError("--effect must not be 0; to show equivalence, use analysis.compare with --margin")
    if not 0.05 < args.power < 1:
        raise UsageError(f"--power must be between 0.05 and 1, not {args.power}")
    costs = [args.cost_training, args.cost_prompt]
    if not args.vs:
        if len(args.runs) != 2:
            raise UsageError("power requires two runs, or several trainings of two arms: A1 A2 ... --vs B1 B2 ...")
        if args.out is not None or costs != [None, None]:
            raise UsageError("--cost-training, --cost-prompt and --out require --vs")
    elif None in costs or min(costs) < 0 or not sum(costs):
        raise UsageError("--vs requires --cost-training and --cost-prompt: both at least 0, and not both 0")


def _show(comparison: Comparison, effect: float, power: float) -> None:
    console = terminal()
    console.print(tabulate(comparison, effect, power))
    metric = comparison.estimand
    lines = [
        f"Protocol: {comparison.protocol}. Metric: {metric.name}. Prompts needed (same kind, clusters of the same "
        f"size) to detect a difference of {effect:g} {metric.unit} with probability {power:g} at p < 0.05."
    ]
    for name, e in (("overall", comparison.overall), *comparison.by_dataset.items()):
        lines += [f"caution: {wording.one_line(name)}: {c.text}" for c in e.cautions if c.code in _OF_THE_SPREAD]
    for line in lines:
        console.print(line, soft_wrap=True)


def _parser() -> Parser:
    parser = Parser(prog="python -m analysis.power", description="Prompts and trainings needed to detect an effect.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder, address, name under runs/, or log file")
    parser.add_argument(
        "--vs", nargs="+", metavar="RUN", help="trainings of arm B; the runs before --vs are trainings of arm A"
    )
    parser.add_argument("--effect", type=finite, required=True, metavar="TOKENS", help="true difference to detect")
    parser.add_argument(
        "--power", type=finite, default=POWER, metavar="SHARE", help=f"probability of detecting it ({POWER})"
    )
    parser.add_argument(
        "--cost-training", type=finite, metavar="X", help="cost of one training of one arm, in any unit"
    )
    parser.add_argument(
        "--cost-prompt", type=finite, metavar="Y", help="cost of one prompt in one run, in the same unit"
    )
    add_log_options(parser)
    parser.add_argument("--out", type=out_folder, metavar="DIR", help="write the plan's figure to this folder")
    parser.add_argument("--protocol", choices=list(wording.HEADLINES), help="default: the first that all runs have")
    parser.add_argument(
        "--evaluation", metavar="NAME", help="which evaluation, where a run holds several of one protocol"
    )
    parser.add_argument("--metric", choices=wording.METRICS)
    return parser
