"""What an importer makes of a file: responses (one generation each) or aggregates, and how the file counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.importers.source import Kind, Problem
from analysis.runlog.counting import Counting

_INT16, _INT32 = 2**15 - 1, 2**31 - 1
#: Totals above this are no counts: a double no longer holds them.
MOST = 2**53
#: What a mean length is over where passes of the target without a draft may be missing from the log's counts.
PER_DRAFT = "drafts, not passes of the target"
#: Requests at a time, and the last sample (or its seed), as the run format holds them.
MOST_AT_ONCE, MOST_SAMPLES = _INT16, 2**63 - 1


class RowError(Exception):
    """A row that cannot be used; the message is the reason that is listed, ``kind`` what it is a fault of."""

    def __init__(self, reason: str, kind: Kind = "invalid"):
        super().__init__(reason)
        self.kind: Kind = kind


def problem(line: int | None, error: RowError, where: str = "") -> Problem:
    """The row on ``line`` as one that is not imported; ``where`` goes before the reason."""
    return Problem(line, f"{where}{error}", error.kind)


@dataclass(frozen=True)
class Response:
    """One generation: the answer to one turn of a prompt.

    ``arm``: what columns of a table say of the arm, (column, value) each. ``placed``: its id is its place in the file.

    ``emitted``: tokens per verification step, the bonus counted; None where the file has no steps.
    ``steps`` and ``tokens``: their number and sum, which a file without steps may state.
    ``accepted``: draft tokens per step, where it is not ``emitted - 1``.
    ``seconds``: time of the generation, ``prefill`` of its prefill if it was timed apart.
    ``text``, ``ids``: the answer; only hashes of it are written.
    """

    prompt_id: str
    line: int
    turn: int = 0
    sample: int = 0
    dataset: str | None = None
    category: str | None = None
    question: str | None = None
    emitted: Sequence[int] | None = None
    accepted: Sequence[int] | None = None
    drafted: int | None = None
    steps: int | None = None
    tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    seconds: float | None = None
    prefill: float | None = None
    draft: float | None = None
    verify: float | None = None
    finish_reason: str | None = None
    text: str | None = None
    ids: Sequence[int] | None = None
    arm: Sequence[tuple[str, str]] = ()
    placed: bool = False

    @property
    def key(self) -> tuple[str, int, int]:
        return self.prompt_id, self.turn, self.sample


@dataclass(frozen=True)
class Request:
    """One request of a serving benchmark: seconds to its first token and to its last, None if it failed; its answer,
    of which a hash is written."""

    ok: bool
    ttft_s: float | None
    e2e_s: float | None
    output_tokens: int | None
    text: str | None


@dataclass(frozen=True)
class Aggregate:
    """Totals without rows per prompt. None is: not stated.

    ``tau``: tokens per verification step, the bonus counted; ``mean_of``: what it is a mean of, if it is not the
    pooled ratio. ``drafts``: verification steps; ``accepted_at``: of them, how many accepted position i, i >= 0.
    ``served``: its requests one by one, if the file has them. ``settings``: what the file says about how it was
    measured, by the file's own names. ``by_place``: whether its place in the file alone tells it from others of its
    name, so that nothing of another file corresponds to it.
    """

    subset: str
    tau: float | None = None
    mean_of: str | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted: int | None = None
    accepted_at: Sequence[int] | None = None
    requests: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    tokens_per_s: float | None = None
    served: Sequence[Request] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    by_place: bool = False


@dataclass(frozen=True)
class Imported:
    """One run found in a file: ``responses`` or ``aggregates``, never both.

    ``label``: how the file calls the arm; ``mode``: ``plain`` (no drafter), ``draft``, or None for not known.
    ``unknown``: what the file does not say; ``notes``: what a user should know.
    """

    format: str
    label: str
    counting: Counting
    responses: Sequence[Response] = ()
    aggregates: Sequence[Aggregate] = ()
    variant: str | None = None
    mode: str | None = "draft"
    engine: str | None = None
    target: str | None = None
    temperature: float | None = None
    unknown: Sequence[str] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Found:
    """What one file holds: its runs, and the rows that were left out, with their reasons. ``used``: the records that
    were used; None: one for each line with a response, and for each aggregate."""

    runs: Sequence[Imported]
    problems: Sequence[Problem] = ()
    used: int | None = None

    @property
    def records(self) -> int:
        """The number of records that were used."""
        if self.used is not None:
            return self.used
        return sum(len({r.line for r in run.responses}) + len(run.aggregates) for run in self.runs)

    @property
    def invalid(self) -> list[Problem]:
        """The records that could not be used, though they are of the format."""
        return [p for p in self.problems if p.kind == "invalid"]


def integer(value: Any, what: str, *, least: int = 0, most: int = _INT32) -> int:
    """An integer in range; a float without a fraction is one. Raises RowError."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowError(f"{what} is {_show(value)}, not an integer")
    if not least <= value <= most:
        raise RowError(f"{what} is {_show(value)}, outside {least} to {most}")
    return value


def real(value: Any, what: str, *, least: float = 0.0) -> float:
    """A finite number of at least ``least``. Raises RowError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowError(f"{what} is {_show(value)}, not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < least:
        raise RowError(f"{what} is {_show(value)}, not a finite number of at least {least:g}")
    return number


def integers(value: Any, what: str, *, least: int = 0, most: int = _INT16) -> list[int]:
    """A list of integers in range. Raises RowError."""
    if not isinstance(value, list):
        raise RowError(f"{what} is {_show(value)}, not a list")
    return [integer(item, f"{what}[{i}]", least=least, most=most) for i, item in enumerate(value)]


def optional_integer(row: Mapping[str, Any], name: str, *, most: int = _INT32) -> int | None:
    """The count in a field that may be missing or null."""
    return None if row.get(name) is None else integer(row[name], name, most=most)


def optional_total(row: Mapping[str, Any], name: str) -> int | None:
    """The total in a field that may be missing or null."""
    return optional_integer(row, name, most=MOST)


def optional_real(row: Mapping[str, Any], name: str) -> float | None:
    """The number of a field that may be missing or null."""
    return None if row.get(name) is None else real(row[name], name)


def identifier(value: Any, what: str) -> str:
    """An id as a string: 81, 81.0 and "81" are one prompt; a float with a fraction, or so large that it may have lost
    digits, is none. Raises RowError."""
    if isinstance(value, float) and value.is_integer() and abs(value) < MOST:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise RowError(f"{what} is {_show(value)}, not an id (a string or an integer)")
    return str(value).encode("utf-8", errors="replace").decode()


def string(value: Any, what: str) -> str:
    """A string that UTF-8 can encode. Raises RowError."""
    if not isinstance(value, str):
        raise RowError(f"{what} is {_show(value)}, not a string")
    return value.encode("utf-8", errors="replace").decode()


def last_of_each(responses: Sequence[Response], problems: list[Problem]) -> list[Response]:
    """One response per key: the last, since tools append when they run a question again; the others become
    problems."""
    last = {(*r.key, tuple(r.arm)): r for r in responses}
    for r in responses:
        if (kept := last[*r.key, tuple(r.arm)]) is not r:
            what = f"question {r.prompt_id}" + (f", turn {r.turn}" if r.turn else "")
            reason = f"{what} was run again on line {kept.line}; the last run counts"
            problems.append(Problem(r.line, reason, "run again"))
    return list(last.values())


def _show(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "an integer of over 20 digits"
    return text if len(text) <= 40 else text[:37] + "..."
