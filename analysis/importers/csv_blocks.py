"""CSV records by the block: lines that are plain cells between delimiters go through Arrow, the others one by one.

A line with a quote, NUL bytes, a stray carriage return, bytes that are not UTF-8, a blank at its start or another
number of cells than the header is *odd*, and is read by the csv module, with the lines after it if a quoted cell
goes on there. So a block gives the same records, with the number of each one's first line, as its lines one by one.
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

from analysis.importers.cells import value_of
from analysis.importers.source import Problem, text_of
from analysis.importers.step_table import Column, Steps

_NEWLINE, _RETURN, _QUOTE, _SPACE = b'\n\r" '
_MARK = 0xEF  # the first byte of a byte-order mark
_OPEN = "a quoted cell is not closed: half a line, or damaged"


@dataclass(frozen=True)
class Header:
    """Names of the columns, the delimiter, and the line on which the names stand."""

    names: list[str]
    delimiter: str
    line: int


def row_of(number: int, line: str, delimiter: str, problems: list[Problem]) -> list[str] | None:
    """The cells of a line; None, with a problem, for one that is damaged."""
    cells, is_open = _line(number, line, delimiter, problems)
    if is_open:
        problems.append(Problem(number, _OPEN))
    return None if is_open else cells


def _line(number: int, line: str, delimiter: str, problems: list[Problem]) -> tuple[list[str] | None, bool]:
    """(the cells of a line, whether a quoted cell is open at its end); (None, False), with a problem, for a damaged
    one."""
    if "\x00" in line:
        problems.append(Problem(number, "NUL bytes: the writer was stopped here"))
        return None, False
    try:
        cells, _, is_open = _read(iter([line]), delimiter, strict=False)
    except csv.Error as error:
        problems.append(Problem(number, f"not CSV ({error})"))
        return None, False
    return cells, is_open


def rows(
    blocks: Iterable[tuple[int, bytes]], header: Header, problems: list[Problem]
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, text of the cells by column) of the records under the header."""
    for block in _blocks(blocks, header, problems, every=True):
        for place, cells in block.records.items():
            yield int(block.lines[place]), dict(zip(header.names, cells, strict=True))


def batches(
    blocks: Iterable[tuple[int, bytes]], header: Header, fields: Mapping[str, str], problems: list[Problem]
) -> Iterator[Steps]:
    """The rows under the header, block by block, with ``fields``: our name of each column that is wanted."""
    for block in _blocks(blocks, header, problems, every=False):
        if (steps := _steps(block, header, fields)) is not None:
            yield steps


