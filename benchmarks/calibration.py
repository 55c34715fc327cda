"""Do verdicts and intervals keep their promises? ``python benchmarks/calibration.py [--studies 20000]``.

Simulates studies in which the two arms are the same, or differ by the margin exactly, and counts false verdicts: 5%
are promised, and 5.5% allowed. Simulates studies with a difference that is known, and counts the intervals that hold
it. Where the methods are known to promise too much (few pairs, or few that differ), studies that go wrong without the
caution that says so stay within those 5.5%. Every study goes through the functions that a comparison calls. Prints the
table, writes it to ``reports/validation.md``, and ends with one JSON line.
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

from analysis.errors import Parser, run_command
from analysis.report.markdown import table
from analysis.runlog.writing import write_atomic
from analysis.stats.cluster import Partition
from analysis.stats.estimate import Estimate, of_values
from analysis.stats.families import adjust
from analysis.stats.method import ENOUGH
from analysis.stats.ratio import linearise
from analysis.stats.seeds import crossed
from analysis.wording import ACCEPTED_LENGTH, TAU_POOLED, Verdict

STUDIES = 20_000
MOST_VERDICTS = 0.055
REPORT = Path(__file__).parents[1] / "reports" / "validation.md"

Rng = np.random.Generator
Study = Callable[[Rng], tuple[Sequence[Estimate], float]]  # the estimates that may have a verdict, and the true value


@dataclass(frozen=True)
class Scenario:
    """A way to make studies. ``false``: verdicts that are errors there; ``covers``: bounds that the share of intervals
    holding the truth must keep to, None if intervals are not the point; ``cautions``: codes of which a study that goes
    wrong must carry one, where no share is promised; ``thinned``: one in so many of the studies asked for."""

    name: str
    design: str
    study: Study
    false: tuple[Verdict, ...] = ()
    covers: tuple[float, float] | None = None
    cautions: tuple[str, ...] = ()
    thinned: int = 1


@dataclass(frozen=True)
class Outcome:
    """Shares over all studies, each with its Monte-Carlo standard error; ``unwarned``: studies that went wrong without
    a caution of those that are due."""

    name: str
    design: str
    method: str
    studies: int
    verdicts: float | None
    verdicts_error: float | None
    covered: float | None
    covered_error: float | None
    allowed: tuple[float, float] | None
    cautions: tuple[str, ...]
    unwarned: int
    passed: bool


#: What is false where the arms are the same, and where they differ by the margin.
DIFFERENT, EQUIVALENT = (Verdict.A_BETTER, Verdict.B_BETTER), (Verdict.EQUIVALENT,)


def simulate(scenario: Scenario, studies: int, seed: int) -> Outcome:
    """Run the scenario so many times. A family counts as one study: any false verdict in it is one. Where the interval
    is the point, a study without one does not hold the truth."""
    rng, studies = np.random.default_rng(seed), studies // scenario.thinned
    wrong = covered = unwarned = 0
    method = ""
    for _ in range(studies):
        estimates, truth = scenario.study(rng)
        first = estimates[0]
        method = first.method if first.method != "none" else method
        mistaken = any(e.verdict in scenario.false for e in estimates)
        held = first.lo is not None and first.hi is not None and first.lo <= truth <= first.hi
        warned = any(c.code in scenario.cautions for e in estimates for c in e.cautions)
        wrong += mistaken
        covered += held
        unwarned += (mistaken or (scenario.covers is not None and not held)) and not warned
    share = wrong / studies if scenario.false else None
    coverage = covered / studies if scenario.covers else None
    right = (share is None or share <= MOST_VERDICTS) and (
        coverage is None or scenario.covers is None or scenario.covers[0] <= coverage <= scenario.covers[1]
    )
    errors = [None if p is None else math.sqrt(p * (1 - p) / studies) for p in (share, coverage)]
    return Outcome(
        name=scenario.name,
        design=scenario.design,
        method=method,
        studies=studies,
        verdicts=share,
        verdicts_error=errors[0],
        covered=coverage,
        covered_error=errors[1],
        allowed=scenario.covers,
        cautions=scenario.cautions,
        unwarned=unwarned,
        passed=unwarned <= MOST_VERDICTS * studies if scenario.cautions else right,
    )


# --- how studies are made --------------------------------------------------------------------------------------

SLOTS = 8


def _accepted(rate: float) -> NDArray[np.float64]:
    """Distribution of accepted lengths 1..8 with this rate of acceptance per slot."""
    lengths = np.arange(SLOTS)
    pmf = rate**lengths * np.where(lengths < SLOTS - 1, 1 - rate, 1.0)
    return pmf / pmf.sum()


def _integers(d: NDArray[np.int64], ids: NDArray[np.int64]) -> Estimate:
    return of_values(np.full(d.size, 20), 20 + d, d == 0, ids, ACCEPTED_LENGTH)


def iid(n: int, rate_a: float, rate_b: float) -> Study:
    """Independent accepted lengths of both arms."""
    lengths, ids = np.arange(1, SLOTS + 1), np.arange(n)
    pmf_a, pmf_b = _accepted(rate_a), _accepted(rate_b)
    truth = float(lengths @ pmf_b - lengths @ pmf_a)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        a, b = rng.choice(lengths, n, p=pmf_a), rng.choice(lengths, n, p=pmf_b)
        return [_integers(b - a, ids)], truth

    return study


def two_valued(n: int, values: tuple[int, int], rare: float) -> Study:
    """Differences of the first value, and of the second with probability ``rare``. Many small losses against few large
    gains, mean 0, are what the sign-flip test alone would mistake."""
    ids = np.arange(n)
    truth = (1 - rare) * values[0] + rare * values[1]

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        return [_integers(np.array(values)[(rng.random(n) < rare).astype(int)], ids)], truth

    return study


def rare_kind(n: int, difference: int, rare: float, margin: float) -> Study:
    """Lengths of 1 to 8, the same in both arms but for a rare kind of prompt."""
    lengths, ids, pmf = np.arange(1, SLOTS + 1), np.arange(n), _accepted(0.6)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        differs = rng.random(n) < rare
        a = rng.choice(lengths, n, p=pmf)
        a = np.where(differs, np.minimum(a, SLOTS - difference), a)
        return [
            of_values(a, a + difference * differs, ~differs, ids, ACCEPTED_LENGTH, margin=margin)
        ], difference * rare

    return study


def clustered(sizes: NDArray[np.int64], icc: float) -> Study:
    """Integer differences that clusters of prompts share, intraclass correlation ``icc`` before rounding."""
    index = np.repeat(np.arange(sizes.size), sizes)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        shared = rng.normal(0, 2 * math.sqrt(icc), sizes.size)[index]
        d = np.rint(shared + rng.normal(0, 2 * math.sqrt(1 - icc), index.size)).astype(np.int64)
        return [_integers(d, index)], 0.0

    return study


def ratios(n: int) -> Study:
    """Tokens and steps of long and short answers: prompts differ in level and length, arms only by chance."""
    ids = np.arange(n)

    def study(rng: Rng) -> tuple[Sequence[Estimate], float]:
        level, length = rng.normal(3.5, 0.6, n), rng.lognormal(3, 0.8, n)
        arms = []
        for _ in "ab":
            steps = 1 + rng.poisson(length / level)
            tokens = rng.poisson(np.maximum(level, 1.2) * steps)
            arms.append(linearise(tokens, steps))
        return [of_values(*arms, np.zeros(n, bool), ids, TAU_POOLED)], 0.0

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
_FEW = ("few-units", "skewed", "zero-variance")
SCENARIOS = (
    Scenario("independent prompts", "n = 100, equal arms", iid(100, 0.6, 0.6), DIFFERENT),
    Scenario(
        "skewed differences of mean 0", "n = 100, -1 (75%) and 3 (25%)", two_valued(100, (-1, 3), 0.25), DIFFERENT
    ),
    Scenario("clusters, ICC 0.3", "50 clusters of 10", clustered(np.full(50, 10), 0.3), DIFFERENT),
    Scenario("clusters, ICC 0.7", "50 clusters of 10", clustered(np.full(50, 10), 0.7), DIFFERENT),
    Scenario("few unequal clusters", "20 clusters of 1 to 40, ICC 0.5", clustered(UNEQUAL, 0.5), DIFFERENT),
    Scenario("ratio of sums", "100 prompts, tokens per step", ratios(100), DIFFERENT),
    Scenario("seeds and prompts", "5 seeds, seed part small", seeds(5, 0.05, 0.5), DIFFERENT),
    Scenario("seeds and prompts", "5 seeds, seed part large", seeds(5, 0.3, 0.3), DIFFERENT),
    Scenario("seeds and prompts", "5 seeds, no seed part", seeds(5, 0.0, 0.7), DIFFERENT),
    Scenario("family-wise, Holm", "5 data sets of 60 prompts", family(5, 60), DIFFERENT),
    Scenario("coverage", "n = 100, true difference 0.37", iid(100, 0.6, 0.65), covers=(0.935, 0.96)),
    Scenario("coverage", "n = 700, true difference 0.37", iid(700, 0.6, 0.65), covers=(0.94, 0.96)),
    *(
        Scenario(
            "true difference at the margin, 0.1",
            f"n = {n}, 1 prompt in {kind} differs by {difference}",
            rare_kind(n, difference, 1 / kind, 0.1),
            EQUIVALENT,
            thinned=10,
        )
        for difference, kind in ((5, 50), (7, 70))
        for n in (12, 60, 200, 600)
    ),
    *(
        Scenario(
            "few pairs, very skewed, mean 0",
            f"n = {n}, -1 (7 in 8) and 7 (1 in 8)",
            two_valued(n, (-1, 7), 1 / 8),
            DIFFERENT,
            (0.935, 0.96),
            _FEW,
        )
        for n in (12, 30)
    ),
    Scenario(
        "few that differ", "n = 60, 1 in 60 differs by 1", two_valued(60, (0, 1), 1 / 60), (), (0.935, 0.96), _FEW
    ),
)


# --- the command -----------------------------------------------------------------------------------------------


def _percent(share: float | None, error: float | None) -> str:
    return "—" if share is None or error is None else f"{100 * share:.2f}% ± {100 * error:.2f}"


def rows_of(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """A row per scenario, for people."""
    rows = []
    for o in outcomes:
        allowed = f"{100 * o.allowed[0]:g}% to {100 * o.allowed[1]:g}%" if o.allowed else f"at most {MOST_VERDICTS:.1%}"
        if o.cautions:
            allowed = f"at most {MOST_VERDICTS:.1%} without a caution (here {o.unwarned / o.studies:.1%})"
        shares = _percent(o.verdicts, o.verdicts_error), _percent(o.covered, o.covered_error)
        rows.append((o.name, o.design, o.method, *shares, allowed, "yes" if o.passed else "NO"))
    return rows


HEADERS = ("studies", "design", "method", "a false verdict", "truth in the interval", "allowed", "kept")


def report(outcomes: Sequence[Outcome]) -> str:
    """``reports/validation.md``."""
    most, least = max(o.studies for o in outcomes), min(o.studies for o in outcomes)
    return (
        "# Do verdicts and intervals keep their promises?\n\n"
        f"Simulated studies, {most:,} per row ({least:,} where there is a margin), through the functions that a "
        "comparison calls; shares with their Monte-Carlo standard errors. Where the arms are the same, a verdict that "
        "one is better is false; where they differ by the margin exactly, one that they are equivalent. At most 5% of "
        f"false verdicts are promised and {MOST_VERDICTS:.1%} are allowed here: an approximation (a t over five seeds, "
        "a percentile interval) may cost half a point.\n\n"
        "The last rows are of data for which exact methods promise too much. Studies that go wrong there, by a false "
        "verdict or an interval without the truth, have to carry a caution, but for 5.5% of all studies: few-units "
        f"(fewer than {ENOUGH} that differ), skewed or, where no pair differs, zero-variance.\n\n"
        "Written by `python benchmarks/calibration.py`.\n\n" + table(HEADERS, rows_of(outcomes), numeric=4) + "\n"
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
