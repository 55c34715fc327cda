"""CSV, JSON lines and Parquet of any tool, with a mapping from our field names to its columns.

* one row per verification step: ``prompt_id`` and ``accepted`` (draft tokens) or ``emitted`` (with the bonus);
* one row per response: ``prompt_id``, ``steps`` and ``tokens`` (in steps, with the bonus) or ``output_tokens``;
  or a list ``acceptance_lengths``.

Columns that already have our names need no mapping. Names say what is counted, so nothing is guessed; whether
``output_tokens`` holds the prefill token is asked (``--prefill-token``), and said where it is not known.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.counting import Counting
from analysis.errors import UsageError
from analysis.importers import responses as lists
from analysis.importers.model import (
    Found,
    Imported,
    Response,
    RowError,
    identifier,
    integer,
    last_of_each,
    optional_integer,
    optional_real,
    string,
)
from analysis.importers.source import Problem, Row, Source

NAME = "plain table"
FIELDS = (
    *("prompt_id", "turn", "sample", "dataset", "category", "question", "text"),
    *("step", "accepted", "emitted", "drafted", "steps", "tokens", "output_tokens", "acceptance_lengths"),
    *("prompt_tokens", "seconds", "prefill_s"),
)
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
    rows = list(_rows(source, mapping or {}, problems))
    kinds = [kind for row in rows if (kind := _kind(row.value))]
    if not kinds:
        return Found([], [*problems, Problem(None, "no row has prompt_id and counts; --map FIELD=COLUMN names them")])
    kind = max(set(kinds), key=lambda k: (kinds.count(k), k))
    if kind == "list":
        named = [replace(row, value={**row.value, "num_output_tokens": row.value.get("output_tokens")}) for row in rows]
        found = lists.read_rows(source, named, NAME)
        return replace(found, problems=[*problems, *found.problems])
    responses = _steps(rows, problems) if kind == "step" else _responses(rows, problems)
    inside: Prefill = "outside" if kind == "step" else prefill
    notes = []
    if kind == "response" and prefill == "unknown" and any(row.value.get("tokens") is None for row in rows):
        notes.append(
            "not known whether output_tokens holds the prefill token; counted as if it did "
            "(--prefill-token inside or outside settles it)"
        )
    run = Imported(
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
    return Found([run], problems)


def _steps(rows: list[Row], problems: list[Problem]) -> list[Response]:
    """Responses of step rows; all steps of a response go if one of them is bad, for their sum would be wrong."""
    found: dict[tuple[str, int, int], list[tuple[int, int, int, int | None, Row]]] = {}
    bad: dict[tuple[str, int, int], int] = {}
    for number, row in enumerate(rows):
        key = None
        try:
            key = _key(row)
            value = row.value
            emitted = None
            if value.get("emitted") is not None:
                emitted = integer(value["emitted"], "emitted", least=1, most=2**15 - 1)
            accepted = optional_integer(value, "accepted", most=2**15 - 2)
            if emitted is None and accepted is None:
                raise RowError("neither accepted nor emitted")
            if emitted is None:
                emitted = cast(int, accepted) + 1
            if accepted is None:
                accepted = emitted - 1
            if emitted > accepted + 1:
                raise RowError(f"{emitted} tokens emitted with {accepted} accepted; one more is the most")
            drafted = optional_integer(value, "drafted", most=2**15 - 1)
            if drafted is not None and accepted > drafted:
                raise RowError(f"{accepted} accepted of {drafted} drafted")
            step = number if value.get("step") is None else integer(value["step"], "step")
            found.setdefault(key, []).append((step, emitted, accepted, drafted, row))
        except RowError as error:
            problems.append(Problem(row.line, str(error)))
            if key is not None:
                bad.setdefault(key, row.line)
    responses = []
    for key, steps in found.items():
        first = steps[0][4]
        if key in bad:
            problems.append(Problem(first.line, f"prompt {key[0]} left out whole: its row on line {bad[key]} is bad"))
            continue
        steps.sort(key=lambda step: step[0])
        if len({step[0] for step in steps}) < len(steps):
            problems.append(Problem(first.line, f"prompt {key[0]} left out: a step of it occurs twice"))
            continue
        widths = {step[3] for step in steps}
        lengths = [step[1] for step in steps]
        responses.append(
            replace(
                _common(first, key),
                emitted=lengths,
                accepted=[step[2] for step in steps],
                drafted=widths.pop() if len(widths) == 1 else None,
                steps=len(steps),
                tokens=sum(lengths),
                output_tokens=None,
            )
        )
    return responses


def _responses(rows: list[Row], problems: list[Problem]) -> list[Response]:
    responses = []
    for row in rows:
        try:
            if _kind(row.value) != "response":
                raise RowError("no steps, or neither tokens nor output_tokens")
            steps = integer(row.value.get("steps"), "steps")
            response = replace(_common(row, _key(row)), steps=steps, tokens=optional_integer(row.value, "tokens"))
            total = response.output_tokens if response.tokens is None else response.tokens
            if total is None:
                raise RowError("neither tokens nor output_tokens")
            if total < steps:
                raise RowError(f"{total} tokens in {steps} steps; each step gives one at least")
            responses.append(response)
        except RowError as error:
            problems.append(Problem(row.line, str(error)))
    return last_of_each(responses, problems)


def _key(row: Row) -> tuple[str, int, int]:
    value = row.value
    dataset = value.get("dataset")
    prompt_id = identifier(value.get("prompt_id"), "prompt_id")
    turn, sample = (integer(value.get(name) or 0, name, most=2**15 - 1) for name in ("turn", "sample"))
    # ids of benchmark files start anew in each data set
    return (prompt_id if dataset is None else f"{string(dataset, 'dataset')}/{prompt_id}"), turn, sample


def _common(row: Row, key: tuple[str, int, int]) -> Response:
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


def _rows(source: Source, mapping: Mapping[str, str], problems: list[Problem]) -> Iterator[Row]:
    """Rows with our field names; other columns are dropped."""
    renamed = {column: name for name, column in mapping.items()}
    for row in _table_rows(source, problems):
        yield Row(
            row.line,
            {
                renamed.get(column, column): value
                for column, value in row.value.items()
                if column in renamed or (column in FIELDS and column not in mapping)
            },
        )


def _table_rows(source: Source, problems: list[Problem]) -> Iterator[Row]:
    if source.is_parquet:
        yield from _parquet_rows(source, problems)
    elif source.sample:
        yield from source.rows()
        problems += source.damage
    else:
        yield from _csv_rows(source, problems)


def _parquet_rows(source: Source, problems: list[Problem]) -> Iterator[Row]:
    number = 0
    try:
        for batch in pq.ParquetFile(source.path).iter_batches():
            for value in batch.to_pylist():
                number += 1
                yield Row(number, value)
    except (pa.ArrowException, OSError) as error:
        problems.append(Problem(number + 1, f"damaged Parquet ({(str(error).splitlines() or [''])[0][:80]})"))


def _csv_rows(source: Source, problems: list[Problem]) -> Iterator[Row]:
    names: list[str] = []
    delimiter = ","
    for number, line in source.lines():
        if "\x00" in line:
            problems.append(Problem(number, "NUL bytes: the writer was stopped here"))
            continue
        if not names:
            delimiter = max(",\t;", key=line.count)
        try:
            cells = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error as error:
            problems.append(Problem(number, f"not CSV ({error})"))
            continue
        if not names:
            names = [cell.strip() for cell in cells]
            continue
        if len(cells) != len(names):
            problems.append(Problem(number, f"{len(cells)} cells under {len(names)} columns: half a line"))
            continue
        yield Row(number, {name: _cell(name, cell.strip()) for name, cell in zip(names, cells, strict=True)})
    problems += source.damage


def _cell(name: str, text: str) -> Any:
    """A number where the text is one; ids and names stay text; empty is null."""
    if not text:
        return None
    try:
        return int(text) if len(text) < 20 else float(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