@dataclass(frozen=True, eq=False)
class _Block:
    """Whole records: bytes; of its n lines the ``starts``, ``ends`` and numbers, (n,); which are ``odd``, so not for
    Arrow, (n,); and the ``records`` of odd lines by the place of their first."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    lines: NDArray[np.int64]
    odd: NDArray[np.bool_]
    records: Mapping[int, list[str]]


def _blocks(
    blocks: Iterable[tuple[int, bytes]], header: Header, problems: list[Problem], *, every: bool
) -> Iterator[_Block]:
    """Blocks of whole records; with ``every`` all lines are taken for odd."""
    held = b""
    for first, more, last in _with_last(blocks):
        block = held + more
        first -= held.count(b"\n")
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        starts = np.concatenate([[0], ends[:-1] + 1])
        lines = np.arange(first, first + ends.size)
        odd = np.ones(ends.size, bool) if every else _odd(block, data, starts, ends, header)
        skipped = min(max(header.line + 1 - first, 0), ends.size)  # lines up to the header are no rows
        odd[:skipped] = True
        n, records = _records(block, starts, ends, lines, odd, skipped, header, problems, last)
        held = block[starts[n] :] if n < ends.size else b""
        if n:
            yield _Block(data[: ends[n - 1] + 1], starts[:n], ends[:n], lines[:n], odd[:n], records)


def _with_last(blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool]]:
    waiting = None
    for block in blocks:
        if waiting is not None:
            yield *waiting, False
        waiting = block
    if waiting is not None:
        yield *waiting, True


def _records(
    block: bytes,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    lines: NDArray[np.int64],
    odd: NDArray[np.bool_],
    skipped: int,
    header: Header,
    problems: list[Problem],
    last: bool,
) -> tuple[int, dict[int, list[str]]]:
    """(number of lines read, records of odd lines). Lines on which a record goes on become odd. A block that is not
    the ``last`` may end within a quoted cell: what begins there is left for the next.

    Where a quote was damaged a cell would take in rows up to the next quote. So a record of several lines must be
    strict CSV, and have the header's number of cells; else its first line is damaged, and the next begins anew.
    The csv module bounds a cell (131,072 characters), and so what is looked at in vain.
    """
    found: dict[int, list[str]] = {}
    free = skipped
    for place in map(int, np.flatnonzero(odd[skipped:]) + skipped):
        if place < free or not (text := text_of(block[starts[place] : ends[place]])):
            continue
        number = int(lines[place])
        cells, is_open = _line(number, text, header.delimiter, problems)
        if is_open:
            following = (
                block[start : end + 1].decode(errors="replace").removeprefix("\ufeff")
                for start, end in zip(starts[place:], ends[place:], strict=True)
            )
            try:
                cells, taken, is_open = _read(following, header.delimiter, strict=True)
            except csv.Error:
                cells, taken, is_open = [], 1, False
            if is_open and not last:
                return place, found
            if len(cells) != len(header.names) or "\x00" in "".join(cells):
                problems.append(Problem(number, _OPEN))
                continue
            free = place + taken
            odd[place:free] = True
        if cells is not None and len(cells) != len(header.names):
            reason = f"{len(cells)} cells under {len(header.names)} columns: half a line"
            problems.append(Problem(number, reason))
        elif cells is not None:
            found[place] = cells
    return ends.size, found


def _read(lines: Iterator[str], delimiter: str, *, strict: bool) -> tuple[list[str], int, bool]:
    """(the cells of the record that begins ``lines``, how many it takes, whether a quoted cell is still open after
    the last). Raises csv.Error."""
    taken, ended = 0, False

    def counted() -> Iterator[str]:
        nonlocal taken, ended
        for line in lines:
            taken += 1
            yield line
        ended = True  # the reader asks past the last line within quotes alone

    try:
        cells = next(csv.reader(counted(), delimiter=delimiter, strict=strict), [])
    except csv.Error:
        if not ended:
            raise
        cells = []
    return cells, taken, ended


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


def _steps(block: _Block, header: Header, fields: Mapping[str, str]) -> Steps | None:
    """Plain lines and the records of odd ones, in the order of the block."""
    plain = np.flatnonzero(~block.odd)
    of_records = np.array(list(block.records), dtype=np.int64)
    places = np.sort(np.concatenate([plain, of_records]))
    if not places.size:
        return None
    table = None
    if plain.size:
        kept = block.data
        if block.odd.any():
            kept = kept[np.repeat(~block.odd, block.ends - block.starts + 1)]
        table = _table(pa.py_buffer(kept), header, list(fields))
    at_plain, at_records = np.searchsorted(places, plain), np.searchsorted(places, of_records)
    columns = {}
    for name, ours in fields.items():
        codes, values = np.empty(places.size, np.int64), []
        if table is not None:
            encoded = table[name].combine_chunks().dictionary_encode()
            values = [value_of(cell, ours, header.delimiter) for cell in encoded.dictionary.to_pylist()]
            codes[at_plain] = encoded.indices.to_numpy()
        codes[at_records] = len(values) + np.arange(of_records.size)
        place = header.names.index(name)
        values += [value_of(cells[place], ours, header.delimiter) for cells in block.records.values()]
        columns[ours] = Column(codes, values)
    return Steps(block.lines[places], columns)


def _table(block: pa.Buffer, header: Header, names: list[str]) -> pa.Table:
    places = [str(header.names.index(name)) for name in names]  # names themselves may be there twice
    table = pa_csv.read_csv(
        pa.BufferReader(block),
        read_options=pa_csv.ReadOptions(
            column_names=[str(place) for place in range(len(header.names))],
            use_threads=False,
            block_size=block.size + 1,
        ),
        parse_options=pa_csv.ParseOptions(delimiter=header.delimiter, quote_char=False, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(places, pa.string()), include_columns=places, strings_can_be_null=False
        ),
    )
    return table.rename_columns(names)
