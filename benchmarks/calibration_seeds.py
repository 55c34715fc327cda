"""Verdicts over seeds and prompts: ``python benchmarks/calibration_seeds.py [--studies 2000] [--rows 1 2 ...]``.

Simulates crossed studies in which the arms are the same: every training answers every prompt, and seeds, clusters of
prompts, both together, and answers vary. Counts false verdicts (a family of data sets is one study), intervals that
hold the truth, and studies without a verdict by rule; then, with a difference that an oracle who knows the variance
finds in 80% of studies, how often the verdict finds it. ``before``: the same studies under the rules of the first
release (Holm over p of seeds alone, C - 1 degrees of freedom for clusters). Prints the table, writes it to
``reports/validation-seeds.md`` when all rows run in full, and ends with one JSON line.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import special

from analysis.errors import Parser, run_command
from analysis.report.markdown import table
from analysis.runlog.writing import write_atomic
from analysis.stats.cluster import Partition
from analysis.stats.estimate import Estimate
from analysis.stats.families import adjust, holm
from analysis.stats.seeds import FEWEST_SEEDS, crossed
from analysis.wording import ACCEPTED_LENGTH, Verdict

Values = NDArray[np.float64]
STUDIES = 2000
REPORT = Path(__file__).parents[1] / "reports" / "validation-seeds.md"
#: Noncentrality at which a two-sided z test at 5% has a power of 80%.
_FOUND = float(special.ndtri(0.975) + special.ndtri(0.8))


@dataclass(frozen=True)
class Layout:
    """How studies are made: ``sizes`` of clusters of each of ``datasets``; standard deviations of the difference."""

    name: str
    sizes: tuple[int, ...]
    seeds: int
    of_seeds: float
    of_prompts: float
    of_both: float = 0.0
    of_answers: float = 0.5
    datasets: int = 1
    independent: bool = False

    @property
    def clusters(self) -> Partition:
        return Partition(np.repeat(np.arange(len(self.sizes)), self.sizes), len(self.sizes))

    @property
    def variance(self) -> float:
        """Of the mean difference."""
        shares = np.array(self.sizes) / sum(self.sizes)
        alike = float((shares**2).sum())
        per_seed = self.of_seeds**2 + self.of_both**2 * alike + self.of_answers**2 / sum(self.sizes)
        return per_seed * (2 if self.independent else 1) / self.seeds + self.of_prompts**2 * alike

    def draw(self, rng: np.random.Generator) -> tuple[Values, Values]:
        """Both arms on one data set, (seeds, prompts)."""
        index, count = self.clusters.index, len(self.sizes)

        def arm() -> Values:
            values = rng.normal(0, self.of_seeds, (self.seeds, 1)) + rng.normal(0, self.of_both, (self.seeds, count))
            return np.asarray(values[:, index] + rng.normal(0, self.of_answers, (self.seeds, index.size)))

        b = arm() + rng.normal(0, self.of_prompts, count)[index]
        return (arm() if self.independent else np.zeros_like(b)), b


@dataclass(frozen=True)
class Row:
    """Shares of all studies, each a percentage."""

    name: str
    seeds: int
    datasets: int
    clusters: int
    studies: int
    before: float
    false: float
    covered: float
    refused: float
    power: float
    oracle: float


def simulate(layout: Layout, studies: int, seed: int) -> Row:
    """Run so many studies without, and with, a difference."""
    rng, clusters = np.random.default_rng(seed), layout.clusters
    effect = _FOUND * math.sqrt(layout.variance)
    before = wrong = covered = refused = found = oracle = 0
    for _ in range(studies):
        drawn = [layout.draw(rng) for _ in range(layout.datasets)]
        estimates = [_estimate(a, b, clusters, layout) for a, b in drawn]
        wrong += any(_better(e) for e in adjust(estimates))
        before += _before(drawn, clusters, layout)
        first = estimates[0]
        has = first.lo is not None and first.hi is not None
        covered += has and first.lo <= 0 <= first.hi  # type: ignore[operator]
        refused += not has or first.withheld
        if layout.datasets == 1:
            a, b = drawn[0]
            found += _better(_estimate(a, b + effect, clusters, layout))
            oracle += abs(b.mean() + effect - a.mean()) > special.ndtri(0.975) * math.sqrt(layout.variance)
    shares = [100 * count / studies for count in (before, wrong, covered, refused, found, oracle)]
    return Row(layout.name, layout.seeds, layout.datasets, len(layout.sizes), studies, *shares)


def _estimate(a: Values, b: Values, clusters: Partition, layout: Layout) -> Estimate:
    return crossed(a, b, clusters, ACCEPTED_LENGTH, paired=not layout.independent).estimate


def _better(e: Estimate) -> bool:
    return e.verdict in (Verdict.A_BETTER, Verdict.B_BETTER)


def _before(drawn: Sequence[tuple[Values, Values]], clusters: Partition, layout: Layout) -> bool:
    """Whether any data set had a verdict under the first release's rules."""
    if layout.seeds < FEWEST_SEEDS:
        return False
    p_values, excludes = zip(*(_first_release(a, b, clusters, layout.independent) for a, b in drawn), strict=True)
    return any(p < 0.05 and out for p, out in zip(holm(p_values), excludes, strict=True) if p is not None)


