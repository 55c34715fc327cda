"""What benchmarks of vLLM print of speculative decoding: totals, one to a line.

``bench serve`` prints "Drafts: 1000", "Draft tokens: 5000", "Accepted tokens: 2410", "Acceptance length: 3.41", the
offline example "num_drafts: 1000" and so on; each benchmark of the file is a total of its own. Rates by position are
rounded, so no counts are made of them.
"""

from __future__ import annotations

import re

from analysis.importers.model import Aggregate, Found, Imported, RowError, problem
from analysis.importers.source import Problem, Source
from analysis.importers.totals import counted, require_close
from analysis.runlog.counting import Counting

NAME = "vLLM, printed totals"
_COUNT = re.compile(
    r"^\s*(?:(?P<drafts>Drafts|num_drafts)|(?P<draft_tokens>Draft tokens|num_draft_tokens)"
    r"|(?P<accepted>Accepted tokens|num_accepted_tokens)|(?P<length>Acceptance length|mean acceptance length))"
    r":\s+(?P<value>\d{1,15}(?:\.\d{1,12})?)\s*$"
)
_WANTED = ("drafts", "accepted")


def recognise(source: Source) -> int:
    """1 if drafts and accepted tokens are printed."""
    names = {_name(found) for line in source.opening() if (found := _COUNT.match(line))}
    return int(names.issuperset(_WANTED))


def _name(found: re.Match[str]) -> str:
    return next(name for name in ("drafts", "draft_tokens", "accepted", "length") if found[name])


def read(source: Source) -> Found:
    """One run: a total for each benchmark, which begins where a number is printed again."""
    problems: list[Problem] = []
    benchmarks: list[tuple[int, dict[str, float]]] = []
    for number, line in source.lines():
        if found := _COUNT.match(line):
            if not benchmarks or _name(found) in benchmarks[-1][1]:
                benchmarks.append((number, {}))
            benchmarks[-1][1][_name(found)] = float(found["value"])
    aggregates: list[Aggregate] = []
    notes: list[str] = []
    for number, printed in benchmarks:
        try:
            aggregate, told = _aggregate(f"benchmark {len(aggregates) + 1}", printed)
        except RowError as error:
            problems.append(problem(number, error))
            continue
        aggregates.append(aggregate)
        notes += told
    run = Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="whole"),
        aggregates=aggregates,
        engine="vllm",
        unknown=["target", "rows per prompt", "drafter", "time"],
        notes=list(dict.fromkeys(notes)),
    )
    return Found([run], [*problems, *source.damage])


def _aggregate(subset: str, printed: dict[str, float]) -> tuple[Aggregate, list[str]]:
    if missing := [name for name in _WANTED if name not in printed]:
        raise RowError(f"no number of {', '.join(missing)}")
    counts = {name: int(value) for name, value in printed.items() if name != "length"}
    if any(not printed[name].is_integer() for name in counts):
        raise RowError("a count with a fraction")
    if counts["drafts"]:
        mean = 1 + counts["accepted"] / counts["drafts"]
        require_close(printed.get("length"), mean, "acceptance length", 0.005 + 1e-9)
    return counted(subset, counts["drafts"], counts["accepted"], counts.get("draft_tokens"))
