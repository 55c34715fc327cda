"""Tables of one number per prompt: the simplest log there is, of any metric, under the user's own name for it.

A table is CSV, TSV, JSON lines, a JSON array of rows, Parquet, or a pandas DataFrame. It has a column of prompt ids
(``prompt_id``, or another name by ``--map prompt_id=COLUMN``; without one, the order of the rows stands for them, which
a caution says), a column with the value, and where known ``dataset``, ``cluster_id``, ``turn`` and ``sample``.
A wide table has a column with the values of each arm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.errors import DataError, UsageError
from analysis.importers.model import RowError, identifier
from analysis.wording import one_line

#: Columns that say which prompt a row is of; the first is the id itself, and may have other names.
KEYS = ("prompt_id", "dataset", "cluster_id", "turn", "sample")
_IDS = ("prompt_id", "question_id", "id", "prompt")
_NO_DATASET = "all"
#: Bytes that tell the columns of a table.
_BEGINNING = 1 << 16


@dataclass(frozen=True, eq=False)
class Values:
    """One arm. ``rows``: prompt_id, dataset, cluster_id (strings), turn, sample (integers), value: integers if all are
    whole numbers, else floats, missing ones NA. ``by_order``: whether ids are the rows' numbers."""

    address: str
    name: str
    rows: pd.DataFrame
    by_order: bool


