"""CSV lines by the block: those that are plain cells between delimiters go through Arrow, the others one by one.

A line with a quote, NUL bytes, a stray carriage return, bytes that are not UTF-8, a blank at its start or another
number of cells than the header is *odd*, and is read as :func:`cells_of` reads a line. So a block gives the same rows,
with the same line numbers, as its lines one by one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from analysis.importers.source import Problem, text_of
from analysis.importers.step_table import Column, Steps

_NEWLINE, _RETURN, _QUOTE, _SPACE = b'\n\r" '
_MARK = 0xEF  # the first byte of a byte-order mark


@dataclass(frozen=True)
class Header:
    """Names of the columns, the delimiter, and the line on which the names stand."""

    names: list[str]
    delimiter: str
    line: int


def row_of(number: int, line: str, delimiter: str, problems: list[Problem]) -> list[str] | None:
    """The cells of a line; None, with a problem, for one that is damaged."""
    if "\x00" in line:
        problems.append(Problem(number, "NUL bytes: the writer was stopped here"))
        return None
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as error:
        problems.append(Problem(number, f"not CSV ({error})"))
        return None


def cells_of(number: int, line: str, header: Header, problems: list[Problem]) -> dict[str, Any] | None:
    """A line's values by column; None, with a problem, for one that is damaged or has other cells than the header."""
    cells = row_of(number, line, header.delimiter, problems)
    if cells is not None and len(cells) != len(header.names):
        reason = f"{len(cells)} cells under {len(header.names)} columns: half a line"
        problems.append(Problem(number, reason))
        return None
    return None if cells is None else {n: value_of(cell) for n, cell in zip(header.names, cells, strict=True)}


def value_of(cell: str) -> Any:
    """A number where the text is one; ids and names stay text; empty is null."""
    text = cell.strip()
    if not text:
        return None
    try:
        return int(text) if len(text) < 20 else float(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def batches(
    blocks: Iterable[tuple[int, bytes]], header: Header, fields: Mapping[str, str], problems: list[Problem]
) -> Iterator[Steps]:
    """The rows under the header, block by block, with ``fields``: our name of each column that is wanted."""
    for first, block in blocks:
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        starts = np.concatenate([[0], ends[:-1] + 1])
        odd = _odd(block, data, starts, ends, header)
        skipped = max(header.line + 1 - first, 0)  # lines up to the header are no rows
        lines = np.arange(first, first + ends.size)
        odd[:skipped] = True
        rows: dict[int, dict[str, Any]] = {}
        for place in map(int, np.flatnonzero(odd[skipped:]) + skipped):
            text = text_of(block[starts[place] : ends[place]])
            if text and (cells := cells_of(int(lines[place]), text, header, problems)) is not None:
                rows[place] = cells
        if (steps := _steps(block, data, starts, ends, odd, rows, lines, header, fields)) is not None:
            yield steps


def _odd(
    block: bytes, data: NDArray[np.uint8], starts: NDArray[Any], ends: NDArray[Any], header: Header
) -> NDArray[np.bool_]:
    """(lines,) which lines are not plain cells, as many as the header has."""
    is_delimiter = (data == ord(header.delimiter)).view(np.uint8)
    odd = np.add.reduceat(is_delimiter, starts, dtype=np.int32) != len(header.names) - 1
    odd |= (data[starts] <= _SPACE) | (data[starts] == _MARK)
    strange = (data == 0) | (data == _QUOTE)
    returns = np.flatnonzero(data == _RETURN)
    strange[returns[data[np.minimum(returns + 1, data.size - 1)] != _NEWLINE]] = True
    try:
        block.decode()
    except UnicodeDecodeError:
        strange |= data >= 0x80
    odd[np.searchsorted(ends, np.flatnonzero(strange))] = True
    return odd


def _steps(
    block: bytes,
    data: NDArray[np.uint8],
    starts: NDArray[Any],
    ends: NDArray[Any],
    odd: NDArray[np.bool_],
    rows: dict[int, dict[str, Any]],
    lines: NDArray[np.int64],
    header: Header,
    fields: Mapping[str, str],
) -> Steps | None:
    """Plain lines, and the ``rows`` of odd ones by place, in the order of the block."""
    plain = np.flatnonzero(~odd)
    places = np.sort(np.concatenate([plain, np.array(list(rows), dtype=np.int64)]))
    if not places.size:
        return None
    table = None
    if plain.size:
        kept = block if not odd.any() else data[np.repeat(~odd, ends - starts + 1)].tobytes()
        table = _table(kept, header, list(fields))
    at_plain, at_odd = np.searchsorted(places, plain), np.searchsorted(places, np.array(list(rows), dtype=np.int64))
    columns = {}
    for name, ours in fields.items():
        codes, values = np.empty(places.size, np.int64), []
        if table is not None:
            encoded = table[name].combine_chunks().dictionary_encode()
            values = [value_of(cell) for cell in encoded.dictionary.to_pylist()]
            codes[at_plain] = encoded.indices.to_numpy()
        codes[at_odd] = len(values) + np.arange(len(rows))
        columns[ours] = Column(codes, [*values, *(row[name] for row in rows.values())])
    return Steps(lines[places], columns)


def _table(block: bytes, header: Header, names: list[str]) -> pa.Table:
    return pa_csv.read_csv(
        pa.BufferReader(block),
        read_options=pa_csv.ReadOptions(column_names=header.names, use_threads=False, block_size=len(block) + 1),
        parse_options=pa_csv.ParseOptions(delimiter=header.delimiter, quote_char=False, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
        ),
    )
