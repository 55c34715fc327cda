"""Several files as one run: parts of ranks, one file per data set, the conditions of a trace side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.errors import DataError, UsageError
from analysis.importers import specbench
from analysis.importers.model import MOST_SAMPLES, Imported, last_of_each
from analysis.importers.registry import Options, read_file
from analysis.importers.reruns import last_runs
from analysis.importers.source import Problem
from analysis.importers.totals import distinct
from analysis.wording import counted

#: How a manifest's caveat on rows that were left out is known.
LEFT_OUT = "of the log left out"
_REASONS = 3
_PARTICULARS = re.compile(r"'[^']*'|\d+|(?<=prompt )\S+|(?<=question )\S+")


@dataclass(frozen=True)
class Collected:
    """What files hold together. ``problems``: (file name, row left out)."""

    runs: Sequence[Imported]
    problems: Sequence[tuple[str, Problem]]
    files: Sequence[str]

    def caveats(self) -> list[str]:
        """What a manifest keeps about the rows that were left out: how many for each of the most usual reasons, which
        are one but for their numbers and names."""
        if not self.problems:
            return []
        alike: dict[str, list[str]] = {}
        for name, problem in self.problems:
            alike.setdefault(_PARTICULARS.sub("", problem.reason), []).append(f"{name}, {problem}")
        usual = sorted(alike.values(), key=len, reverse=True)
        told = [f"{len(some):,} as {some[0]}" for some in usual[:_REASONS]]
        told += [f"{sum(map(len, usual[_REASONS:])):,} for other reasons"] if usual[_REASONS:] else []
        return [f"{counted(len(self.problems), 'row')} {LEFT_OUT}: {'; '.join(told)}"]


def collect(paths: Sequence[Path | str], options: Options | None = None, *, strict: bool = False) -> Collected:
    """Read files as one run, or one run per condition.

    Raises UsageError for files of different arms, DataError for files that cannot be read, and under ``strict`` for
    any row left out.
    """
    merged: dict[tuple[str, str | None], Imported] = {}
    origins: dict[tuple[str, str | None], list[str]] = {}  # file names of a run's aggregates
    problems: list[tuple[str, Problem]] = []
    for path in paths:
        name = Path(path).name
        _, found = read_file(path, options)
        problems += [(name, problem) for problem in found.problems]
        for run in found.runs:
            # files that name no arm of their own (their label is the file's name) are parts of one
            key = (run.format, run.variant)
            origins.setdefault(key, []).extend([name] * len(run.aggregates))
            before = merged.get(key)
            if before is None:
                merged[key] = run
                continue
            again: list[Problem] = []
            merged[key] = _merge(before, run, again)
            problems += [(name, problem) for problem in again]
    if len({run.format for run in merged.values()}) > 1:
        formats = ", ".join(sorted({run.format for run in merged.values()}))
        raise UsageError(f"files of different formats ({formats}); import each kind into a run of its own")
    if strict and problems:
        name, problem = problems[0]
        raise DataError(f"{name}: {len(problems)} rows cannot be used, and --strict allows none; the first: {problem}")
    runs = [
        _with_small_samples(replace(run, aggregates=distinct(run.aggregates, origins[key])))
        for key, run in merged.items()
    ]
    return Collected(runs, problems, [Path(path).name for path in paths])


def _with_small_samples(run: Imported) -> Imported:
    """The run with its samples numbered, where they are called by seeds that the run format cannot hold."""
    seeds = sorted({r.sample for r in run.responses})
    if not seeds or seeds[-1] <= MOST_SAMPLES:
        return run
    number = {seed: i for i, seed in enumerate(seeds)}
    note = f"seeds over {MOST_SAMPLES:,}: samples are numbered in the order of their seeds, and pairs join by number"
    responses = [replace(r, sample=number[r.sample]) for r in run.responses]
    return replace(run, responses=responses, notes=[*run.notes, note])


def _merge(a: Imported, b: Imported, problems: list[Problem]) -> Imported:
    named = [run for run in (a, b) if run.counting != a.counting or run.target != a.target]
    if named:
        what = "count differently" if b.counting != a.counting else f"have targets {a.target} and {b.target}"
        raise UsageError(f"two files that {what} are no parts of one run; import each by itself")
    if a.label != b.label and a.format.startswith(("Spec-Bench", "CC-DFlash")):
        raise UsageError(f"files of two arms, {a.label} and {b.label}; import each by itself")
    if a.format == specbench.NAME:
        responses, again = last_runs([*a.responses, *b.responses])
    else:
        responses, again = last_of_each([*a.responses, *b.responses], problems), []
    return replace(
        a,
        responses=responses,
        aggregates=[*a.aggregates, *b.aggregates],
        mode=a.mode if a.mode == b.mode else "draft",
        notes=list(dict.fromkeys([*a.notes, *b.notes, *again])),
        unknown=list(dict.fromkeys([*a.unknown, *b.unknown])),
    )
