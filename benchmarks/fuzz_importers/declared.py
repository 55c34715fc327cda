"""What a mutation declares to be right, and the judge of what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import DraftlabError
from analysis.importers.collect import Collected, collect
from analysis.importers.model import Imported
from analysis.importers.summary import lengths

SAME, REDUCED, UNKNOWN, REFUSED, PER_DRAFT = "same", "reduced", "unknown", "refused", "per draft"
OUTCOMES = (SAME, REDUCED, UNKNOWN, REFUSED, PER_DRAFT)
#: Records of a log: of so many one may be lost, since 5% is the most.
RECORDS = 21

#: What a record adds to the log's value: tokens and steps, or what the format's ``measure`` counts.
Counts = tuple[float, ...]
Measure = Callable[[Sequence[Imported]], Counts | None]


@dataclass(frozen=True)
class Mutated:
    """A log, and the outcomes that are right; ``lost``: the record that ``reduced`` lacks; ``part``: of it what is
    lost where the log does not say whose it was, such as the last step of a prompt."""

    data: bytes
    right: tuple[str, ...]
    lost: int | None = None
    part: Counts | None = None


@dataclass(frozen=True)
class Case:
    """One damaged log. ``key``: the importer that the sound log belongs to; ``counts``: of its records; ``suffix`` of
    its file; ``measure``: its value, None where steps are not known."""

    form: str
    key: str
    mutation: str
    mutated: Mutated
    counts: Sequence[Counts]
    measure: Measure
    suffix: str = ""


#: A source of cases: every mutation of its formats once.
Cases = Iterator[Case]


def tokens_and_steps(runs: Sequence[Imported]) -> Counts | None:
    """Of the responses of one run, or of its totals; None without a step."""
    (run,) = runs
    if run.responses:
        of_run = lengths(run)
        return (of_run.tokens, of_run.steps) if of_run.steps else None
    known = [(a.drafts + a.accepted, a.drafts) for a in run.aggregates if a.drafts and a.accepted is not None]
    return (sum(t for t, _ in known), sum(s for _, s in known)) if known else None


def judge(path: Path, case: Case) -> str:
    """Which right outcome the log had, or what went wrong."""
    right = case.mutated.right
    path.write_bytes(case.mutated.data)
    try:
        found = collect([path])
    except DraftlabError as error:
        what = REFUSED if "\n" not in str(error).strip() else "a refusal of several lines"
        return what if what in right else f"{what} ({str(error)[:160]}), where {' or '.join(right)} is right"
    if any(total.mean_of == "drafts, not passes of the target" for run in found.runs for total in run.aggregates):
        return PER_DRAFT if PER_DRAFT in right else "per draft, which was not declared"
    value = case.measure(found.runs)
    if value is None:
        return UNKNOWN if UNKNOWN in right else "steps unknown, which was not declared"
    return _of_value(value, found, case)


def _of_value(value: Counts, found: Collected, case: Case) -> str:
    rest = [count for place, count in enumerate(case.counts) if place != case.mutated.lost]
    problems = [problem for _, problem in found.problems if problem.kind != "detail"]
    known = {SAME: _sum(case.counts), REDUCED: _sum(rest)}
    part = case.mutated.part
    if part is not None and problems and _equal(value, tuple(a - b for a, b in zip(known[SAME], part, strict=True))):
        return REDUCED
    if SAME in case.mutated.right and _equal(value, known[SAME]) and not any(p.kind == "invalid" for p in problems):
        return SAME
    if REDUCED in case.mutated.right and _equal(value, known[REDUCED]) and problems:
        return REDUCED
    return f"{value} with {len(problems)} problems, where {' or '.join(case.mutated.right)} of {known} is right"


def _sum(counts: Sequence[Counts]) -> Counts:
    return tuple(map(sum, zip(*counts, strict=True)))


def _equal(a: Counts, b: Counts) -> bool:
    return len(a) == len(b) and all(abs(x - y) <= 1e-9 * max(1.0, abs(x)) for x, y in zip(a, b, strict=True))
