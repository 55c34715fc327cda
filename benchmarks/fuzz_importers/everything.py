"""All formats, the run over them, and its page."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.fuzz_importers import damage, documents, formats, lines, tables, totals
from benchmarks.fuzz_importers.declared import OUTCOMES, Cases, judge


def cases(rng: Random) -> Cases:
    """Every pair of format and mutation once."""
    for form in (*formats.FORMATS, *documents.FORMATS, *tables.FORMATS):
        yield from damage.cases_of(form, rng)
    yield from lines.cases_of(rng)
    for total in totals.TOTALS:
        yield from totals.cases_of(total, rng)


def fuzz(most: int, seed: int = 1) -> tuple[Counter[tuple[str, str, str]], list[str]]:
    """(how often each outcome, by format and mutation; the faults) of ``most`` logs or some more."""
    found: Counter[tuple[str, str, str]] = Counter()
    faults = []
    rng = Random(seed)
    memory = Path("/dev/shm")  # a log is read several times
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        while found.total() < most:
            for case in cases(rng):
                try:
                    outcome = judge(Path(folder) / f"log{case.suffix}", case)
                except Exception as error:
                    outcome = f"{type(error).__name__}: {error}"
                if outcome not in OUTCOMES:
                    faults.append(f"{case.form}, {case.mutation}: {outcome}")
                    outcome = "FAULT"
                found[case.form, case.mutation, outcome] += 1
    return found, faults


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the outcomes by format and mutation; exit 1 for a fault."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_importers", description=__doc__)
    parser.add_argument("n", nargs="?", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    start = time.perf_counter()
    found, faults = fuzz(args.n, args.seed)
    pairs = sorted({(form, mutation) for form, mutation, _ in found})
    print("| format | mutation | outcomes |\n|---|---|---|")
    for form, mutation in pairs:
        outcomes = {o: n for (f, m, o), n in sorted(found.items()) if (f, m) == (form, mutation)}
        print(f"| {form} | {mutation} | {', '.join(f'{outcome} {n:,}' for outcome, n in outcomes.items())} |")
    print(
        f"\n{found.total():,} logs of {len(pairs)} pairs of format and mutation, {len(faults)} faults, seed {args.seed}"
    )
    for fault in faults[:20]:
        print(f"fault: {fault}")
    print(f"{time.perf_counter() - start:.0f} s")
    return int(bool(faults))