def _first_release(a: Values, b: Values, clusters: Partition, independent: bool) -> tuple[float, bool]:
    """p over seeds alone, and whether the crossed interval with C - 1 degrees of freedom excludes 0."""
    blocks = [a, b] if independent else [b - a]
    s, n, count = len(a), a.shape[1], clusters.count
    means = [block.mean(axis=1) for block in blocks]
    of_seeds = [float(m.var(ddof=1)) / s for m in means]
    difference = float(means[-1].mean() - (means[0].mean() if independent else 0))
    profile = b.mean(axis=0) - a.mean(axis=0)
    sums = clusters.sums(profile - profile.mean())
    prompts = count / (count - 1) * float((sums**2).sum()) / n**2
    residual = 0.0
    for block in blocks:
        rest = block - block.mean(axis=1, keepdims=True) - block.mean(axis=0) + block.mean()
        squares = sum(float((clusters.sums(row) ** 2).sum()) for row in rest)
        residual += squares * s * count / ((s - 1) * (count - 1)) / block.size**2
    seeds = sum(of_seeds)
    total = max(seeds, prompts, seeds + prompts - residual)
    df = total**2 / (sum(v**2 for v in of_seeds) / (s - 1) + prompts**2 / (count - 1))
    df_seeds = seeds**2 / (sum(v**2 for v in of_seeds) / (s - 1))
    p = 2 * float(special.stdtr(df_seeds, -abs(difference) / math.sqrt(seeds)))
    return p, abs(difference) > float(special.stdtrit(df, 0.975)) * math.sqrt(total)


_DOMINATED = (96, *[3] * 32)
_UNEQUAL = (2, 3, 4, 6, 8, 12, 20, 30)
_GEOMETRIC = tuple(max(1, int(1.2**k)) for k in range(32))
LAYOUTS = (
    Layout("by data set", (1,) * 60, 5, 0.02, 0.7, datasets=6),
    Layout("by data set, clusters", (13,) * 15, 5, 0.02, 0.7, datasets=6),
    Layout("by data set, no seed variance", (1,) * 60, 5, 0.0, 0.7, datasets=6),
    Layout("by data set, large seed variance", (1,) * 60, 5, 0.5, 0.3, datasets=6),
    Layout("by data set", (1,) * 60, 5, 0.02, 0.7, datasets=12),
    Layout("by data set", (1,) * 60, 8, 0.02, 0.7, datasets=6),
    *(
        Layout(f"{name}, {spread}", sizes, seeds, *sds)
        for name, sizes in (
            ("equal clusters", (10,) * 50),
            ("six clusters", (10,) * 6),
            ("eight unequal clusters", _UNEQUAL),
            ("one cluster of half the prompts", _DOMINATED),
            ("geometric sizes", _GEOMETRIC),
        )
        for spread, sds in (("prompts", (0.02, 0.7)), ("seeds", (0.3, 0.1)), ("all", (0.1, 0.3, 0.3)))
        for seeds in (3, 5, 8)
    ),
    Layout("arms not paired, all", (10,) * 50, 5, 0.1, 0.3, 0.3, independent=True),
    Layout("arms not paired, one cluster of half the prompts", _DOMINATED, 5, 0.02, 0.7, independent=True),
    Layout("three unequal clusters", (5, 8, 47), 5, 0.02, 0.7),
    Layout("four unequal clusters", (3, 8, 19, 29), 5, 0.02, 0.7),
)

HEADERS = (
    "design",
    "seeds",
    "data sets",
    "clusters",
    "false before",
    "false verdicts",
    "truth in interval",
    "no verdict by rule",
    "power",
    "oracle's power",
)


def cells(row: Row) -> tuple[str, ...]:
    """A row for people; power is of single data sets and of enough seeds."""
    shares = [f"{share:.1f}%" for share in (row.before, row.false, row.covered, row.refused)]
    shares[2] = "—" if row.clusters < 6 else shares[2]
    power = [f"{row.power:.1f}%", f"{row.oracle:.1f}%"] if row.datasets == 1 and row.refused < 100 else ["—", "—"]
    return (row.name, str(row.seeds), str(row.datasets), str(row.clusters), *shares, *power)


def report(rows: Sequence[Row]) -> str:
    """``reports/validation-seeds.md``."""
    return (
        "# Verdicts over seeds and prompts\n\n"
        f"{rows[0].studies:,} simulated studies per row, in which the arms are the same: every training answers every "
        "prompt, and seeds, clusters of prompts, both together, or answers vary. A false verdict names a better arm "
        "(of several data sets: on any of them); 5% are promised. *False before*: the same studies under the rules of "
        "the first release. *No verdict by rule*: too few seeds or effective clusters. *Power*: the share of verdicts "
        "for a difference that an oracle who knows the variances finds as often as the last column says.\n\n"
        "Written by `python benchmarks/calibration_seeds.py`.\n\n" + table(HEADERS, map(cells, rows), numeric=9) + "\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/calibration_seeds.py", description="Calibration over seeds and prompts.")
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--rows", type=int, nargs="+", default=range(len(LAYOUTS)), help="numbers of rows, from 0")
    args = parser.parse_args(argv)
    started, rows = time.process_time(), [simulate(LAYOUTS[n], args.studies, n % len(LAYOUTS)) for n in args.rows]
    shown = Table(*HEADERS, box=None)
    for row in rows:
        shown.add_row(*cells(row))
    Console(width=180).print(shown)
    seconds = round(time.process_time() - started, 1)
    if len(rows) == len(LAYOUTS) and args.studies >= STUDIES:
        write_atomic(REPORT, report(rows))
    print(json.dumps({"benchmark": "calibration_seeds", "cpu_s": seconds, "rows": [asdict(row) for row in rows]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
