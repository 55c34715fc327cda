"""Tables of any tool as rows and columns with our field names: CSV, JSON lines, Parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.importers import csv_blocks
from analysis.importers.arms import PREFIX, is_arm
from analysis.importers.cells import NAMES, value_of
from analysis.importers.csv_blocks import Header, row_of
from analysis.importers.source import Problem, Row, Source
from analysis.importers.step_table import Steps, of_table, values_of

FIELDS = (
    *("prompt_id", "arm", "turn", "sample", "dataset", "category", "question", "text"),
    *("step", "accepted", "emitted", "drafted", "steps", "tokens", "output_tokens", "acceptance_lengths"),
    *("prompt_tokens", "seconds", "prefill_s"),
)
#: Read at a time: bytes of CSV by columns and by rows, rows of Parquet by columns and by rows.
_BLOCK, _SMALL_BLOCK, _ROWS, _FEW_ROWS = 1 << 24, 1 << 20, 1 << 20, 1024
_SEPARATOR = re.compile(r'"?sep=(.)"?,*')  # the first line of Excel's CSV files


@dataclass(frozen=True)
class Table:
    """``names``: of the columns, of JSON those of its first rows; ``header``: where a CSV file has them."""

    source: Source
    mapping: Mapping[str, str]
    names: Sequence[str]
    header: Header | None

    @classmethod
    def open(cls, source: Source, mapping: Mapping[str, str]) -> Table:
        """The table that a file is, ``mapping`` giving the column of some of our fields."""
        if source.is_parquet:
            try:
                return cls(source, mapping, pq.read_schema(source.path).names, None)
            except (pa.ArrowException, OSError):
                return cls(source, mapping, [], None)
        if source.sample:
            return cls(source, mapping, list(dict.fromkeys(name for row in source.sample for name in row)), None)
        header = _header(source, {*FIELDS, *mapping.values()}, [])
        return cls(source, mapping, header.names if header else [], header)

    @property
    def has_columns(self) -> bool:
        """Whether all rows have the same fields."""
        return self.source.is_parquet or self.header is not None

    def fields(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """Our name of each column that has one; of one that names the arm, its own behind a prefix."""
        renamed = {column: name for name, column in self.mapping.items()}
        found = {}
        for column in self.names if names is None else names:
            if renamed.get(column) == "arm" or (column not in renamed and is_arm(column)):
                found[column] = f"{PREFIX}{column}"
            elif column in renamed or (column in FIELDS and column not in self.mapping):
                found[column] = renamed.get(column, column)
        return found

    def _others(self) -> list[str]:
        """Columns that have none of our names."""
        fields = self.fields()
        return [name for name in self.names if name not in fields and name not in FIELDS and name]

    def repeated(self) -> str | None:
        """A column that is wanted and is there twice."""
        return next((name for name in self.fields() if self.names.count(name) > 1), None)

    def rows(self, problems: list[Problem]) -> Iterator[Row]:
        """Rows with our field names, and the other columns beside them."""
        if self.source.is_parquet:
            others = set(self._others())
            for first, table in self._parquet(_FEW_ROWS, problems, self._others()):
                columns = [values_of(column) for column in table.columns]
                for place, values in enumerate(zip(*columns, strict=True)):
                    cells = dict(zip(table.column_names, values, strict=True))
                    more = {name: cells.pop(name) for name in others}
                    yield Row(first + place, cells, more)
        elif self.header is None:
            fields_of = lru_cache(256)(lambda keys: self.fields(keys))  # most rows have the same
            for row in self.source.rows() if self.source.sample else ():
                fields = fields_of(tuple(row.value))
                more = {key: value for key, value in row.value.items() if key not in fields and key not in FIELDS}
                yield Row(row.line, {name: row.value[key] for key, name in fields.items()}, more)
            problems += self.source.damage
        else:
            _header(self.source, {*FIELDS, *self.mapping.values()}, problems)
            fields, unnamed = self.fields(), self._others()
            for line, cells in csv_blocks.rows(self.source.blocks(_SMALL_BLOCK), self.header, problems):
                delimiter = self.header.delimiter
                ours = {name: value_of(cells[column], name, delimiter) for column, name in fields.items()}
                yield Row(line, ours, {column: cells[column].strip() for column in unnamed})
            problems += self.source.damage

    def steps(self, problems: list[Problem]) -> Iterator[Steps]:
        """Columns with our field names, some rows at a time, of a table that has columns."""
        if self.header is None:
            for first, table in self._parquet(_ROWS, problems):
                yield of_table(table, first)
            return
        _header(self.source, {*FIELDS, *self.mapping.values()}, problems)
        yield from csv_blocks.batches(self.source.blocks(_BLOCK), self.header, self.fields(), problems)
        problems += self.source.damage

    def _parquet(
        self, rows: int, problems: list[Problem], others: Sequence[str] = ()
    ) -> Iterator[tuple[int, pa.Table]]:
        """(number of the first row, columns with our names, and ``others``)."""
        fields, first = self.fields() | {name: name for name in others}, 1
        try:
            for batch in pq.ParquetFile(self.source.path).iter_batches(rows, columns=list(fields)):
                columns = {fields[name]: batch.column(name) for name in batch.schema.names}
                yield first, pa.table({name: _plain(name, column) for name, column in columns.items()})
                first += len(batch)
        except (pa.ArrowException, OSError) as error:
            problems.append(Problem(first, f"damaged Parquet ({(str(error).splitlines() or [''])[0][:80]})"))


def _plain(name: str, column: pa.Array) -> pa.Array:
    """Decimals as floats, or as text where they are ids; bytes as the text that they are."""
    if pa.types.is_decimal(column.type):
        return column.cast(pa.string() if name in NAMES else pa.float64())
    return column.view(pa.string()) if pa.types.is_binary(column.type) else column


def _header(source: Source, wanted: set[str], problems: list[Problem]) -> Header | None:
    """The first line of a CSV file that is one, below comments and Excel's line on the separator; what is damaged
    before it is a problem. A comment may hold the names themselves."""
    delimiter = None
    for number, line in source.lines():
        if found := _SEPARATOR.fullmatch(line):
            delimiter = found[1]
            continue
        text = line.lstrip("# ") if line.startswith("#") else line
        parted_by = delimiter or max(",\t;", key=text.count)
        if (cells := row_of(number, text, parted_by, problems)) is not None:
            names = [cell.strip() for cell in cells]
            if not line.startswith("#") or wanted & set(names):
                return Header(names, parted_by, number)
    return None
