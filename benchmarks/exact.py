"""Exact inference against resampling, and what a whole comparison costs: ``python benchmarks/exact.py [--fast]``.

* exact bootstrap interval and sign-flip p of 700 paired integers, beside ``scipy.stats.bootstrap(method="BCa",
  n_resamples=10000)`` and ``scipy.stats.permutation_test(n_resamples=10000)``, in one process, turn by turn;
* the exact methods up to n = 20,000;
* ``python -m analysis.compare`` of two runs of 700 prompts with gates, timings, history, report and all figures: CPU
  seconds of the process (user and system), imports included, and the imports alone.

Medians of 5. Prints the tables, and one JSON line last.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from analysis.errors import Parser, run_command
from analysis.stats.exact import bootstrap_mean
from analysis.stats.flips import sign_flip_p

ROOT = Path(__file__).parents[1]
ROUNDS, RESAMPLES, SIZES = 5, 10_000, (100, 700, 3000, 10_000, 20_000)


def drawn(n: int) -> NDArray[np.int64]:
    """Differences of accepted lengths of two arms, blocks of 16."""
    rng = np.random.default_rng(n)
    a, b = (np.minimum(rng.geometric(1 - rate, n), 16) for rate in (0.70, 0.72))
    return (b - a).astype(np.int64)


def cpu(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def mean(x: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    return np.mean(x, axis=axis)


def against_scipy(d: NDArray[np.int64], rounds: int, resamples: int) -> dict[str, float]:
    """Median CPU seconds of each method over interleaved rounds, and the ratio."""
    work: dict[str, Callable[[], object]] = {
        "exact interval and p": lambda: (bootstrap_mean(d).interval(), sign_flip_p(d)),
        "scipy BCa bootstrap": lambda: stats.bootstrap((d,), mean, n_resamples=resamples, method="BCa", rng=0),
        "scipy permutation test": lambda: stats.permutation_test(
            (d,), mean, permutation_type="samples", n_resamples=resamples, vectorized=True, rng=0
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, call in work.items():
            seconds[name].append(cpu(call))
    found = {name: median(times) for name, times in seconds.items()}
    found["ratio"] = (found["scipy BCa bootstrap"] + found["scipy permutation test"]) / found["exact interval and p"]
    return found


def by_size(sizes: Sequence[int], rounds: int) -> dict[int, float]:
    """Median CPU seconds of exact interval and p."""
    found = {}
    for n in sizes:
        d = drawn(n)
        found[n] = median(cpu(lambda d=d: (bootstrap_mean(d).interval(), sign_flip_p(d))) for _ in range(rounds))
    return found


def process_cpu(arguments: Sequence[str], folder: Path) -> float:
    """CPU seconds, user and system, of a Python process with these arguments."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    before = os.times()
    subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def whole_comparison(rounds: int) -> dict[str, float]:
    """Median CPU seconds of the command on two runs of 700 prompts, of its imports, and of the rest."""
    sys.path.insert(0, str(ROOT))
    from tests.analysis.runs import simulated, write_run

    datasets = {"metamath": (400, 200), "orca": (247, 247), "humaneval": (53, 53)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        a, b = simulated(datasets, steps=12)
        for run, prompts, fusion in (("dflash", a, "concat"), ("dyna", b, "gated")):
            timings = [
                {"prompt_id": p["prompt_id"], "mode": mode, "repeat": 0, "order": 0, "prefill_s": 0.1, "decode_s": s}
                | {"draft_s": s / 5, "verify_s": s / 2, "other_s": s / 9, "output_tokens": 1 + len(p["accepted"])}
                for p in prompts
                for mode, s in (("plain", 2.0 + len(p["accepted"]) / 7), ("draft", 1.0 + len(p["accepted"]) / 9))
            ]
            write_run(folder / "runs" / run, prompts, protocol="generate", fusion=fusion, timings=timings)
        imports, whole = [], []
        for _ in range(rounds):
            imports.append(process_cpu(["-c", "import analysis.compare"], folder))
            whole.append(process_cpu(["-m", "analysis.compare", "dflash", "dyna"], folder))
    return {"imports_s": median(imports), "whole_s": median(whole), "rest_s": median(whole) - median(imports)}


def main(argv: Sequence[str] | None = None) -> int:
    """See the module's description."""
    parser = Parser(prog="python benchmarks/exact.py", description="Exact inference against resampling.")
    parser.add_argument("--fast", action="store_true", help="one round with few resamples: only shows that it runs")
    fast = parser.parse_args(argv).fast
    rounds = 1 if fast else ROUNDS
    console = Console()
    compared = against_scipy(drawn(700), rounds, 100 if fast else RESAMPLES)
    table = Table("n = 700, CPU", "ms", box=None)
    for name in list(compared)[:-1]:
        table.add_row(name, f"{1000 * compared[name]:.2f}")
    console.print(table)
    console.print(f"exact methods are {compared['ratio']:.0f} times faster\n")
    sizes = by_size(SIZES[:2] if fast else SIZES, rounds)
    table = Table("exact interval and p, n", "ms", box=None)
    for n, seconds in sizes.items():
        table.add_row(f"{n:,}", f"{1000 * seconds:.1f}")
    console.print(table)
    whole = whole_comparison(rounds)
    console.print(
        f"\nanalysis.compare, 700 prompts with report and figures: {whole['whole_s']:.2f} s of CPU "
        f"(imports {whole['imports_s']:.2f} s)"
    )
    print(json.dumps({"benchmark": "exact", "against_scipy_s": compared, "by_size_s": sizes, "compare": whole}))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command(main))
