"""How many prompts does an effect want? ``python -m analysis.power RUN_A RUN_B --effect 0.1``.

Takes the spread of the paired differences, and how prompts cluster, from two runs at hand, and says for all prompts
and per data set: what difference they could have shown (MDE), and how many prompts of the same kind, in clusters of
the same size, show ``--effect`` with probability ``--power`` in a two-sided test at 5%. As in
``python -m analysis.compare`` a run may be a log file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from analysis import wording
from analysis.comparison.pairwise import Comparison, compare_runs
from analysis.errors import Parser, UsageError, finite
from analysis.importers.direct import open_references
from analysis.report.terminal import terminal
from analysis.stats.estimate import Estimate
from analysis.stats.inference import FEWEST
from analysis.stats.sensitivity import POWER, clusters_needed, detectable
from analysis.wording import number

#: Cautions about what the spread is taken from; others are about the verdict.
_OF_THE_SPREAD = {"single-pair", "few-pairs", "one-cluster", "few-clusters", "few-clusters-t", "few-differ",
                  "zero-variance", "zero-cluster-error"}  # fmt: skip


def needed(estimate: Estimate, effect: float, power: float = POWER) -> tuple[int, int] | None:
    """(prompts, clusters) that find ``effect``, enough for FEWEST clusters that differ; None without a spread to go by
    or where fewer differ here, and beyond a billion clusters."""
    if not estimate.se or estimate.n_differ < FEWEST:
        return None
    fewest = -(-FEWEST * estimate.n_clusters // estimate.n_differ)
    clusters = clusters_needed(effect, estimate.se, estimate.n_clusters, power=power, fewest=fewest)
    if clusters is None:
        return None
    return -(-clusters * estimate.n_pairs // estimate.n_clusters), clusters


def tabulate(comparison: Comparison, effect: float, power: float) -> Table:
    """A row for all prompts, then one per data set, each as a test of its own."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("")
    for header in ("pairs", "clusters", "SD of differences", "design effect", "MDE", "prompts wanted", "clusters"):
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
    if args.effect == 0:
        raise UsageError("--effect 0 wants no prompts; to show that there is no difference, state a --margin instead")
    if not 0.05 < args.power < 1:
        raise UsageError(f"--power is a share between 0.05 and 1, not {args.power}")
    with tempfile.TemporaryDirectory() as folder:
        a, b = open_references([args.run_a, args.run_b], Path(folder))
        comparison = compare_runs(a, b, protocol=args.protocol, metric=args.metric)
    console = terminal()
    console.print(tabulate(comparison, args.effect, args.power))
    metric = comparison.estimand
    lines = [
        f"Protocol: {comparison.protocol}. Metric: {metric.name}. Wanted: prompts of the same kind, in clusters of the "
        f"same size, to find a difference of {args.effect:g} {metric.unit} with probability {args.power:g} at p < 0.05."
    ]
    for name, e in (("overall", comparison.overall), *comparison.by_dataset.items()):
        lines += [f"caution: {wording.one_line(name)}: {c.text}" for c in e.cautions if c.code in _OF_THE_SPREAD]
    for line in lines:
        console.print(line, soft_wrap=True)
    return 0


def _parser() -> Parser:
    parser = Parser(prog="python -m analysis.power", description="Prompts that a given effect wants.")
    parser.add_argument("run_a", metavar="RUN_A", help="run folder, address, name under runs/, or log file")
    parser.add_argument("run_b", metavar="RUN_B")
    parser.add_argument("--effect", type=finite, required=True, metavar="TOKENS", help="true difference to be found")
    parser.add_argument(
        "--power", type=finite, default=POWER, metavar="SHARE", help=f"probability to find it ({POWER})"
    )
    parser.add_argument("--protocol", choices=list(wording.HEADLINES), help="default: the first that both runs have")
    parser.add_argument("--metric", choices=[e.key for es in wording.HEADLINES.values() for e in es])
    return parser
