"""CSV, JSON lines and Parquet of any tool, with a mapping from our field names to its columns.

* one row per verification step: ``prompt_id`` and ``accepted`` (draft tokens) or ``emitted`` (with the bonus);
* one row per response: ``prompt_id``, ``steps`` and ``tokens`` (in steps, with the bonus) or ``output_tokens``;
  or a list ``acceptance_lengths``.

Columns that already have our names need no mapping. Names say what is counted, so nothing is guessed; whether
``output_tokens`` holds the prefill token is asked (``--prefill-token``), and said where it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.counting import Counting
from analysis.errors import UsageError
from analysis.importers import csv_blocks
from analysis.importers import responses as lists
from analysis.importers.csv_blocks import Header, cells_of, row_of
from analysis.importers.model import (
    Found,
    Imported,
    Response,
    RowError,
    integer,
    last_of_each,
    optional_integer,
    optional_real,
    string,
)
from analysis.importers.source import Problem, Row, Source
from analysis.importers.step_table import Key, Steps, StepTable, batches_of, key_of, of_table

NAME = "plain table"
FIELDS = (
    *("prompt_id", "turn", "sample", "dataset", "category", "question", "text"),
    *("step", "accepted", "emitted", "drafted", "steps", "tokens", "output_tokens", "acceptance_lengths"),
    *("prompt_tokens", "seconds", "prefill_s"),
)
#: Read at a time: bytes of CSV, rows of Parquet.
_BLOCK, _ROWS = 1 << 24, 1 << 20
Prefill = Literal["inside", "outside", "unknown"]


def parse_mapping(pairs: list[str]) -> dict[str, str]:
    """{our field: column} of ``field=column`` arguments. Raises UsageError for a field that is none of ours."""
    mapping = {}
    for pair in pairs:
        name, found, column = pair.partition("=")
        if not found or name not in FIELDS or not column:
            raise UsageError(f"--map {pair}: write FIELD=COLUMN, where FIELD is one of {', '.join(FIELDS)}")
        mapping[name] = column
    return mapping


def recognise(source: Source, mapping: Mapping[str, str] | None = None) -> int:
    """1 if the columns allow a reading: an id, and counts of steps or of responses."""
    row = next(_rows(source, mapping or {}, []), None)
    return int(row is not None and _kind(row.value) is not None)


def _kind(row: Mapping[str, Any]) -> str | None:
    if "prompt_id" not in row:
        return None
    if "acceptance_lengths" in row:
        return "list"
    if "steps" in row and ("tokens" in row or "output_tokens" in row):
        return "response"
    return "step" if "accepted" in row or "emitted" in row else None


def read(source: Source, mapping: Mapping[str, str] | None = None, prefill: Prefill = "unknown") -> Found:
    """One run: the table."""
    problems: list[Problem] = []
    table = _columns(source, mapping or {}, problems)
    if table is not None and ((responses := _steps(table, problems)) or problems):
        return Found([_imported(source, "step", responses, prefill, [])], problems)
    rows = list(_rows(source, mapping or {}, problems))
    kinds = [kind for row in rows if (kind := _kind(row.value))]
    if not kinds:
        return Found([], [*problems, Problem(None, "no row has prompt_id and counts; --map FIELD=COLUMN names them")])
    kind = max(set(kinds), key=lambda k: (kinds.count(k), k))
    if kind == "list":
        named = [replace(row, value={**row.value, "num_output_tokens": row.value.get("output_tokens")}) for row in rows]
        found = lists.read_rows(source, named, NAME)
        return replace(found, problems=[*problems, *found.problems])
    responses = _steps(batches_of(rows), problems) if kind == "step" else _responses(rows, problems)
    notes = []
    if kind == "response" and prefill == "unknown" and any(row.value.get("tokens") is None for row in rows):
        notes.append(
            "not known whether output_tokens holds the prefill token; counted as if it did "
            "(--prefill-token inside or outside settles it)"
        )
    return Found([_imported(source, kind, responses, prefill, notes)], problems)


def _imported(source: Source, kind: str, responses: list[Response], prefill: Prefill, notes: list[str]) -> Imported:
    inside: Prefill = "outside" if kind == "step" else prefill
    return Imported(
        format=NAME,
        label=source.stem,
        counting=Counting(prefill_token=inside, last_step="unknown", time="prefill and decode", ids="words"),
        responses=[
            replace(r, tokens=max((r.output_tokens or 0) - int(prefill == "outside"), 0)) if r.tokens is None else r
            for r in responses
        ],
        unknown=["target", "drafter", "block size"],
        notes=notes,
    )


def _steps(batches: Iterable[Steps], problems: list[Problem]) -> list[Response]:
    table = StepTable(_common, problems)
    for batch in batches:
        table.add(batch)
    return table.responses()


def _responses(rows: list[Row], problems: list[Problem]) -> list[Response]:
    responses = []
    for row in rows:
        try:
            if _kind(row.value) != "response":
                raise RowError("no steps, or neither tokens nor output_tokens")
            steps = integer(row.value.get("steps"), "steps")
            response = replace(_common(row, key_of(row)), steps=steps, tokens=optional_integer(row.value, "tokens"))
            total = response.output_tokens if response.tokens is None else response.tokens
            if total is None:
                raise RowError("neither tokens nor output_tokens")
            if total < steps:
                raise RowError(f"{total} tokens in {steps} steps; each step gives one at least")
            responses.append(response)
        except RowError as error:
            problems.append(Problem(row.line, str(error)))
    return last_of_each(responses, problems)


def _common(row: Row, key: Key) -> Response:
    value = row.value
    dataset, text, question = (value.get(name) for name in ("dataset", "text", "question"))
    return Response(
        prompt_id=key[0],
        line=row.line,
        turn=key[1],
        sample=key[2],
        dataset=dataset,
        category=None if value.get("category") is None else str(value["category"]),
        question=question if isinstance(question, str) and question.strip() else None,
        output_tokens=optional_integer(value, "output_tokens"),
        prompt_tokens=optional_integer(value, "prompt_tokens"),
        seconds=optional_real(value, "seconds"),
        prefill=optional_real(value, "prefill_s"),
        text=string(text, "text") if text is not None else None,
    )


def _fields(columns: Iterable[str], mapping: Mapping[str, str]) -> dict[str, str]:
    """Our name of each column that has one; other columns are dropped."""
    renamed = {column: name for name, column in mapping.items()}
    return {
        column: renamed.get(column, column)
        for column in columns
        if column in renamed or (column in FIELDS and column not in mapping)
    }


def _rows(source: Source, mapping: Mapping[str, str], problems: list[Problem]) -> Iterator[Row]:
    """Rows with our field names."""
    fields_of = lru_cache(256)(lambda columns: list(_fields(columns, mapping).items()))  # most rows have the same
    for row in _table_rows(source, problems):
        yield Row(row.line, {name: row.value[column] for column, name in fields_of(tuple(row.value))})


def _table_rows(source: Source, problems: list[Problem]) -> Iterator[Row]:
    if source.is_parquet:
        number = 0
        for table in _parquet_tables(source, None, problems):
            for value in table.to_pylist():
                number += 1
                yield Row(number, value)
    elif source.sample:
        yield from source.rows()
        problems += source.damage
    elif (header := _header(source, problems)) is not None:
        for number, line in source.lines():
            if number > header.line and (cells := cells_of(number, line, header, problems)) is not None:
                yield Row(number, cells)
        problems += source.damage


def _columns(source: Source, mapping: Mapping[str, str], problems: list[Problem]) -> Iterator[Steps] | None:
    """A table of steps, if it is one and its columns are named: by columns, some rows at a time."""
    header = None
    if source.is_parquet:
        try:
            names = pq.read_schema(source.path).names
        except (pa.ArrowException, OSError):
            return None
    elif source.sample or (header := _header(source, [])) is None:
        return None
    else:
        names = header.names
    fields = _fields(names, mapping)
    if len(set(names)) < len(names) or _kind(dict.fromkeys(fields.values())) != "step":
        return None
    return _parquet_steps(source, fields, problems) if header is None else _csv_steps(source, header, fields, problems)


def _parquet_steps(source: Source, fields: Mapping[str, str], problems: list[Problem]) -> Iterator[Steps]:
    first = 1
    for table in _parquet_tables(source, list(fields), problems):
        yield of_table(table.rename_columns([fields[name] for name in table.column_names]), first)
        first += len(table)


def _csv_steps(source: Source, header: Header, fields: Mapping[str, str], problems: list[Problem]) -> Iterator[Steps]:
    _header(source, problems)
    yield from csv_blocks.batches(source.blocks(_BLOCK), header, fields, problems)
    problems += source.damage


def _parquet_tables(source: Source, columns: list[str] | None, problems: list[Problem]) -> Iterator[pa.Table]:
    number = 0
    try:
        for batch in pq.ParquetFile(source.path).iter_batches(_ROWS if columns else 1024, columns=columns):
            yield pa.Table.from_batches([batch])
            number += len(batch)
    except (pa.ArrowException, OSError) as error:
        problems.append(Problem(number + 1, f"damaged Parquet ({(str(error).splitlines() or [''])[0][:80]})"))


def _header(source: Source, problems: list[Problem]) -> Header | None:
    """The first line of a CSV file that is one; what stands before it is a problem."""
    for number, line in source.lines():
        delimiter = max(",\t;", key=line.count)
        if (cells := row_of(number, line, delimiter, problems)) is not None:
            return Header([cell.strip() for cell in cells], delimiter, number)
    return None
