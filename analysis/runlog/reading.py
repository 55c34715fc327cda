"""Reading a run folder: manifest and Parquet tables (written by :mod:`analysis.runlog.writing`).

    runs/<name>/run.json               the manifest (analysis.runlog.manifest)
                <table>.parquet        one file, or a folder of part files (analysis.runlog.schema)

The manifest is authoritative: every part that it lists must exist with the listed number of rows, and a run that is not
``complete`` is refused unless explicitly allowed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from analysis.errors import DataError
from analysis.runlog.addresses import MANIFEST, located, resolve
from analysis.runlog.manifest import Manifest
from analysis.runlog.schema import LATER, NULLABLE, READABLE_VERSIONS, SCHEMA_VERSION, TABLES


def conform(table: pa.Table, name: str, where: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Cast ``table`` to the schema of table ``name``: columns in order, exact types; extra columns dropped.

    ``columns``: only these columns, in their order. NaN in an integer column counts as null. Raises DataError
    naming ``where`` and the column for a column that is missing, cannot be cast without loss, or holds nulls that its
    schema forbids.
    """
    schema = TABLES[name] if columns is None else pa.schema([TABLES[name].field(column) for column in columns])
    arrays = []
    for field in schema:
        if field.name not in table.column_names:
            if field.name in LATER.get(name, frozenset()):
                arrays.append(pa.nulls(len(table), field.type))
                continue
            raise DataError(f"{where}: column '{field.name}' is missing (table {name}, schema {SCHEMA_VERSION})")
        column = table[field.name]
        try:
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            if pa.types.is_integer(field.type) and pa.types.is_floating(column.type):
                column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
            if pa.types.is_string(field.type) and pa.types.is_floating(column.type):
                raise pa.ArrowInvalid("an id read as a float may have lost digits; write it as a string")
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(
                f"{where}: column '{field.name}' is {table[field.name].type}, not {field.type} ({reason})"
            ) from error
        if column.null_count and field.name not in NULLABLE.get(name, frozenset()):
            raise DataError(f"{where}: column '{field.name}' has {column.null_count} nulls; nulls are not allowed")
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=schema)


