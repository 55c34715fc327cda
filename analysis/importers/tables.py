"""Summaries as small tables and objects: ``acceptance.csv`` of speculators, ``acceptance_rate.json`` of ModelOpt."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any

from analysis.importers.model import Aggregate, Found, Imported, RowError, integer, problem, real
from analysis.importers.source import Problem, Source
from analysis.importers.totals import counted, require_close
from analysis.runlog.counting import Counting

SPECULATORS, MODELOPT = "speculators acceptance.csv", "ModelOpt acceptance_rate.json"
_AT = "acceptance_at_pos_"
_COLUMNS = ("subset", "num_drafts", "num_draft_tokens", "num_accepted_tokens")


def recognise_speculators(source: Source) -> int:
    """1 for a table with the columns of speculators."""
    head = source.head.split("\n", 1)[0]  # a lone \r ends no line for the reader either
    return int(set(_COLUMNS) <= {name.strip() for name in head.split(",")})


def read_speculators(source: Source) -> Found:
    """One run of an aggregate per subset. acceptance_length is 1 + accepted/drafts; the columns acceptance_at_pos_i
    are shares of drafts, and sum to accepted/drafts."""
    aggregates: list[Aggregate] = []
    problems: list[Problem] = []
    notes: list[str] = []
    names: list[str] = []
    for number, line in source.lines():
        try:
            cells = [cell.strip() for cell in next(csv.reader([line.replace("\x00", "")]), [])]
            if not names:
                names = _required(cells)
                continue
            if len(cells) != len(names):
                raise RowError(f"{len(cells)} cells under {len(names)} columns: half a line")
            aggregate, told = _subset(dict(zip(names, cells, strict=True)))
            aggregates.append(aggregate)
            notes += told
        except (RowError, csv.Error) as error:
            problems.append(problem(number, error if isinstance(error, RowError) else RowError(str(error))))
            if not names:
                return Found([], [*problems, *source.damage])
    run = Imported(
        format=SPECULATORS,
        label=source.stem,
        counting=Counting(prefill_token="outside", last_step="unknown"),
        aggregates=aggregates,
        unknown=["target", "rows per prompt", "drafter", "time"],
        notes=list(dict.fromkeys(notes)),
    )
    return Found([run], [*problems, *source.damage])


def _required(names: list[str]) -> list[str]:
    """The names of a header. Raises RowError where one that is needed is missing or one is there twice."""
    if missing := [name for name in _COLUMNS if name not in names]:
        raise RowError(f"the header has no {', '.join(missing)}")
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise RowError(f"two columns are called {repeated or 'nothing'}, and nothing says which one counts")
    return names


def _subset(row: Mapping[str, str]) -> tuple[Aggregate, list[str]]:
    drafts, draft_tokens, accepted = (integer(_number(row[name], name), name, most=2**53) for name in _COLUMNS[1:])
    positions = {int(n): name for name in row if (n := name.removeprefix(_AT)) != name and n.isdecimal()}
    shares = [real(_number(row[name], name), name) for _, name in sorted(positions.items())]
    if drafts:
        if row.get("acceptance_length"):
            stated = real(_number(row["acceptance_length"], "acceptance_length"), "acceptance_length")
            require_close(stated, 1 + accepted / drafts, "acceptance_length", 5e-3)
        if shares:
            require_close(sum(shares), accepted / drafts, "the sum of acceptance_at_pos_*", 5e-3)
    at = [round(share * drafts) for share in shares] or None
    if at and sum(at) != accepted:
        at = None
    return counted(row["subset"] or "all", drafts, accepted, draft_tokens, at)


def _number(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise RowError(f"{what} is {text[:40]!r}, not a number") from error


def recognise_modelopt(source: Source) -> int:
    """1 for an object with the fields of ModelOpt, or a list of such: the tool appends."""
    return int(any(_modelopt(value) is not None for value in _values(source)))


def _values(source: Source) -> list[Any]:
    return source.document if isinstance(source.document, list) else [source.document]


def _modelopt(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, dict) and isinstance(value.get("acceptance_rate"), dict):
        value = value["acceptance_rate"]
    fields = ("Average_AL", "Request_AL", "Acceptance_Length_Histogram")
    return value if isinstance(value, dict) and all(name in value for name in fields) else None


def read_modelopt(source: Source) -> Found:
    """One run, an aggregate for each measurement, pooled from its histogram of lengths. Average_AL is a mean over
    requests and turns; of MT-Bench and Spec-Bench, over requests."""
    aggregates: list[Aggregate] = []
    problems: list[Problem] = []
    notes: list[str] = []
    for number, value in enumerate(_values(source), 1):
        try:
            if (document := _modelopt(value)) is None:
                raise RowError("not an object with Average_AL, Request_AL and Acceptance_Length_Histogram", "unrelated")
            aggregate, told = _from_histogram(document)
        except RowError as error:
            problems.append(problem(number if isinstance(source.document, list) else None, error))
            continue
        aggregates.append(aggregate)
        notes += told
    run = Imported(
        format=MODELOPT,
        label=source.stem,
        counting=Counting(prefill_token="unknown", last_step="unknown"),
        aggregates=aggregates,
        unknown=["target", "steps and tokens of each prompt (only its mean length)", "drafter", "time"],
        notes=list(dict.fromkeys(notes)),
    )
    return Found([run], problems)


def _from_histogram(document: Mapping[str, Any]) -> tuple[Aggregate, list[str]]:
    histogram = document["Acceptance_Length_Histogram"]
    if not isinstance(histogram, dict):
        raise RowError("Acceptance_Length_Histogram is not an object")
    counts: dict[int, int] = {}
    for length, count in histogram.items():
        if not (length.isascii() and length.isdecimal() and len(length) < 5):
            raise RowError(f"Acceptance_Length_Histogram has the length {length[:20]!r}")
        counts[int(length)] = integer(count, f"the count of length {length}", most=2**53)
    empty = counts.pop(0, 0)
    drafts, tokens = sum(counts.values()), sum(length * count for length, count in counts.items())
    means, turns = _means(document["Request_AL"])
    average = real(document["Average_AL"], "Average_AL")
    if means:
        require_close(average, sum(means) / len(means), "Average_AL", 5e-3)
    of = "requests" if turns is None else "requests and turns"
    notes = [f"mean over {len(means)} {of} (Average_AL): {average:.4f}; pooled is another number"]
    if empty:
        notes.append(f"{empty:,} pieces without a token in the histogram, which are no steps; left out")
    longest = max(counts, default=1)
    at = [sum(n for length, n in counts.items() if length > i + 1) for i in range(longest - 1)] if drafts else None
    aggregate, told = counted("all requests", drafts, tokens - drafts, None, at, requests=len(means) or None)
    return aggregate, [*notes, *_of_first_pieces(counts, turns), *told]


def _means(requests: Any) -> tuple[list[float], int | None]:
    """(mean lengths, the number of turns): an object by request, of objects by turn or, without turns, of means."""
    if not isinstance(requests, dict):
        raise RowError("Request_AL is not an object")
    if all(isinstance(turns, dict) for turns in requests.values()):
        means = [real(mean, "Request_AL") for turns in requests.values() for mean in turns.values()]
        return means, len(means)
    return [real(mean, "Request_AL") for mean in requests.values()], None


def _of_first_pieces(counts: Mapping[int, int], turns: int | None) -> list[str]:
    """What its code makes of the prefill token, as far as it can be read; no real file was at hand."""
    if counts.get(1, 0) < max(turns or 0, 1):
        return []  # no step of 1 for each turn
    note = (
        "the tool takes each piece that the server streams for a step, so the token of prefill is perhaps a step of 1 "
        "in each turn (not verified on a real file)"
    )
    drafts, tokens = sum(counts.values()), sum(length * count for length, count in counts.items())
    if turns is not None and drafts > turns:
        note += f"; without them tokens per step are {(tokens - turns) / (drafts - turns):.4f}"
    return [note]
