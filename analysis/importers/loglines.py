"""Log lines of vLLM servers and of llama.cpp.

vLLM writes one line per window of time, llama.cpp one per request; each has its own mean. Over the file they are
pooled: lines weigh by their drafts. Where all drafts are of one length, as vLLM's are, there were drafted / positions
of them; else accepted / (mean acceptance length - 1), as near as the printed mean tells. llama.cpp's lines by version:

    draft acceptance rate = 0.38596 (   66 accepted /   171 generated)
    statistics draft: #calls(b,g,a) = 1 57 57, #gen drafts = 57, #acc drafts = 54, #gen tokens = 171, #acc tokens = 66
    draft acceptance = 0.38596 (   66 accepted /   171 generated), mean acceptance length =  2.16, acceptance rate per
        position = (0.632, 0.333, 0.193)
    draft acceptance = 0.38596 (   66 accepted /   171 generated), mean len =  2.16
    acc per pos = (0.632, 0.333, 0.193)

``statistics`` count since the server started, by kind of drafter, and drafts that came to nothing too: they tell a
request's drafts only where they rose by just its tokens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from analysis.importers.model import Found, Imported, RowError, problem
from analysis.importers.source import Problem, Source
from analysis.importers.totals import counted
from analysis.runlog.counting import Counting

NAME = "server log lines"
_NUMBER = r"(\d{1,9}(?:\.\d{1,12})?)"
_COUNT = r"(\d{1,12})"
_SHARES = r"([\d., ]+?)"
_VLLM = re.compile(
    rf"Mean acceptance length: {_NUMBER}\b.*?Accepted: {_COUNT} tokens, Drafted: {_COUNT} tokens"
    rf"(?:.*?Per-position acceptance rate: {_SHARES},? (?:Avg|$))?"
)
_LLAMA = re.compile(
    rf"draft acceptance(?: rate)? = {_NUMBER} \(\s*{_COUNT} accepted /\s*{_COUNT} generated\)"
    rf"(?:, mean (?:acceptance length|len) =\s*{_NUMBER}\b)?(?:, acceptance rate per position = \({_SHARES}\))?"
)
_LLAMA_POSITIONS = re.compile(rf"\bacc per pos = \({_SHARES}\)")
_LLAMA_SINCE_START = re.compile(
    rf"statistics\s+(\S+): .*?#gen drafts =\s*{_COUNT}, .*?#gen tokens =\s*{_COUNT}, #acc tokens =\s*{_COUNT}"
)
_MENTIONS = ("SpecDecoding metrics", "draft acceptance")
#: A mean is printed with two decimals.
_HALF_A_DIGIT = 0.005 + 1e-9


@dataclass(frozen=True)
class Window:
    """One line: ``mean`` with the bonus token, ``shares`` of drafts by accepted position; ``since_last``: (drafts,
    drafted, accepted) that the counters of the lines after it rose by."""

    accepted: int
    drafted: int
    mean: float | None
    shares: tuple[float, ...]
    since_last: tuple[int, int, int] | None = None

    def drafts(self) -> int:
        """Verification steps. Raises RowError if the line does not say, or contradicts itself."""
        if self.accepted > self.drafted:
            raise RowError(f"{self.accepted} accepted tokens of {self.drafted} drafted")
        if self.since_last is not None and self.since_last[1:] == (self.drafted, self.accepted):
            return self.since_last[0]
        if self.mean is None:
            raise RowError("no mean acceptance length: the number of drafts is not known")
        if not self.drafted:
            return 0
        full = self.drafted / len(self.shares) if self.shares else 0
        agree = bool(full) and abs(self.accepted / full - (self.mean - 1)) <= _HALF_A_DIGIT
        if self.mean <= 1 and self.accepted and not agree:
            raise RowError(f"{self.accepted} tokens were accepted, but the mean acceptance length is {self.mean:g}")
        if self.shares and abs(sum(self.shares) - (self.mean - 1)) > 0.006 + 0.0006 * len(self.shares):
            raise RowError(f"per-position rates sum to {sum(self.shares):.3f}, the mean says {self.mean - 1:.2f}")
        if agree:
            return math.ceil(full)
        if not self.accepted:
            raise RowError("no token was accepted and no position listed: the number of drafts is not known")
        return max(round(self.accepted / (self.mean - 1)), 1)

    @property
    def exact(self) -> bool:
        """Whether the line's counts give its drafts, without the rounded mean."""
        return self.since_last is not None or bool(self.shares and self.drafted % len(self.shares) == 0)


