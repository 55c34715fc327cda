"""The test that may be repeated, beside the fixed one: ``python benchmarks/sequential.py [--studies 300]``.

Studies of 640 prompts with integer differences like those of first blocks (two thirds ties), without a difference and
with one that the fixed test finds in 80% of studies. Prints the share of studies with a verdict: of the fixed test on
all prompts; of the fixed test repeated after every 20 prompts, which is not valid; and of betting
(:mod:`analysis.stats.sequential`) after every prompt, with the median number of prompts until it decides. Ends with one
JSON line.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import special

from analysis.errors import Parser, run_command
from analysis.stats.sequential import sequential

N, EVERY, BLOCK = 640, 20, 8
VALUES, SHARES = np.array([-3, -1, 0, 1, 3]), np.array([0.06, 0.11, 0.66, 0.11, 0.06])


@dataclass(frozen=True)
class Outcome:
    """Shares of studies with a verdict; ``prompts``: median number until betting decides, None if it never does."""

    difference: float
    fixed: float
    repeated: float
    betting: float
    prompts: float | None


def simulate(difference: float, studies: int, seed: int) -> Outcome:
    """Studies with this mean difference, in tokens."""
    rng = np.random.default_rng(seed)
    fixed, repeated, decided = [], [], []
    for _ in range(studies):
        d = rng.choice(VALUES, N, p=SHARES) + (rng.random(N) < difference)
        d = np.clip(d, 1 - BLOCK, BLOCK - 1)
        looks = _rejects(d)
        fixed.append(bool(looks[-1]))
        repeated.append(bool(looks[EVERY - 1 :: EVERY].any()))
        decided.append(sequential(d, BLOCK - 1).decided_at)
    when = [n for n in decided if n is not None]
    median = float(np.median(when)) if when else None
    return Outcome(difference, float(np.mean(fixed)), float(np.mean(repeated)), len(when) / studies, median)


def _rejects(d: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) whether a t test over the first n differences rejects a mean of 0."""
    n = np.arange(1, d.size + 1)
    mean = np.cumsum(d) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (np.cumsum(d**2) - n * mean**2) / (n - 1)
        return np.asarray(np.abs(mean) > special.stdtrit(n - 1, 0.975) * np.sqrt(variance / n))


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/sequential.py", description="Betting beside the fixed test.")
    parser.add_argument("--studies", type=int, default=300)
    args = parser.parse_args(argv)
    started = time.process_time()
    spread = math.sqrt(float((VALUES**2 * SHARES).sum()))
    found_by_fixed = float(special.ndtri(0.975) + special.ndtri(0.8)) * spread / math.sqrt(N)
    outcomes = [simulate(x, args.studies, i) for i, x in enumerate((0.0, found_by_fixed, 2 * found_by_fixed))]
    table = Table("difference", "fixed test", "fixed, repeated", "betting", "median prompts", box=None)
    for o in outcomes:
        when = "—" if o.prompts is None else f"{o.prompts:.0f}"
        table.add_row(f"{o.difference:.3f}", *(f"{100 * x:.1f}%" for x in (o.fixed, o.repeated, o.betting)), when)
    Console(width=120).print(table)
    seconds = round(time.process_time() - started, 1)
    print(json.dumps({"benchmark": "sequential", "cpu_s": seconds, "outcomes": [asdict(o) for o in outcomes]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