def rows_to_table(name: str, rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> pa.Table:
    """Arrow table of schema ``name`` from row mappings or from a mapping of columns.

    Nullable columns that are not given become null.
    """
    schema = TABLES[name]
    if isinstance(rows, Mapping):
        length = max((len(values) for values in rows.values()), default=0)
        columns = {f.name: rows[f.name] if f.name in rows else [None] * length for f in schema}
        given = set(rows)
    else:
        columns = {f.name: [row.get(f.name) for row in rows] for f in schema}
        given = set().union(*(row.keys() for row in rows))
    if unknown := given - set(schema.names):
        raise ValueError(f"table {name} has no column {', '.join(sorted(unknown))}")
    arrays = [pa.array(columns[f.name], type=f.type, from_pandas=False) for f in schema]
    return conform(pa.Table.from_arrays(arrays, schema=schema), name, f"new rows of {name}")


@dataclass(frozen=True)
class Run:
    """A run folder opened for reading, local or behind any fsspec address.

    ``chosen``: (protocol, eval_id) where one evaluation of that protocol was chosen: rows of the others are not read.
    """

    address: str
    manifest: Manifest
    filesystem: fsspec.AbstractFileSystem
    root: str
    chosen: tuple[str, str] | None = None

    @classmethod
    def open(cls, reference: str | Path, *, allow_incomplete: bool = False) -> Run:
        """Open a run given as a path, an fsspec address, or a name under the nearest ``runs/``.

        Raises DataError if it is missing, of another schema version, unfinished (unless
        ``allow_incomplete``), or lacks a part that its manifest lists.
        """
        address = resolve(str(reference))
        filesystem, root = located(address)
        manifest = read_manifest(address)
        if manifest.status != "complete" and not allow_incomplete:
            raise DataError(
                f"{address}: the run is {manifest.status}, not complete; finish it (the same command resumes), "
                "or pass --allow-incomplete"
            )
        run = cls(address, manifest, filesystem, root)
        run._check_parts()
        return run

    @property
    def name(self) -> str:
        """The folder's name, used in reports."""
        return PurePosixPath(self.root.rstrip("/")).name

    @property
    def label(self) -> str:
        """Display name of the arm: the manifest's label, else the folder's name."""
        return self.manifest.label or self.name

    def tables(self) -> list[str]:
        """Names of the tables that this run has, in schema order."""
        return [name for name in TABLES if self.files(name)]

    def has(self, name: str) -> bool:
        """Whether the run has table ``name``."""
        return bool(self.files(name))

    def files(self, name: str) -> list[str]:
        """Paths (on ``filesystem``) of the table's part files: as listed, or all files of an unlisted table."""
        if name in self.manifest.tables:
            return [f"{self.root}/{part.file}" for part in self.manifest.tables[name]]
        path = f"{self.root}/{name}.parquet"
        if self.filesystem.isfile(path):
            return [path]
        if self.filesystem.isdir(path):
            files = self.filesystem.glob(f"{path}/*.parquet")
            return sorted(f for f in files if not PurePosixPath(f).name.startswith("."))
        return []

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table, checked against its schema. Raises DataError naming the file and column at fault."""
        parts = list(self.iter_parts(name, columns))
        if not parts:
            raise DataError(f"{self.address}: the run has no {name}.parquet")
        return pa.concat_tables(parts)

    def iter_parts(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The table's part files, one conformed Arrow table each."""
        for path in self.files(name):
            yield self.read_part(name, path, columns)

    def read_part(self, name: str, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One part file of table ``name``, conformed; only the requested columns are read, of the chosen rows."""
        choosing = self.chosen is not None and "eval_id" in TABLES[name].names
        wanted = columns if columns is None or not choosing else list(dict.fromkeys([*columns, "eval_id", "protocol"]))
        try:
            with self.filesystem.open(path, "rb") as file:
                parquet = pq.ParquetFile(file)
                there = set(parquet.schema_arrow.names)
                table = parquet.read(columns=None if wanted is None else [c for c in wanted if c in there])
        except (ValueError, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{path}: not a readable Parquet file ({reason}); copy or write it again") from error
        table = conform(table, name, path, wanted)
        return self.of_choice(table).select(columns or table.column_names) if choosing else table

    def of_choice(self, table: pa.Table) -> pa.Table:
        """Rows of a table with columns eval_id and protocol, without those of evaluations that were not chosen."""
        if self.chosen is None:
            return table
        protocol, eval_id = self.chosen
        strings = (table[name].cast(pa.string()) for name in ("protocol", "eval_id"))
        of_protocol, of_evaluation = (pc.equal(c, x) for c, x in zip(strings, (protocol, eval_id), strict=True))
        return table.filter(pc.or_(pc.invert(of_protocol), of_evaluation))

    def _check_parts(self) -> None:
        for name, parts in self.manifest.tables.items():
            for part in parts:
                path = f"{self.root}/{part.file}"
                if not self.filesystem.exists(path):
                    raise DataError(f"{path}: listed in {MANIFEST} but missing; copy the whole run folder")
                try:
                    with self.filesystem.open(path, "rb") as file:
                        rows = pq.ParquetFile(file).metadata.num_rows
                except (ValueError, OSError) as error:
                    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                    raise DataError(
                        f"{path}: not a readable Parquet file ({reason}); copy or write it again"
                    ) from error
                if rows != part.rows:
                    raise DataError(f"{path}: {rows} rows, but {MANIFEST} lists {part.rows} for table {name}")


def read_manifest(address: str) -> Manifest:
    """The manifest of a run folder. Raises DataError if missing, not JSON, or of another schema version."""
    filesystem, root = located(address)
    path = f"{root}/{MANIFEST}"
    try:
        text = filesystem.cat_file(path)
    except FileNotFoundError as error:
        raise DataError(f"{address}: {MANIFEST} is missing; every run folder has one") from error
    except Exception as error:  # each storage library has its own errors: credentials, network
        raise DataError(f"{address}: cannot be read ({type(error).__name__}: {error})") from error
    try:
        data = json.loads(text, parse_constant=lambda _: math.nan)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: not JSON ({error}); the file is damaged or half-written") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if type(version) is not int or version not in READABLE_VERSIONS:
        raise DataError(
            f"{path}: schema_version is {version!r}; this draftlab reads {' and '.join(map(str, READABLE_VERSIONS))}; "
            "use the draftlab that wrote it, or import the run anew"
        )
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(piece) for piece in first["loc"])
        raise DataError(f"{path}: field '{field}': {first['msg']}") from error