def read_table(source: pd.DataFrame | Path | str, encoding: str | None = None) -> pd.DataFrame:
    """The table as it is; ``encoding``: of its text, if it is not UTF-8.

    Raises UsageError for no such file, DataError for one that cannot be read as a table.
    """
    if isinstance(source, pd.DataFrame):
        return source
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"{path}: no such file; --value takes tables of one number per prompt")
    try:
        try:
            return _read(path, "utf-8-sig")
        except UnicodeDecodeError:
            if encoding is None:
                raise
            return _read(path, encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not {encoding or 'UTF-8'} (byte {error.start}); save it as UTF-8, or name its encoding, for "
            "example --encoding cp1252"
        ) from error
    except (ValueError, pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: not a table of rows and columns ({one_line(reason)[:120]})") from error


def _read(path: Path, encoding: str) -> pd.DataFrame:
    with path.open("rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"PAR1"):
        return pd.read_parquet(path)
    if start.startswith((b"[", b"{")):
        text = path.read_text(encoding=encoding)
        rows = json.loads(text) if start.startswith(b"[") else [json.loads(line) for line in text.splitlines() if line]
        return pd.DataFrame(rows)
    # ids stay text: 007 is no 7; a float column would have lost digits of long ones
    return pd.read_csv(path, sep=None, engine="python", dtype=str, keep_default_na=False, encoding=encoding)


def lone_value(source: pd.DataFrame | Path | str, encoding: str | None = None) -> str | None:
    """The one column of numbers beside those that say which prompt a row is of; None if there is not just one, or no
    column of ids."""
    if not isinstance(source, pd.DataFrame) and not _lone(_names(Path(source))):
        return None  # most logs: their first line tells, however large they are
    try:
        table = read_table(source, encoding)
    except (DataError, UsageError) as error:
        if isinstance(error.__cause__, UnicodeError):
            raise
        return None
    found = _lone([str(name) for name in table.columns])
    return found if found is not None and _numbers(table[found]) is not None else None


def _lone(names: Sequence[str]) -> str | None:
    others = [name for name in names if name not in {*KEYS, *_IDS}]
    return others[0] if len(others) == 1 and set(_IDS) & set(names) else None


def _names(path: Path) -> list[str]:
    """Columns of a table as its beginning tells them, none where it does not."""
    with path.open("rb") as file:
        start = file.read(_BEGINNING).removeprefix(b"\xef\xbb\xbf")
    try:
        if start.startswith(b"PAR1"):
            return list(pq.read_schema(path).names)
        text = start.decode("utf-8", errors="replace").lstrip()
        if text.startswith(("[", "{")):
            row, _ = json.JSONDecoder().raw_decode(text.lstrip("[ \r\n\t"))
            return [str(name) for name in row] if isinstance(row, dict) else []
        line = text.split("\n", 1)[0].strip("\r")
        return [cell.strip().strip('"') for cell in line.split(max(",\t;", key=line.count))]
    except (ValueError, pa.ArrowException, OSError):
        return []


def values_of(
    source: pd.DataFrame | Path | str,
    column: str,
    name: str,
    mapping: Mapping[str, str],
    encoding: str | None = None,
) -> Values:
    """The arm that ``column`` holds. ``name``: how it is called where it is a DataFrame; ``encoding``: of a file that
    is not UTF-8.

    Raises UsageError for a column that is not there, DataError for values that are no numbers, for ids that are none,
    and for a prompt with two values.
    """
    table = read_table(source, encoding)
    address = name if isinstance(source, pd.DataFrame) else str(source)
    known = [str(c) for c in table.columns]
    for field, wanted in (*mapping.items(), ("--value", column)):
        if wanted not in known:
            raise UsageError(f"{address}: no column '{wanted}' ({field}); it has {', '.join(map(one_line, known))}")
    values = _numbers(table[column])
    if values is None:
        wrong = next(v for v in table[column] if _number(v) is None)
        raise DataError(f"{address}: column '{column}' has {one_line(repr(wrong))[:40]}, not a number")
    id_column = mapping.get("prompt_id") or next((c for c in _IDS if c in known and c != column), None)
    ids = range(len(table)) if id_column is None else table[id_column]
    rows = pd.DataFrame({"prompt_id": [_identifier(value, address) for value in ids], "value": values})
    dataset = mapping.get("dataset", "dataset")
    rows["dataset"] = table[dataset].astype(str).to_numpy() if dataset in known else _NO_DATASET
    cluster = mapping.get("cluster_id", "cluster_id")
    rows["cluster_id"] = table[cluster].astype(str).to_numpy() if cluster in known else rows["prompt_id"]
    for field in ("turn", "sample"):
        given = mapping.get(field, field)
        rows[field] = _whole(table[given], f"{address}: column '{given}'") if given in known else np.int64(0)
    repeated = rows.duplicated(["prompt_id", "turn", "sample"], keep=False)
    if repeated.any():
        first = rows.loc[repeated, "prompt_id"].iloc[0]
        count = int((rows["prompt_id"] == first).sum())
        raise DataError(
            f"{address}: prompt '{first}' has {count} values; give one file per arm, or name what tells them apart "
            "(--map sample=COLUMN)"
        )
    called = name if isinstance(source, pd.DataFrame) else Path(source).name.split(".")[0] or name
    return Values(address, called, rows, id_column is None)


def parse_values_mapping(pairs: Sequence[str]) -> dict[str, str]:
    """{field: column} of ``field=column`` arguments. Raises UsageError for a field that is not one of KEYS."""
    mapping = {}
    for pair in pairs:
        field, found, column = pair.partition("=")
        if not found or field not in KEYS or not column:
            raise UsageError(f"--map {pair}: with --value write FIELD=COLUMN, where FIELD is one of {', '.join(KEYS)}")
        mapping[field] = column
    return mapping


def _identifier(value: object, address: str) -> str:
    try:
        return identifier(value.item() if isinstance(value, np.generic) else value, "prompt_id")
    except RowError as error:
        raise DataError(f"{address}: {error}") from error


def _number(value: object) -> float | None:
    """A finite number, NaN for a missing one, None for what is neither."""
    if value is None or value is pd.NA or (isinstance(value, str) and not value.strip()):
        return np.nan
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return np.nan if str(value).strip().lower() in ("nan", "null", "none", "na", "n/a") else None
    return number if np.isfinite(number) or np.isnan(number) else None


def _numbers(column: pd.Series) -> pd.Series | None:
    """Int64 if all are whole, else Float64; missing ones NA; None where one is no number."""
    numbers = [_number(value) for value in column]
    if None in numbers:
        return None
    found = pd.array(numbers, dtype="Float64")
    known = np.asarray([n for n in numbers if n is not None and not np.isnan(n)])
    whole = known.size and (known == np.round(known)).all() and np.abs(known).max() < 2**31
    return pd.Series(found.astype("Int64") if whole else found)


def _whole(column: pd.Series, what: str) -> pd.Series:
    numbers = _numbers(column)
    if numbers is None or numbers.dtype != "Int64" or numbers.isna().any():
        raise DataError(f"{what} is not all whole numbers")
    return numbers.astype("int64")
