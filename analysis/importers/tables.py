"""Summaries as small tables and objects: ``acceptance.csv`` of speculators, ``acceptance_rate.json`` of ModelOpt."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any

from analysis.counting import Counting
from analysis.importers.model import Aggregate, Found, Imported, RowError, integer, real
from analysis.importers.source import Problem, Source
from analysis.importers.totals import counted, require_close

SPECULATORS, MODELOPT = "speculators acceptance.csv", "ModelOpt acceptance_rate.json"
_COUNTING = Counting(prefill_token="outside", last_step="unknown")
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
                names = cells
                continue
            if len(cells) != len(names):
                raise RowError(f"{len(cells)} cells under {len(names)} columns: half a line")
            aggregate, told = _subset(dict(zip(names, cells, strict=True)))
            aggregates.append(aggregate)
            notes += told
        except (RowError, csv.Error) as error:
            problems.append(Problem(number, str(error)))
    run = Imported(
        format=SPECULATORS,
        label=source.stem,
        counting=_COUNTING,
        aggregates=aggregates,
        unknown=["target", "rows per prompt", "drafter", "time"],
        notes=list(dict.fromkeys(notes)),
    )
    return Found([run], [*problems, *source.damage])


def _subset(row: Mapping[str, str]) -> tuple[Aggregate, list[str]]:
    drafts, draft_tokens, accepted = (integer(_number(row[name], name), name, most=2**53) for name in _COLUMNS[1:])
    shares = [real(_number(row[name], name), name) for name in row if name.startswith("acceptance_at_pos_")]
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
    """1 for an object with the fields of ModelOpt."""
    return int(_modelopt(source) is not None)


def _modelopt(source: Source) -> dict[str, Any] | None:
    document = source.document
    if isinstance(document, dict) and isinstance(document.get("acceptance_rate"), dict):
        document = document["acceptance_rate"]
    fields = ("Average_AL", "Request_AL", "Acceptance_Length_Histogram")
    return document if isinstance(document, dict) and all(name in document for name in fields) else None


def read_modelopt(source: Source) -> Found:
    """One aggregate: pooled from the histogram of lengths. Average_AL is a mean over requests and turns."""
    document = _modelopt(source) or {}
    try:
        aggregate, notes = _from_histogram(document)
    except RowError as error:
        return Found([], [Problem(None, str(error))])
    run = Imported(
        format=MODELOPT,
        label=source.stem,
        counting=_COUNTING,
        aggregates=[aggregate],
        unknown=["target", "steps and tokens of each prompt (only its mean length)", "drafter", "time"],
        notes=notes,
    )
    return Found([run])


def _from_histogram(document: Mapping[str, Any]) -> tuple[Aggregate, list[str]]:
    histogram = document["Acceptance_Length_Histogram"]
    if not isinstance(histogram, dict):
        raise RowError("Acceptance_Length_Histogram is not an object")
    counts: dict[int, int] = {}
    for length, count in histogram.items():
        if not (length.isascii() and length.isdecimal() and len(length) < 5):
            raise RowError(f"Acceptance_Length_Histogram has the length {length[:20]!r}")
        counts[int(length)] = integer(count, f"the count of length {length}", most=2**53)
    drafts, tokens = sum(counts.values()), sum(length * count for length, count in counts.items())
    if counts.get(0):
        raise RowError("steps of length 0, though lengths count the bonus token")
    means = [real(mean, "Request_AL") for turns in _objects(document["Request_AL"]) for mean in turns.values()]
    average = real(document["Average_AL"], "Average_AL")
    if means:
        require_close(average, sum(means) / len(means), "Average_AL", 5e-3)
    notes = [f"mean over {len(means)} requests and turns (Average_AL): {average:.4f}; pooled is another number"]
    longest = max(counts, default=1)
    at = [sum(n for length, n in counts.items() if length > i + 1) for i in range(longest - 1)] if drafts else None
    aggregate, told = counted("all requests", drafts, tokens - drafts, None, at, requests=len(means) or None)
    return aggregate, [*notes, *told]


def _objects(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, dict) or not all(isinstance(turns, dict) for turns in value.values()):
        raise RowError("Request_AL is not an object of objects")
    return list(value.values())
