"""Verification steps reduced to one row per prompt, in one pass, however many there are.

DuckDB reads the Parquet parts of a run and finds the prompt of each step; the counts are added up in NumPy as its
batches come by. So memory follows the number of prompts, not that of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analysis.errors import DataError
from analysis.runlog import Run
from analysis.schema import KEY, NULLABLE, TABLES

#: Slots beyond this have no column of their own: drafts of n-gram matchers can be hundreds of tokens long.
MOST_SLOTS = 64
_BATCH = 1 << 20
_MEMORY = "1GiB"

Counts = NDArray[Any]


@dataclass(frozen=True)
class Steps:
    """What the steps of n prompts add up to.

    (n,) int64: ``steps``, those of them with a count (``counted``), ``tokens``. (n, K) unsigned, column k - 1 for
    draft slot k: ``at_risk`` steps in which slot k could be accepted; ``survived``: in which it was; ``reached``: in
    which all before it were; ``missed_vocabulary``: in which it failed for a token that the drafter cannot propose.
    ``orphans``: a few prompt ids of steps that have no prompt, and ``n_orphans`` how many such ids there are.
    """

    steps: NDArray[np.int64]
    counted: NDArray[np.int64]
    tokens: NDArray[np.int64]
    at_risk: Counts
    survived: Counts
    reached: Counts
    missed_vocabulary: Counts
    orphans: tuple[str, ...] = ()
    n_orphans: int = 0


def reduce_steps(run: Run, protocol: str, prompts: pd.DataFrame) -> Steps:
    """Counts of the run's steps under ``protocol`` by row of ``prompts``, which has the columns KEY, each key once.

    Tokens of a step are 1 + accepted under ``prefix``, emitted under ``generate``. Raises DataError for parts that do
    not conform to the schema.
    """
    with step_sources(run) as (db, sources):
        db.register("keys", pa.Table.from_pandas(prompts[list(KEY)], preserve_index=False))
        db.execute(
            f"create temp table prompts as select {', '.join(KEY)}, (row_number() over ())::int - 1 row from keys"
        )
        widths = [_width(db, source, protocol) for source in sources]
        counts = _Counter(len(prompts), min(max(widths, default=0), MOST_SLOTS))
        orphans: set[str] = set()
        for source in sources:
            for batch in _batches(db, source, protocol):
                counts.add(batch)
            orphans |= _orphans(db, source, protocol) if counts.lost else set()
    return counts.finish(orphans)


@contextmanager
def step_sources(run: Run) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[str]]]:
    """A DuckDB connection with the run's steps, and the views that hold them together; nothing is read yet.

    Raises DataError if the run has none, and for parts that do not conform to the schema.
    """
    if not run.has("acceptance"):
        raise DataError(f"{run.address}: the run has no acceptance.parquet")
    exact, others = _parts(run)
    with closing(_connect(run)) as db:
        sources: list[str] = []
        if exact:
            db.execute(f"create temp view exact as select * from read_parquet({_quoted(run, exact)})")
            sources.append("exact")
        for number, path in enumerate(others):
            db.register(f"part{number}", run.read_part("acceptance", path))
            sources.append(f"part{number}")
        yield db, sources


def _connect(run: Run) -> duckdb.DuckDBPyConnection:
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "preserve_insertion_order": False,
        # nothing is fetched at run time: remote files come through fsspec
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    db = duckdb.connect(config=settings)
    if not _is_local(run):
        db.register_filesystem(run.filesystem)
    return db


def _is_local(run: Run) -> bool:
    return "file" in np.atleast_1d(run.filesystem.protocol)


def _quoted(run: Run, paths: Sequence[str]) -> str:
    names = paths if _is_local(run) else [run.filesystem.unstrip_protocol(path) for path in paths]
    return "[" + ", ".join("'" + name.replace("'", "''") + "'" for name in names) + "]"


def _parts(run: Run) -> tuple[list[str], list[str]]:
    """Part files that DuckDB may read as they are, and those to be conformed first (other types, nulls to refuse)."""
    exact: list[str] = []
    others: list[str] = []
    for path in run.files("acceptance"):
        with run.filesystem.open(path, "rb") as file:
            (exact if _is_exact(pq.ParquetFile(file)) else others).append(path)
    return exact, others


def _is_exact(file: pq.ParquetFile) -> bool:
    schema, found = TABLES["acceptance"], file.schema_arrow
    if any(found.get_field_index(f.name) < 0 or found.field(f.name).type != f.type for f in schema):
        return False
    required = [f.name for f in schema if f.name not in NULLABLE["acceptance"]]
    places = {file.metadata.schema.column(i).path: i for i in range(file.metadata.num_columns)}
    for group in range(file.metadata.num_row_groups):
        for name in required:
            statistics = file.metadata.row_group(group).column(places[name]).statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                return False
    return True


# logs that do not tell which slots were at risk: all that were drafted
_AT_RISK = "coalesce(eligible, drafted)"


def _width(db: duckdb.DuckDBPyConnection, source: str, protocol: str) -> int:
    (width,) = db.execute(f"select max({_AT_RISK}) from {source} where protocol = ?", [protocol]).fetchall()[0]
    return max(int(width or 0), 0)


def _batches(db: duckdb.DuckDBPyConnection, source: str, protocol: str) -> Iterator[pa.RecordBatch]:
    tokens = "accepted::int + 1" if protocol == "prefix" else "emitted::int"
    query = f"""
        select row, {tokens} as tokens, accepted, {_AT_RISK} as eligible, ended = 'vocabulary' as vocabulary
        from {source} left join prompts using ({", ".join(KEY)}) where protocol = ?"""
    yield from db.sql(query, params=[protocol]).to_arrow_reader(_BATCH)


def _orphans(db: duckdb.DuckDBPyConnection, source: str, protocol: str) -> set[str]:
    query = f"select distinct prompt_id from {source} anti join prompts using ({', '.join(KEY)}) where protocol = ?"
    return {prompt for (prompt,) in db.execute(query, [protocol]).fetchall()}


class _Counter:
    """Adds up batches of steps. Histograms over slots hold what their cumulative sums give in the end.

    Most steps have all slots at risk: one histogram of their accepted counts tells all that is asked of them.
    """

    def __init__(self, prompts: int, width: int):
        self.width, self.lost = width, 0
        self.steps, self.counted, self.tokens = (np.zeros(prompts, np.int64) for _ in range(3))
        # steps with all slots at risk by accepted; others by the largest k that was at risk, survived, reached; and
        # all by the k that was missed for lack of vocabulary. Column 0 is for none.
        self.full, self.at_risk, self.survived, self.reached, self.missed = (
            np.zeros((prompts, width + 1), np.uint32) for _ in range(5)
        )

    def add(self, batch: pa.RecordBatch) -> None:
        if batch["row"].null_count:
            self.lost += batch["row"].null_count
            batch = batch.filter(batch["row"].is_valid())
        if not batch.num_rows:
            return
        row = batch["row"].to_numpy().astype(np.intp)
        # steps of a prompt mostly stand together, so a batch has few prompts, in a narrow range
        first, last = int(row.min()), int(row.max()) + 1
        row -= first
        where, size = slice(first, last), last - first
        steps = np.bincount(row, minlength=size)
        self.steps[where] += steps
        tokens = batch["tokens"]
        if tokens.null_count:
            has = tokens.is_valid().to_numpy(zero_copy_only=False)
            self.counted[where] += np.bincount(row[has], minlength=size)
        else:
            self.counted[where] += steps
        # sums of doubles are exact here: far below 2^53
        self.tokens[where] += np.bincount(row, _filled(tokens, 0), size).astype(np.int64)
        if self.width:
            self._slots(batch, row, where)

    def _slots(self, batch: pa.RecordBatch, row: NDArray[np.intp], where: slice) -> None:
        eligible, accepted = _filled(batch["eligible"], 0), _filled(batch["accepted"], -1)
        vocabulary = batch["vocabulary"]
        if vocabulary.true_count:
            missed = vocabulary.fill_null(False).to_numpy(zero_copy_only=False)
            missed &= (accepted >= 0) & (accepted < np.minimum(eligible, self.width))
            self._count(self.missed, where, row[missed], accepted[missed] + 1)
        full = (eligible >= self.width) & (accepted >= 0)
        if full.all():
            self._count(self.full, where, row, np.minimum(accepted, self.width))
            return
        self._count(self.full, where, row[full], np.minimum(accepted[full], self.width))
        row, accepted = row[~full], accepted[~full]
        eligible = np.minimum(eligible[~full], self.width)
        self._count(self.at_risk, where, row, eligible)
        self._count(self.survived, where, row, np.minimum(eligible, np.maximum(accepted, 0)))
        self._count(self.reached, where, row, np.minimum(eligible, accepted + 1))

    def _count(self, histogram: Counts, where: slice, row: NDArray[np.intp], column: NDArray[Any]) -> None:
        place = row * (self.width + 1)
        place += column
        added = np.bincount(place, minlength=(where.stop - where.start) * (self.width + 1))
        histogram[where] += added.reshape(-1, self.width + 1).astype(np.uint32)

    def finish(self, orphans: set[str]) -> Steps:
        self.survived += self.full
        if self.width:
            self.at_risk[:, -1] += self.full.sum(axis=1, dtype=np.uint32)
            self.reached[:, 1:] += self.full[:, :-1]
            self.reached[:, -1] += self.full[:, -1]
        small = np.dtype(np.uint16 if self.steps.max(initial=0) < 2**16 else np.uint32)
        at_risk, survived, reached = (
            np.cumsum(h[:, :0:-1], axis=1, dtype=small)[:, ::-1] for h in (self.at_risk, self.survived, self.reached)
        )
        few = tuple(sorted(orphans)[:6])
        missed = self.missed[:, 1:].astype(small)
        return Steps(self.steps, self.counted, self.tokens, at_risk, survived, reached, missed, few, len(orphans))


def _filled(column: pa.Array, value: int) -> NDArray[Any]:
    return (column.fill_null(value) if column.null_count else column).to_numpy(zero_copy_only=False)
