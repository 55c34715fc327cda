"""Verification steps reduced to one row per prompt, in one pass, however many there are.

The Parquet parts of a run are streamed. Ids come dictionary-encoded, so a batch is first reduced to its prompts by
counting their numbers in the dictionary; only then are the prompts looked up by key. So time follows the number of
steps, and memory that of prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analysis.errors import DataError
from analysis.keys import KeyIndex, flat
from analysis.runlog.reading import Run, conform
from analysis.runlog.schema import KEY, NULLABLE, TABLES
from analysis.runlog.step_counts import Batch, Counts, Steps, Total

#: Slots beyond this have no column of their own: drafts of n-gram matchers can be hundreds of tokens long.
MOST_SLOTS = 64
#: Steps read at a time, and prompts of such batches looked up at a time.
_BATCH = 1 << 20
_FLUSH = 1 << 19
#: All of the key but the protocol, which is one.
FOUND_BY = tuple(name for name in KEY if name != "protocol")
_STRINGS = ("eval_id", "protocol", "prompt_id", "ended")
_COLUMNS = [*KEY, "drafted", "eligible", "accepted", "emitted", "ended"]


def reduce_steps(run: Run, protocol: str, index: KeyIndex, n: int) -> Steps:
    """Counts of the run's steps under ``protocol`` by row of ``index``, which finds n prompts by FOUND_BY.

    Tokens of a step are 1 + accepted under ``prefix``, emitted under ``generate``. Raises DataError if the run has no
    steps, and for parts that do not conform to the schema.
    """
    if not run.has("acceptance"):
        raise DataError(f"{run.address}: the run has no acceptance.parquet")
    total = Total(n)
    waiting: list[Batch] = []
    orphans: set[str] = set()
    for table in step_batches(run, _COLUMNS):
        if (batch := _reduced(table, protocol)) is None:
            continue
        if (rows := index.follow(batch.keys)) is not None:
            total.add(batch, rows)
            continue
        waiting.append(batch)
        if sum(len(batch.steps) for batch in waiting) >= _FLUSH:
            orphans |= _flush(waiting, index, total)
    orphans |= _flush(waiting, index, total)
    few = tuple(sorted(orphans)[:6])
    return total.finish(few, len(orphans))


def step_batches(run: Run, columns: list[str]) -> Iterator[pa.Table]:
    """The run's steps, part after part, some at a time, with ``columns``, the key among them; strings are
    dictionary-encoded.

    Raises DataError for parts that cannot be read or do not conform to the schema.
    """
    for path in run.files("acceptance"):
        with _opened(run, path) as (parquet, exact):
            for group in range(parquet.num_row_groups):
                for batch in parquet.iter_batches(_BATCH, row_groups=[group], columns=columns if exact else None):
                    table = pa.Table.from_batches([batch])
                    yield run.of_choice(table if exact else _conformed(table, path).select(columns))


def require_conforming(run: Run) -> None:
    """Raises DataError as :func:`step_batches` does; of a part whose statistics vouch for it no step is read."""
    for path in run.files("acceptance"):
        with _opened(run, path) as (parquet, exact):
            for batch in () if exact else parquet.iter_batches(_BATCH):
                _conformed(pa.Table.from_batches([batch]), path)


@contextmanager
def _opened(run: Run, path: str) -> Iterator[tuple[pq.ParquetFile, bool]]:
    """A part, and whether it conforms without a look at its rows."""
    try:
        with run.filesystem.open(path, "rb") as file:
            metadata = pq.read_metadata(file)
            strings = [name for name in _STRINGS if name in metadata.schema.names]
            parquet = pq.ParquetFile(file, metadata=metadata, read_dictionary=strings)
            yield parquet, _is_exact(parquet)
    except (ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a readable Parquet file ({reason}); copy or write it again") from error


def of_protocol(table: pa.Table, protocol: str) -> dict[str, pa.Array]:
    """Columns of the batch's steps under ``protocol``; none if it has no such step."""
    columns = {name: flat(table[name]) for name in table.column_names}
    wanted = columns["protocol"].dictionary.index(protocol).as_py()
    rows = columns["protocol"].indices.to_numpy() == wanted
    if rows.all():
        return columns if rows.size else {}
    return {name: column.filter(pa.array(rows)) for name, column in columns.items()} if rows.any() else {}


def _conformed(table: pa.Table, path: str) -> pa.Table:
    """The batch as the schema has it. Other types and nulls are rare, so this may be slow."""
    table = conform(table, "acceptance", path)
    for name in _STRINGS:
        table = table.set_column(table.column_names.index(name), name, table[name].dictionary_encode())
    return table


def _is_exact(file: pq.ParquetFile) -> bool:
    """Whether a part has the schema's types, and its statistics say that no required column holds nulls."""
    schema, metadata = TABLES["acceptance"], file.metadata
    actual = metadata.schema.to_arrow_schema()
    if any(actual.get_field_index(f.name) < 0 or actual.field(f.name).type != f.type for f in schema):
        return False
    required = [f.name for f in schema if f.name not in NULLABLE["acceptance"]]
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for group in range(metadata.num_row_groups):
        for name in required:
            statistics = metadata.row_group(group).column(places[name]).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                return False
    return True


