"""Look-up of rows by key columns, without a Python object per row: for joins of a million prompts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Column: TypeAlias = pa.Array | pa.ChunkedArray
#: Maximum size of a direct look-up table, in entries per row; sparser codes are sorted and searched.
_SPARSEST = 4


class KeyIndex:
    """Finds rows by key.

    ``columns``: the key columns of n >= 1 rows, (n,) each, without nulls. ``repeated``: whether a key occurs twice;
    a look-up then returns one of its rows. Raises ValueError if the combinations of values exceed int64.
    """

    def __init__(self, columns: Sequence[Column]):
        n = len(columns[0])
        self._columns = [flat(column) for column in columns]
        self._after = 0
        encoded = [column.dictionary_encode() for column in self._columns]
        # if all values are distinct, they are the column itself: this saves a copy of a million ids
        self._values = [
            column if len(places.dictionary) == n else places.dictionary
            for column, places in zip(self._columns, encoded, strict=True)
        ]
        size = math.prod(map(len, self._values))
        if size >= 2**63:
            raise ValueError(f"{size} combinations of key values are too many")
        codes = self._codes([places.indices for places in encoded])
        del encoded
        if size <= max(_SPARSEST * n, 1024):
            self._row_of: NDArray[np.int64] | None = np.full(size, -1, np.int64)
            self._row_of[codes] = np.arange(n)
            self.repeated = bool((self._row_of[codes] != np.arange(n)).any())
        else:
            self._row_of = None
            self._rows = np.argsort(codes, kind="stable")
            self._sorted = codes[self._rows]
            self.repeated = bool((self._sorted[1:] == self._sorted[:-1]).any())

    def follow(self, columns: Sequence[pa.Array]) -> slice | None:
        """Rows of the keys in ``columns`` if they directly follow the rows of the last call, or start with its last
        row; else None. Logs in order need no search."""
        length = len(columns[0])
        for start in (self._after - 1, self._after):
            if 0 <= start <= len(self._columns[0]) - length and all(
                there.slice(start, length).equals(column) for there, column in zip(self._columns, columns, strict=True)
            ):
                self._after = start + length
                return slice(start, self._after)
        return None

    def find(self, columns: Sequence[Column]) -> NDArray[np.int64]:
        """(m,) rows of the keys in ``columns``, (m,) each; -1 for an unknown key."""
        places = [
            pc.index_in(flat(column).cast(values.type), value_set=values)
            for column, values in zip(columns, self._values, strict=True)
        ]
        unknown = np.zeros(len(columns[0]), bool)
        for place in places:
            if place.null_count:
                unknown |= place.is_null().to_numpy(zero_copy_only=False)
        codes = self._codes([place.fill_null(0) if place.null_count else place for place in places])
        if self._row_of is not None:
            rows = self._row_of[codes]
        else:
            place = np.minimum(np.searchsorted(self._sorted, codes), self._sorted.size - 1)
            rows = np.where(self._sorted[place] == codes, self._rows[place], -1)
        return np.where(unknown, -1, rows) if unknown.any() else rows

    def _codes(self, places: Sequence[pa.Array]) -> NDArray[np.int64]:
        """One integer per key, from the places of its parts among the values of their columns."""
        codes = np.zeros(len(places[0]), np.int64)
        for place, values in zip(places, self._values, strict=True):
            if len(values) > 1:
                codes *= len(values)
                codes += place.to_numpy()
        return codes


def flat(column: Column) -> pa.Array:
    """The column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """These rows, without a copy if they are all rows in order."""
    return table if in_order(rows, len(table)) else table.take(pa.array(rows))


def in_order(rows: NDArray[np.int64], n: int) -> bool:
    """Whether ``rows`` are all n rows in their original order."""
    return rows.size == n and bool((rows == np.arange(n)).all())


def natural(text: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sorts ``gsm-2`` before ``gsm-10``: numbers in a name by their value."""
    parts = re.split(r"([0-9]+)", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part], text
