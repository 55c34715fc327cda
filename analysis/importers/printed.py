"""What benchmarks of vLLM print of speculative decoding: totals, one to a line.

``bench serve`` prints "Drafts: 1000", "Draft tokens: 5000", "Accepted tokens: 2410", "Acceptance length: 3.41", the
offline example "num_drafts: 1000" or "Number of draft proposals: 1,000", a loop over ``get_metrics()`` the counters
themselves, "Counter(name='vllm:spec_decode_num_drafts', labels={...}, value=1000)"; each benchmark of the file is a
total of its own. Rates by position are rounded, so no counts are made of them; a vector's values are counts.
"""

from __future__ import annotations

import re

from analysis.importers.model import Aggregate, Found, Imported, RowError, problem
from analysis.importers.source import Problem, Source
from analysis.importers.totals import STEPS_WITHOUT_DRAFT, counted, require_close
from analysis.runlog.counting import Counting

NAME = "vLLM, printed totals"
_COUNT = re.compile(
    r"^[\s\-*|]*(?:total[ _])?(?:"
    r"(?P<drafts>drafts|(?:num|number of)[ _]drafts|number of draft proposals|vllm:spec_decode_num_drafts)"
    r"|(?P<draft_tokens>(?:(?:num|number of)[ _])?draft[ _]tokens(?: generated)?|vllm:spec_decode_num_draft_tokens)"
    r"|(?P<accepted>(?:(?:num|number of)[ _])?accepted[ _]tokens|vllm:spec_decode_num_accepted_tokens)"
    r"|(?P<length>(?:mean[ _])?acceptance[ _]length))"
    r"\s*[:=]\s*(?P<value>\d{1,3}(?:,\d{3})+(?:\.\d{1,12})?|\d{1,15}(?:\.\d{1,12})?)\s*$",
    re.IGNORECASE,
)
#: A counter of vLLM's ``get_metrics()`` as Python shows it.
_OBJECT = re.compile(
    r"(?:Counter|Vector)\(name='vllm:spec_decode_num_(?P<name>drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)'"
    r",\s*labels=\{(?P<labels>[^}]*)\},\s*values?=(?P<value>\d{1,15}(?:\.0)?|\[[\d,. ]*\])\)"
)
_NAMES = {"drafts": "drafts", "draft_tokens": "draft_tokens", "accepted_tokens": "accepted"}
_WANTED = ("drafts", "accepted")


def recognise(source: Source) -> int:
    """1 if drafts and accepted tokens are printed."""
    names = {name for line in source.opening() for name, _ in _printed(line)}
    return int(names.issuperset(_WANTED))


def _printed(line: str) -> list[tuple[str, float | tuple[int, ...]]]:
    """What a line prints: (name, number), of positions their counts. Raises RowError for a vector that is none."""
    if found := _COUNT.match(line):
        return [(_name(found), float(found["value"].replace(",", "")))]
    several: list[tuple[str, float | tuple[int, ...]]] = []
    for found in _OBJECT.finditer(line):
        if found["value"].startswith("["):
            pieces = [piece.strip() for piece in found["value"].strip("[]").split(",") if piece.strip()]
            if not all(piece.isdecimal() for piece in pieces):
                raise RowError("accepted tokens by position are no counts")
            several.append(("at", tuple(map(int, pieces))))
        elif found["name"] in _NAMES:
            several.append((_NAMES[found["name"]], float(found["value"])))
    return several


def _name(found: re.Match[str]) -> str:
    return next(name for name in ("drafts", "draft_tokens", "accepted", "length") if found[name])


def read(source: Source) -> Found:
    """One run: a total for each benchmark, which begins where a number is printed again."""
    problems: list[Problem] = []
    benchmarks: list[tuple[int, dict[str, float | tuple[int, ...]]]] = []
    for number, line in source.lines():
        try:
            printed = _printed(line)
        except RowError as error:
            problems.append(problem(number, error))
            continue
        for name, value in printed:
            if not benchmarks or name in benchmarks[-1][1]:
                benchmarks.append((number, {}))
            benchmarks[-1][1][name] = value
    aggregates: list[Aggregate] = []
    notes: list[str] = []
    for number, numbers in benchmarks:
        try:
            aggregate, told = _aggregate(f"benchmark {len(aggregates) + 1}", numbers)
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
        unknown=["target", "rows per prompt", "drafter", "time", STEPS_WITHOUT_DRAFT],
        notes=list(dict.fromkeys(notes)),
    )
    return Found([run], [*problems, *source.damage])


def _aggregate(subset: str, printed: dict[str, float | tuple[int, ...]]) -> tuple[Aggregate, list[str]]:
    if missing := [name for name in _WANTED if name not in printed]:
        raise RowError(f"no number of {', '.join(missing)}")
    numbers = {name: value for name, value in printed.items() if not isinstance(value, tuple)}
    counts = {name: int(value) for name, value in numbers.items() if name != "length"}
    if any(numbers[name] != count for name, count in counts.items()):
        raise RowError("a count with a fraction")
    if counts["drafts"]:
        mean = 1 + counts["accepted"] / counts["drafts"]
        require_close(numbers.get("length"), mean, "acceptance length", 0.005 + 1e-9)
    at = printed.get("at")
    return counted(
        subset,
        counts["drafts"],
        counts["accepted"],
        counts.get("draft_tokens"),
        [*at] if isinstance(at, tuple) else None,
    )
