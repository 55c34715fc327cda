"""Log lines of vLLM servers and of llama.cpp.

vLLM writes one line per window of time, llama.cpp one per request; each has its own mean. Over the file they are
pooled: lines weigh by their drafts, of which there were accepted / (mean acceptance length - 1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.counting import Counting
from analysis.importers.model import Found, Imported, RowError
from analysis.importers.source import Problem, Source
from analysis.importers.totals import counted

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
    rf"(?:, mean acceptance length = {_NUMBER}\b)?(?:, acceptance rate per position = \({_SHARES}\))?"
)
_MENTIONS = ("SpecDecoding metrics", "draft acceptance")


@dataclass(frozen=True)
class Window:
    """One line: ``mean`` with the bonus token, ``shares`` of drafts by accepted position."""

    accepted: int
    drafted: int
    mean: float | None
    shares: tuple[float, ...]

    def drafts(self) -> int:
        """Verification steps. Raises RowError if the line does not say, or contradicts itself."""
        if self.accepted > self.drafted:
            raise RowError(f"{self.accepted} accepted tokens of {self.drafted} drafted")
        if self.mean is None:
            raise RowError("no mean acceptance length: the number of drafts is not known")
        if not self.accepted:
            if not self.shares and self.drafted:
                raise RowError("no token was accepted and no position listed: the number of drafts is not known")
            return round(self.drafted / len(self.shares)) if self.shares else 0
        if self.mean <= 1:
            raise RowError(f"{self.accepted} tokens were accepted, but the mean acceptance length is {self.mean:g}")
        drafts = self.accepted / (self.mean - 1)
        if self.shares and abs(sum(self.shares) - (self.mean - 1)) > 0.006 + 0.0006 * len(self.shares):
            raise RowError(f"per-position rates sum to {sum(self.shares):.3f}, the mean says {self.mean - 1:.2f}")
        return max(round(drafts), 1)


def recognise(source: Source) -> int:
    """How many of the first lines state acceptance."""
    return sum(bool(_VLLM.search(line) or _LLAMA.search(line)) for line in source.head.splitlines())


def read(source: Source) -> Found:
    """One run: the lines pooled."""
    problems: list[Problem] = []
    windows: list[tuple[Window, int]] = []
    engine = "vllm"
    for number, line in source.lines():
        if not any(mention in line for mention in _MENTIONS):
            continue
        try:
            window, engine = _window(line)
            windows.append((window, window.drafts()))
        except RowError as error:
            problems.append(Problem(number, str(error)))
    if not windows:
        return Found([], problems)
    drafts = sum(n for _, n in windows)
    accepted = sum(w.accepted for w, _ in windows)
    means = [w.mean for w, _ in windows if w.mean is not None]
    what = "windows of time" if engine == "vllm" else "requests"
    notes = [f"{len(windows)} {what}, weighted by their drafts; the plain mean of their means is {_mean(means):.4f}"]
    if engine == "vllm":
        notes.append("windows are of equal time, not of equal work: idle ends and warm-up are in them")
    try:
        aggregate, told = counted(
            "all requests", drafts, accepted, sum(w.drafted for w, _ in windows), _positions(windows, accepted)
        )
    except RowError as error:
        return Found([], [*problems, Problem(None, str(error))])
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="whole"),
        aggregates=[aggregate],
        engine=engine,
        unknown=["target", "rows per prompt", "prompts", "drafter", "drafts exactly (means are rounded)"],
        notes=[*notes, *told],
    )
    return Found([run], problems)


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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