def _reduced(table: pa.Table, protocol: str) -> Batch | None:
    """The batch by prompt; None if it has no step under ``protocol``."""
    columns = of_protocol(table, protocol)
    if not columns:
        return None
    prompt, keys = _numbered(columns)
    m = len(keys[0])
    drafted, eligible, accepted = (columns[name] for name in ("drafted", "eligible", "accepted"))
    if eligible.null_count:  # logs that do not tell which slots were at risk: all that were drafted
        eligible = pc.coalesce(eligible, drafted)
    at_risk = np.clip(_filled(eligible, 0), 0, MOST_SLOTS)
    agreed = np.clip(_filled(accepted, -1), -1, MOST_SLOTS)
    tokens = accepted if protocol == "prefix" else columns["emitted"]
    steps = np.bincount(prompt, minlength=m)
    counted = steps
    if tokens.null_count:
        counted = np.bincount(prompt[tokens.is_valid().to_numpy(zero_copy_only=False)], minlength=m)
    # sums of doubles are exact here: far below 2^53
    sums = np.bincount(prompt, _filled(tokens, 0), m).astype(np.int64)
    if protocol == "prefix":
        sums += counted
    width = int(at_risk.max())

    def histogram(rows: NDArray[np.bool_] | None, column: Counts) -> Counts:
        place = (prompt if rows is None else prompt[rows]) * (width + 1)
        place += column
        return np.bincount(place, minlength=m * (width + 1)).reshape(m, -1).astype(np.uint32)

    histograms = {}
    vocabulary = columns["ended"].dictionary.index("vocabulary").as_py()
    if vocabulary >= 0:
        rows = _filled(columns["ended"].indices, -1) == vocabulary
        rows &= (agreed >= 0) & (agreed < at_risk)
        histograms["missed"] = histogram(rows, agreed[rows] + 1)
    whole = (at_risk == width) & (agreed >= 0)
    if whole.all():
        return Batch(keys, steps, counted, sums, histogram(None, np.minimum(agreed, width)), histograms)
    full = histogram(whole, np.minimum(agreed[whole], width))
    others = ~whole
    at_risk, agreed = at_risk[others], agreed[others]
    histograms["at_risk"] = histogram(others, at_risk)
    histograms["survived"] = histogram(others, np.minimum(at_risk, np.maximum(agreed, 0)))
    histograms["reached"] = histogram(others, np.minimum(at_risk, agreed + 1))
    return Batch(keys, steps, counted, sums, full, histograms)


def _numbered(columns: dict[str, pa.Array]) -> tuple[NDArray[np.int64], list[pa.Array]]:
    """(number of each step's prompt in the batch, key columns of these prompts)."""
    code = columns["prompt_id"].indices.to_numpy().astype(np.int64)
    for name in ("eval_id", "turn", "sample"):
        column = columns[name]
        part = (column.indices if pa.types.is_dictionary(column.type) else column).to_numpy()
        low, high = int(part.min()), int(part.max())
        if low < high:
            if int(code.max()) * (high - low + 1) >= 2**62:
                code = np.unique(code, return_inverse=True)[1]
            code = code * (high - low + 1) + (part - np.int64(low))
    if int(code.max()) < 2 * code.size:
        first = np.full(int(code.max()) + 1, -1)
        first[code[::-1]] = np.arange(code.size)[::-1]  # of several writes to a place the last one stays
        there = first >= 0
        number = code if there.all() else (np.cumsum(there) - 1)[code]
        first = first[there]
    else:
        _, first, number = np.unique(code, return_index=True, return_inverse=True)
    keys = [columns[name].take(pa.array(first)) for name in FOUND_BY]
    # parts may differ in the width of their strings
    return number, [key.cast(pa.string()) if pa.types.is_dictionary(key.type) else key for key in keys]


def _flush(waiting: list[Batch], index: KeyIndex, total: Total) -> set[str]:
    """Add the batches up and forget them; ids of prompts that the index lacks."""
    if not waiting:
        return set()
    keys = [pa.concat_arrays(parts) for parts in zip(*(batch.keys for batch in waiting), strict=True)]
    rows = index.find(keys)
    start = 0
    for batch in waiting:
        total.add(batch, rows[start : start + len(batch.steps)])
        start += len(batch.steps)
    waiting.clear()
    lost = np.flatnonzero(rows < 0)
    return set(keys[FOUND_BY.index("prompt_id")].take(pa.array(lost)).to_pylist()) if lost.size else set()


def _filled(column: pa.Array, value: int) -> NDArray[Any]:
    return (column.fill_null(value) if column.null_count else column).to_numpy(zero_copy_only=False)
