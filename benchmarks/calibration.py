"""Do verdicts and intervals keep their promises? ``python benchmarks/calibration.py [--studies 20000]``.

Simulates studies in which the two arms are the same, and counts verdicts: at most 5.5% may have one. Simulates
studies with a difference that is known, and counts the intervals that hold it. Every study goes through the functions
that a comparison calls. Prints the table, writes it to ``reports/validation.md``, and ends with one JSON line.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from analysis.cluster import Partition
from analysis.errors import Parser, run_command
from analysis.estimate import Estimate, of_values
from analysis.families import adjust
from analysis.markdown import table
from analysis.ratio import linearise
from analysis.run_writer import write_atomic
from analysis.seeds import crossed
from analysis.wording import ACCEPTED_LENGTH, TAU_POOLED, Verdict

STUDIES = 20_000
MOST_VERDICTS = 0.055
REPORT = Path(__file__).parents[1] / "reports" / "validation.md"

Rng = np.random.Generator
Study = Callable[[Rng], tuple[Sequence[Estimate], float]]  # the estimates that may have a verdict, and the true value


@dataclass(frozen=True)
class Scenario:
    """A way to make studies. ``covers``: bounds that the share of intervals holding the truth must keep to, None if
    intervals are not the point; ``null``: whether the arms are the same, so that a verdict is an error."""

    name: str
    design: str
    study: Study
    null: bool
    covers: tuple[float, float] | None = None


@dataclass(frozen=True)
class Outcome:
    """Shares over all studies, each with its Monte-Carlo standard error."""

    name: str
    design: str
    method: str
    studies: int
    verdicts: float | None
    verdicts_error: float | None
    covered: float | None
    covered_error: float | None
    allowed: tuple[float, float] | None
    passed: bool


def simulate(scenario: Scenario, studies: int, seed: int) -> Outcome:
    """Run the scenario so many times. A family counts as one study: any verdict in it is a verdict."""
    rng = np.random.default_rng(seed)
    verdicts = covered = intervals = 0
    method = ""
    for _ in range(studies):
        estimates, truth = scenario.study(rng)
        verdicts += any(e.verdict in (Verdict.A_BETTER, Verdict.B_BETTER) for e in estimates)
        for e in estimates[:1]:
            method = e.method
            intervals += e.lo is not None
            covered += e.lo is not None and e.hi is not None and e.lo <= truth <= e.hi
    share = verdicts / studies if scenario.null else None
    coverage = covered / intervals if scenario.covers else None
    right = (share is None or share <= MOST_VERDICTS) and (
        coverage is None or scenario.covers is None or scenario.covers[0] <= coverage <= scenario.covers[1]
    )
    errors = [None if p is None else math.sqrt(p * (1 - p) / studies) for p in (share, coverage)]
    return Outcome(
        scenario.name, scenario.design, method, studies, share, errors[0], coverage, errors[1], scenario.covers, right
    )


# --- how studies are made --------------------------------------------------------------------------------------

SLOTS = 8


def _accepted(rate: float) -> NDArray[np.float64]:
    """Distribution of accepted lengths 1..8 with this rate of acceptance per slot."""
    lengths = np.arange(SLOTS)
    pmf = rate**lengths * np.where(lengths < SLOTS - 1, 1 - rate, 1.0)
    return pmf / pmf.sum()


def _singles(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def _integers(d: NDArray[np.int64], ids: Sequence[str]) -> Estimate:
    return of_values(np.full(d.size, 20), 20 + d, d == 0, ids, ACCEPTED_LENGTH)


def iid(n: int, rate_a: float, rate_b: float) -> Study:
    """Independent accepted lengths of both arms."""
    lengths, ids = np.arange(1, SLOTS + 1), _singles(n)
    pmf_a, pmf_b = _accepted(rate_a), _accepted(rate_b)
    truth = float(lengths @ pmf_b - lengths @ pmf_a)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        a, b = rng.choice(lengths, n, p=pmf_a), rng.choice(lengths, n, p=pmf_b)
        return [_integers(b - a, ids)], truth

    return study


def skewed(n: int) -> Study:
    """Many small losses against few large gains, mean 0: what the sign-flip test alone would mistake."""
    ids = _singles(n)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        return [_integers(rng.choice([-1, 3], n, p=[0.75, 0.25]), ids)], 0.0

    return study


def clustered(sizes: NDArray[np.int64], icc: float) -> Study:
    """Integer differences that clusters of prompts share, intraclass correlation ``icc`` before rounding."""
    index = np.repeat(np.arange(sizes.size), sizes)
    ids = [str(i) for i in index]

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        shared = rng.normal(0, 2 * math.sqrt(icc), sizes.size)[index]
        d = np.rint(shared + rng.normal(0, 2 * math.sqrt(1 - icc), index.size)).astype(np.int64)
        return [_integers(d, ids)], 0.0

    return study


def ratios(n: int) -> Study:
    """Tokens and steps of long and short answers: prompts differ in level and length, arms only by chance."""
    ids = _singles(n)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        level, length = rng.normal(3.5, 0.6, n), rng.lognormal(3, 0.8, n)
        arms = []
        for _ in "ab":
            steps = 1 + rng.poisson(length / level)
            tokens = rng.poisson(np.maximum(level, 1.2) * steps)
            arms.append(linearise(tokens, steps))
        return [of_values(arms[0], arms[1], np.zeros(n, bool), ids, TAU_POOLED)], 0.0

    return study


def seeds(count: int, of_seeds: float, of_prompts: float) -> Study:
    """Paired trainings over 50 clusters of 10 prompts."""
    clusters = Partition(np.repeat(np.arange(50), 10), 50)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        d = rng.normal(0, of_seeds, (count, 1)) + rng.normal(0, of_prompts, 50)[clusters.index]
        d = d + rng.normal(0, 1, (count, 500))
        return [crossed(np.zeros_like(d), d, clusters, ACCEPTED_LENGTH, paired=True).estimate], 0.0

    return study


def family(datasets: int, n: int) -> Study:
    """Five data sets with Holm: any verdict is a family-wise error."""
    one = iid(n, 0.6, 0.6)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        return adjust([one(rng)[0][0] for _ in range(datasets)]), 0.0

    return study


UNEQUAL = np.array([1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 25, 30, 40])
SCENARIOS = (
    Scenario("independent prompts", "n = 100, equal arms", iid(100, 0.6, 0.6), null=True),
    Scenario("skewed differences of mean 0", "n = 100, -1 (75%) and 3 (25%)", skewed(100), null=True),
    Scenario("clusters, ICC 0.3", "50 clusters of 10", clustered(np.full(50, 10), 0.3), null=True),
    Scenario("clusters, ICC 0.7", "50 clusters of 10", clustered(np.full(50, 10), 0.7), null=True),
    Scenario("few unequal clusters", "20 clusters of 1 to 40, ICC 0.5", clustered(UNEQUAL, 0.5), null=True),
    Scenario("ratio of sums", "100 prompts, tokens per step", ratios(100), null=True),
    Scenario("seeds and prompts", "5 seeds, seed part small", seeds(5, 0.05, 0.5), null=True),
    Scenario("seeds and prompts", "5 seeds, seed part large", seeds(5, 0.3, 0.3), null=True),
    Scenario("seeds and prompts", "5 seeds, no seed part", seeds(5, 0.0, 0.7), null=True),
    Scenario("family-wise, Holm", "5 data sets of 60 prompts", family(5, 60), null=True),
    Scenario("coverage", "n = 100, true difference 0.37", iid(100, 0.6, 0.65), null=False, covers=(0.935, 0.96)),
    Scenario("coverage", "n = 700, true difference 0.37", iid(700, 0.6, 0.65), null=False, covers=(0.94, 0.96)),
)


# --- the command -----------------------------------------------------------------------------------------------


def _percent(share: float | None, error: float | None) -> str:
    return "—" if share is None or error is None else f"{100 * share:.2f}% ± {100 * error:.2f}"


def rows_of(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """A row per scenario, for people."""
    rows = []
    for o in outcomes:
        allowed = f"{100 * o.allowed[0]:g}% to {100 * o.allowed[1]:g}%" if o.allowed else f"at most {MOST_VERDICTS:.1%}"
        shares = _percent(o.verdicts, o.verdicts_error), _percent(o.covered, o.covered_error)
        rows.append((o.name, o.design, o.method, *shares, allowed, "yes" if o.passed else "NO"))
    return rows


HEADERS = ("studies", "design", "method", "a verdict", "truth in the interval", "allowed", "kept")


def report(outcomes: Sequence[Outcome]) -> str:
    """``reports/validation.md``."""
    return (
        "# Do verdicts and intervals keep their promises?\n\n"
        f"Simulated studies, {outcomes[0].studies:,} per row, through the functions that a comparison calls; shares "
        "with their Monte-Carlo standard errors. Where the arms are the same, a verdict is an error. Written by "
        "`python benchmarks/calibration.py`.\n\n" + table(HEADERS, rows_of(outcomes), numeric=4) + "\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/calibration.py", description="Calibration of verdicts and intervals.")
    parser.add_argument("--studies", type=int, default=STUDIES)
    args = parser.parse_args(argv)
    started = time.process_time()
    outcomes = [simulate(scenario, args.studies, seed) for seed, scenario in enumerate(SCENARIOS)]
    shown = Table(*HEADERS, box=None)
    for row in rows_of(outcomes):
        shown.add_row(*row)
    Console(width=160).print(shown)
    if args.studies >= STUDIES:
        write_atomic(REPORT, report(outcomes))
    seconds = round(time.process_time() - started, 1)
    print(json.dumps({"benchmark": "calibration", "cpu_s": seconds, "outcomes": [asdict(o) for o in outcomes]}))
    return 0 if all(o.passed for o in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(run_command(main))