def recognise(source: Source) -> int:
    """How many of the first lines state acceptance."""
    return sum(bool(_VLLM.search(line) or _LLAMA.search(line)) for line in source.opening())


def read(source: Source) -> Found:
    """One run: the lines pooled."""
    problems: list[Problem] = []
    windows: list[tuple[Window, int]] = []
    found = _windows(source, problems)
    for number, window, _ in found:
        try:
            windows.append((window, window.drafts()))
        except RowError as error:
            problems.append(problem(number, error))
    if not windows:
        return Found([], problems)
    engine = found[-1][2]
    drafts = sum(n for _, n in windows)
    accepted = sum(w.accepted for w, _ in windows)
    means = [1 + w.accepted / n if w.mean is None else w.mean for w, n in windows if n or w.mean is not None]
    what = "windows of time" if engine == "vllm" else "requests"
    mean = f"; the plain mean of their means is {sum(means) / len(means):.4f}" if means else ""
    notes = [f"{len(windows)} {what}, weighted by their drafts{mean}"]
    if engine == "vllm":
        notes.append("windows are of equal time, not of equal work: idle ends and warm-up are in them")
    try:
        aggregate, told = counted(
            "all requests", drafts, accepted, sum(w.drafted for w, _ in windows), _positions(windows, accepted)
        )
    except RowError as error:
        return Found([], [*problems, problem(None, error)])
    unknown = ["target", "rows per prompt", "prompts", "drafter"]
    if not all(w.exact for w, _ in windows):
        unknown.append("drafts exactly (means are rounded)")
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="whole"),
        aggregates=[aggregate],
        engine=engine,
        unknown=unknown,
        notes=[*notes, *told],
    )
    return Found([run], problems)


def _windows(source: Source, problems: list[Problem]) -> list[tuple[int, Window, str]]:
    """(line, what it states, engine); what llama.cpp tells in the lines after it is added to it."""
    found: list[tuple[int, Window, str]] = []
    since_start: dict[str, tuple[int, int, int]] = {}
    for number, line in source.lines():
        try:
            if any(mention in line for mention in _MENTIONS):
                found.append((number, *_window(line)))
            elif found and (positions := _LLAMA_POSITIONS.search(line)):
                at, window, engine = found[-1]
                found[-1] = at, replace(window, shares=window.shares or _shares(positions[1])), engine
            elif found and (told := _LLAMA_SINCE_START.search(line)):
                counts = int(told[2]), int(told[3]), int(told[4])
                earlier = since_start.get(told[1], (0, 0, 0))
                since_start[told[1]] = counts
                at, window, engine = found[-1]
                rise = [n - before for n, before in zip(counts, earlier, strict=True)]
                drafts, drafted, accepted = (a + b for a, b in zip(window.since_last or (0, 0, 0), rise, strict=True))
                found[-1] = at, replace(window, since_last=(drafts, drafted, accepted)), engine
        except RowError as error:
            problems.append(problem(number, error))
    return found


def _window(line: str) -> tuple[Window, str]:
    if found := _VLLM.search(line):
        return Window(int(found[2]), int(found[3]), float(found[1]), _shares(found[4])), "vllm"
    if found := _LLAMA.search(line):
        mean = float(found[4]) if found[4] else None
        return Window(int(found[2]), int(found[3]), mean, _shares(found[5])), "llama.cpp"
    raise RowError("half a line, or numbers that cannot be read")


def _shares(text: str | None) -> tuple[float, ...]:
    try:
        shares = tuple(float(piece) for piece in (text or "").split(",") if piece.strip())
    except ValueError as error:
        raise RowError("per-position rates cannot be read") from error
    if any(share > 1 for share in shares):
        raise RowError("a per-position rate is over 1")
    return shares


def _positions(windows: Sequence[tuple[Window, int]], accepted: int) -> list[int] | None:
    """Accepted tokens by position; None if a line has none, or rounding spoils their sum."""
    longest = max(len(w.shares) for w, _ in windows)
    if not longest or not all(w.shares for w, _ in windows):
        return None
    sums = [sum(w.shares[i] * n for w, n in windows if i < len(w.shares)) for i in range(longest)]
    at = [round(s) for s in sums]
    return at if sum(at) == accepted else None
