"""Several files as one run: parts of ranks, one file per data set, the conditions of a trace side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os.path import commonpath
from pathlib import Path

from analysis.errors import DataError, UsageError
from analysis.importers.model import MOST_SAMPLES, Found, Imported, Response
from analysis.importers.reasons import by_reason
from analysis.importers.registry import Options, read_file
from analysis.importers.source import Kind, Problem
from analysis.importers.totals import distinct
from analysis.wording import counted

#: How a manifest's caveat on rows that were left out is known.
LEFT_OUT = "of the log left out"
_KINDS: dict[Kind, str] = {
    "invalid": "invalid",
    "unrelated": "not a record",
    "cut off": "cut off",
    "failed": "failed request",
    "no steps": "no verification step",
    "run again": "run again",
}


@dataclass(frozen=True)
class Collected:
    """What files hold together. ``problems``: (file name, row left out)."""

    runs: Sequence[Imported]
    problems: Sequence[tuple[str, Problem]]
    files: Sequence[str]

    def caveats(self) -> list[str]:
        """What a manifest keeps about the rows that were left out, by kind."""
        found = []
        for kind, what in _KINDS.items():
            some = [(name, problem) for name, problem in self.problems if problem.kind == kind]
            if some:
                found.append(f"{counted(len(some), 'row')} {LEFT_OUT} ({what}): {by_reason(some)}")
        return found


def collect(
    paths: Sequence[Path | str],
    options: Options | None = None,
    *,
    strict: bool = False,
) -> Collected:
    """Read files as one run, or one run per condition.

    Raises UsageError for files of different arms, DataError for files that cannot be read or of whose records more
    than ``options.most_invalid`` cannot be used, for ids that occur in several files, and under ``strict`` for any
    row left out.
    """
    options = options or Options()
    names = _distinct_names(paths)
    merged: dict[tuple[str, str | None], Imported] = {}
    origins: dict[tuple[str, str | None], list[str]] = {}  # file names of a run's aggregates
    problems: list[tuple[str, Problem]] = []
    for path, name in zip(paths, names, strict=True):
        _, found = read_file(path, options)
        require_usable(str(path), found, options.most_invalid)
        problems += [(name, problem) for problem in found.problems]
        for run in found.runs:
            if len(paths) > 1:
                run = replace(run, responses=[_placed_in(name, r) for r in run.responses])
            # files that name no arm of their own (their label is the file's name) are parts of one
            key = (run.format, run.variant)
            origins.setdefault(key, []).extend([name] * len(run.aggregates))
            before = merged.get(key)
            if before is None:
                merged[key] = run
                continue
            merged[key] = _merge(before, run, name)
    if len({run.format for run in merged.values()}) > 1:
        formats = ", ".join(sorted({run.format for run in merged.values()}))
        raise UsageError(f"files of different formats ({formats}); import each kind into a run of its own")
    if strict and problems:
        name, problem = problems[0]
        raise DataError(f"{name}: {len(problems)} rows cannot be used, and --strict allows none; the first: {problem}")
    runs = [replace(run, aggregates=distinct(run.aggregates, origins[key])) for key, run in merged.items()]
    for run in runs:
        _require_small_samples(run)
    return Collected(runs, problems, names)


def require_usable(path: str, found: Found, most_invalid: float) -> None:
    """Raises DataError if more than this share of a file's records cannot be used, with the reasons counted."""
    invalid = [("", problem) for problem in found.invalid]
    total = len(invalid) + found.records
    if len(invalid) > most_invalid * total:
        raise DataError(
            f"{path}: {len(invalid):,} of {total:,} records cannot be used, more than {100 * most_invalid:g}% "
            f"(--max-bad SHARE allows more): {by_reason(invalid)}"
        )


def _distinct_names(paths: Sequence[Path | str]) -> list[str]:
    """The files' names, with as much of their folders as tells them apart."""
    files = [Path(path) for path in paths]
    if len({file.name for file in files}) == len(files):
        return [file.name for file in files]
    top = commonpath([file.absolute().parent for file in files])
    return [str(file.absolute().relative_to(top)) for file in files]


def _placed_in(file: str, response: Response) -> Response:
    """The response with the file in its id, where that is its place in the file."""
    return replace(response, prompt_id=f"{file}, {response.prompt_id}") if response.placed else response


def _require_small_samples(run: Imported) -> None:
    """Raises DataError for samples that are named by seeds which the run format cannot hold: numbered by their order
    they would be paired with samples of other seeds."""
    if big := next((r for r in run.responses if r.sample > MOST_SAMPLES), None):
        raise DataError(
            f"line {big.line}: sample {big.sample} of prompt {big.prompt_id}: samples and seeds up to {MOST_SAMPLES:,} "
            "can be kept; number the samples from 0, in every log alike"
        )


def _merge(a: Imported, b: Imported, name: str) -> Imported:
    """The run ``a`` with the responses of ``b``, which the file ``name`` holds."""
    named = [run for run in (a, b) if run.counting != a.counting or run.target != a.target]
    if named:
        what = "count differently" if b.counting != a.counting else f"have targets {a.target} and {b.target}"
        raise UsageError(f"two files that {what} are no parts of one run; import each by itself")
    if a.label != b.label and a.format.startswith(("Spec-Bench", "CC-DFlash")):
        raise UsageError(f"files of two arms, {a.label} and {b.label}; import each by itself")
    known = {r.key for r in a.responses}
    if both := [r for r in b.responses if r.key in known]:
        raise DataError(
            f"{name}: prompt {both[0].prompt_id} (line {both[0].line}) is in another of the files too, as are "
            f"{len(both) - 1:,} more responses: files of one run have no prompt in common. Import repetitions and "
            "other arms each by itself; ids that start anew in each data set need a field dataset"
        )
    return replace(
        a,
        responses=[*a.responses, *b.responses],
        aggregates=[*a.aggregates, *b.aggregates],
        mode=a.mode if a.mode == b.mode else None,
        notes=list(dict.fromkeys([*a.notes, *b.notes])),
        unknown=list(dict.fromkeys([*a.unknown, *b.unknown])),
    )
