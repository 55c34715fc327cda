"""Log lines of llama.cpp's server, one group per request, by version:

    eval time = 1000.00 ms / 101 tokens
    draft acceptance rate = 0.38596 (   66 accepted /   171 generated)
    statistics draft: #calls(b,g,a) = 1 57 57, #gen drafts = 57, #acc drafts = 54, #gen tokens = 171, #acc tokens = 66
    draft acceptance = 0.38596 (   66 accepted /   171 generated), mean acceptance length =  2.16, acceptance rate per
        position = (0.632, 0.333, 0.193)
    draft acceptance = 0.38596 (   66 accepted /   171 generated), mean len =  2.16
    acc per pos = (0.632, 0.333, 0.193)

The target may run a pass without a draft (p_min, n-grams, no room), so tokens per draft and tokens per pass are
different numbers. Each pass gives one token beside the accepted ones, and prefill gives the first: passes are eval
tokens - 1 - accepted. The drafter is asked once a pass (g of #calls). ``statistics`` count since the server started, by
kind of drafter: they are a request's own only where they rose by just its tokens. A request that was never drafted for
has an eval time alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from analysis.importers.model import RowError, problem
from analysis.importers.source import Problem
from analysis.importers.windows import Window, drafts_of, shares_of

MENTION = "draft acceptance"
_NUMBER = r"\d{1,9}(?:\.\d{1,12})?"
_COUNT = r"(\d{1,12})"
_RATES = r"\(([\d., ]*)\)"
_EVAL = re.compile(rf"(?<!prompt )\beval time =\s*{_NUMBER} ms /\s*{_COUNT} tokens\b")
_LINE = re.compile(rf"draft acceptance(?: rate)? = (?:{_NUMBER}|-?nan) \(\s*{_COUNT} accepted /\s*{_COUNT} generated\)")
_MEAN = re.compile(rf"mean (?:acceptance length|len) =\s*({_NUMBER})(?=[,\s]|$)")
_POSITIONS = re.compile(rf"(?:acceptance rate per position|\bacc per pos) = {_RATES}")
_STATISTICS = re.compile(
    rf"statistics\s+(\S+): #calls(?:\(b,g,a\) =\s*\d+ {_COUNT} \d+| =\s*{_COUNT}), #gen drafts =\s*{_COUNT}, "
    rf"#acc drafts =\s*{_COUNT}, #gen tokens =\s*{_COUNT}, #acc tokens =\s*{_COUNT}"
)
_TASK = re.compile(r"\btask\s+(\d+)")


@dataclass
class _Request:
    """What the lines of a request state; ``rises``: by how much (calls, drafts, drafted, accepted) of each kind of
    drafter rose."""

    line: int
    task: str | None
    tokens: int | None = None
    accepted: int | None = None
    drafted: int = 0
    mean: float | None = None
    shares: tuple[float, ...] = ()
    damaged: bool = False
    rises: list[tuple[int, int, int, int]] = field(default_factory=list)


def is_line(line: str) -> bool:
    """Whether a line states acceptance."""
    return bool(_LINE.search(line))


def windows(
    lines: Iterable[tuple[int, str]], problems: list[Problem]
) -> list[tuple[int, Window | None, tuple[int, int]]]:
    """(line, the request's window, None if its number of drafts is not known; its accepted and drafted tokens)."""
    requests: list[_Request] = []
    since_start: dict[str, tuple[int, int, int, int]] = {}
    for number, line in lines:
        try:
            _take(number, line, requests, since_start)
        except RowError as error:
            problems.append(problem(number, error))
    found = []
    for request in requests:
        if request.damaged:
            continue
        try:
            found.append((request.line, _window(request), (request.accepted or 0, request.drafted)))
        except RowError as error:
            problems.append(problem(request.line, error))
    return found


def _take(number: int, line: str, requests: list[_Request], since_start: dict[str, tuple[int, int, int, int]]) -> None:
    task = _TASK.search(line)
    name = task[1] if task else None
    if found := _EVAL.search(line):
        requests.append(_Request(number, name, tokens=int(found[1])))
    elif MENTION in line:
        if not (found := _LINE.search(line)):
            if requests and requests[-1].accepted is None:
                requests[-1].damaged = True  # it had a draft, and how many tokens were accepted is not known
            raise RowError("half a line, or numbers that cannot be read")
        last = requests[-1] if requests else None
        if last is None or last.accepted is not None or (name and last.task and name != last.task):
            requests.append(last := _Request(number, name))
        last.line, last.accepted, last.drafted = number, int(found[1]), int(found[2])
        last.mean, last.shares = _optional(line)
    elif requests and "acc per pos" in line:
        requests[-1].shares = requests[-1].shares or _optional(line)[1]
    elif requests and "statistics " in line and "#gen drafts" in line:
        if not (found := _STATISTICS.search(line)):
            raise RowError("half a line of statistics, or numbers that cannot be read")
        calls, drafts, accepting, drafted, accepted = (int(n) for n in (found[2] or found[3], *found.groups()[3:]))
        if not accepting <= drafts <= calls or accepted > drafted or accepting > accepted:
            raise RowError(
                f"{drafts} drafts in {calls} calls, {accepting} of them accepted, {accepted} of {drafted} tokens: "
                "statistics that cannot be"
            )
        counts = calls, drafts, drafted, accepted
        earlier = since_start.get(found[1], (0, 0, 0, 0))
        since_start[found[1]] = counts
        calls, drafts, drafted, accepted = (n - before for n, before in zip(counts, earlier, strict=True))
        requests[-1].rises.append((calls, drafts, drafted, accepted))


def _optional(line: str) -> tuple[float | None, tuple[float, ...]]:
    """(mean length, rates by position) of a line that may have them. Raises RowError for one that has half of it."""
    mean, rates = _MEAN.search(line), _POSITIONS.search(line)
    if ("mean " in line and not mean) or (("per position" in line or "acc per pos" in line) and not rates):
        raise RowError("half a line, or numbers that cannot be read")
    return float(mean[1]) if mean else None, shares_of(rates[1] if rates else None)


def _window(request: _Request) -> Window | None:
    accepted, drafted = request.accepted or 0, request.drafted
    if accepted > drafted:
        raise RowError(f"{accepted} accepted tokens of {drafted} drafted")
    by_tokens = None if request.tokens is None else request.tokens - 1 - accepted
    if by_tokens is not None and request.tokens and by_tokens < 0:
        raise RowError(f"{accepted} accepted tokens of {request.tokens} tokens: accepted + passes is tokens - 1")
    drafts, exact, calls = None, True, None
    total = tuple(map(sum, zip(*request.rises, strict=True))) if request.rises else ()
    if total and total[2:] == (drafted, accepted):
        # each kind of drafter is asked in turn until one has a draft, so the one asked most was asked in every pass
        drafts, calls = total[1], max(rise[0] for rise in request.rises)
    if drafts is None:
        stated = drafts_of(accepted, drafted, request.mean, request.shares)
        drafts, exact = stated if stated is not None else (None, True)
    passes = by_tokens if by_tokens is not None and by_tokens >= 0 else calls
    if calls is not None and by_tokens is not None:
        most = max(drafted, 1)  # the last pass may have accepted tokens behind the end of the output
        if not by_tokens <= calls <= by_tokens + most:
            raise RowError(
                f"{request.tokens} tokens with {accepted} accepted take {by_tokens} passes, but the drafter was called "
                f"{calls} times"
            )
        passes = calls
    if passes is not None and drafts is not None:
        passes = max(passes, drafts)
    if drafts is None:
        if passes is None:
            return None
        drafts = min(passes, drafted)  # not stated, and not needed
    return Window(accepted, drafted, drafts, passes, request.mean, request.shares, exact)
