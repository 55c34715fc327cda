"""Reading and writing a run folder: manifest, Parquet tables, and nothing half-written taken for whole.

    runs/<name>/run.json               the manifest (analysis.manifest)
                <table>.parquet        one file, or a folder of part files (analysis.schema)

A writer streams rows to hidden temporary files, renames them into place on :meth:`RunWriter.commit`, and
only then names them in the manifest. A reader believes the manifest: every part that it lists must be there
with its rows, and a run that is not ``complete`` is refused unless asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
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
from analysis.manifest import Manifest, Part, Status
from analysis.schema import NULLABLE, SCHEMA_VERSION, TABLES

MANIFEST = "run.json"


def conform(table: pa.Table, name: str, where: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Cast ``table`` to the schema of table ``name``: columns in order, exact types; extra columns dropped.

    ``columns``: only these of the schema's, in their order. NaN in an integer column counts as null. Raises DataError
    naming ``where`` and the column for a column that is missing, cannot be cast without loss, or holds nulls that its
    schema forbids.
    """
    schema = TABLES[name] if columns is None else pa.schema([TABLES[name].field(column) for column in columns])
    arrays = []
    for field in schema:
        if field.name not in table.column_names:
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
            raise DataError(f"{where}: column '{field.name}' has {column.null_count} nulls; it may have none")
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


def _parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Encodings by kind: measured floats hardly ever repeat, and their bytes compress by a third better apart."""
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    others = [f.name for f in schema if not pa.types.is_floating(f.type) and not pa.types.is_nested(f.type)]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=9,
        use_dictionary=others,
        use_byte_stream_split=floats,
    )


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write under a temporary name, flush to disk, rename: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class RunWriter:
    """Writes one run folder.

    ``append`` streams rows to a temporary file; ``commit`` renames what was appended and lists it in the
    manifest; ``save`` rewrites ``run.json``. ``part`` names a file inside the table's folder (an evaluation,
    a rank); without it the table is a single file, replaced as a whole.
    """

    def __init__(self, folder: Path | str, manifest: Manifest):
        self.folder = Path(folder)
        self.manifest = manifest
        self._open: dict[tuple[str, str | None], tuple[pq.ParquetWriter, Path, Path]] = {}
        self.folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def resume(cls, folder: Path | str) -> RunWriter:
        """Go on with a run folder that exists, finished or not."""
        return cls(folder, read_manifest(str(folder)))

    def append(
        self,
        name: str,
        rows: pa.Table | Sequence[Mapping[str, Any]] | Mapping[str, Any],
        part: str | None = None,
    ) -> None:
        """Add rows to table ``name``; they are invisible to readers until ``commit``."""
        table = conform(rows, name, f"new rows of {name}") if isinstance(rows, pa.Table) else rows_to_table(name, rows)
        if (name, part) not in self._open:
            final = self.folder / f"{name}.parquet"
            if part is not None:
                final = final / f"{part}.parquet"
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
            writer = _parquet_writer(temporary, TABLES[name])
            self._open[name, part] = (writer, temporary, final)
        self._open[name, part][0].write_table(table)

    def commit(self) -> None:
        """Close what was appended, rename it into place and list it in the manifest."""
        for (name, _), (writer, temporary, final) in sorted(self._open.items(), key=lambda item: str(item[1][2])):
            writer.close()
            temporary.replace(final)
            file = final.relative_to(self.folder).as_posix()
            rows = pq.read_metadata(final).num_rows
            kept = [p for p in self.manifest.tables.get(name, []) if p.file != file]
            parts = [*kept, Part(file=file, rows=rows, sha256=sha256_of(final))]
            self.manifest.tables[name] = sorted(parts, key=lambda p: p.file)
        self._open.clear()
        self.save()

    def save(self) -> None:
        """Rewrite the manifest, with the overall status that its stages give."""
        self.manifest.status = self.manifest.overall_status()
        write_atomic(self.folder / MANIFEST, self.manifest.to_json())

    def finish(self, status: Status = "complete") -> None:
        """Commit, and set the overall status (for runs without stages, such as imported logs)."""
        self.commit()
        if status != self.manifest.status:
            self.manifest.status = status
            write_atomic(self.folder / MANIFEST, self.manifest.to_json())


@dataclass(frozen=True)
class Run:
    """A run folder opened for reading, local or behind any fsspec address."""

    address: str
    manifest: Manifest
    filesystem: fsspec.AbstractFileSystem
    root: str

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
        """The folder's name, by which reports call the run."""
        return PurePosixPath(self.root.rstrip("/")).name

    @property
    def label(self) -> str:
        """What people call this arm: the manifest's label, else the folder's name."""
        return self.manifest.label or self.name

    def tables(self) -> list[str]:
        """Names of the tables that this run has, in schema order."""
        return [name for name in TABLES if self.files(name)]

    def has(self, name: str) -> bool:
        """Whether the run has table ``name``."""
        return bool(self.files(name))

    def files(self, name: str) -> list[str]:
        """Paths (on ``filesystem``) of the table's part files: as listed, or as found in an unlisted table."""
        if name in self.manifest.tables:
            return [f"{self.root}/{part.file}" for part in self.manifest.tables[name]]
        path = f"{self.root}/{name}.parquet"
        if self.filesystem.isfile(path):
            return [path]
        if self.filesystem.isdir(path):
            found = self.filesystem.glob(f"{path}/*.parquet")
            return sorted(f for f in found if not PurePosixPath(f).name.startswith("."))
        return []

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The whole table, held against its schema. Raises DataError naming the file and column at fault."""
        parts = list(self.iter_parts(name, columns))
        if not parts:
            raise DataError(f"{self.address}: the run has no {name}.parquet")
        return pa.concat_tables(parts)

    def iter_parts(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The table's part files, one conformed Arrow table each."""
        for path in self.files(name):
            yield self.read_part(name, path, columns)

    def read_part(self, name: str, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """One part file of table ``name``, conformed; of its columns only those asked for are read."""
        try:
            with self.filesystem.open(path, "rb") as file:
                parquet = pq.ParquetFile(file)
                there = set(parquet.schema_arrow.names)
                table = parquet.read(columns=None if columns is None else [c for c in columns if c in there])
        except (pa.ArrowInvalid, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataError(f"{path}: not a readable Parquet file ({reason}); copy or write it again") from error
        return conform(table, name, path, columns)

    def _check_parts(self) -> None:
        for name, parts in self.manifest.tables.items():
            for part in parts:
                path = f"{self.root}/{part.file}"
                if not self.filesystem.exists(path):
                    raise DataError(f"{path}: listed in {MANIFEST} but missing; copy the whole run folder")
                try:
                    with self.filesystem.open(path, "rb") as file:
                        rows = pq.ParquetFile(file).metadata.num_rows
                except (pa.ArrowInvalid, OSError) as error:
                    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                    raise DataError(
                        f"{path}: not a readable Parquet file ({reason}); copy or write it again"
                    ) from error
                if rows != part.rows:
                    raise DataError(f"{path}: {rows} rows, but {MANIFEST} lists {part.rows} for table {name}")


def resolve(reference: str) -> str:
    """Address of a run: an fsspec address as it is, a folder, or ``runs/<name>`` of this or a parent folder."""
    if "://" in reference:
        return reference.rstrip("/")
    if Path(reference).is_dir():
        return str(Path(reference))
    if (runs := find_runs_folder()) is not None:
        if (runs / reference).is_dir():
            return str(runs / reference)
        known = sorted(p.parent.name for p in runs.glob(f"*/{MANIFEST}"))
        listing = ", ".join(known) if known else "none"
        raise DataError(f"no run '{reference}': not a folder, and not a name under {runs} (there: {listing})")
    raise DataError(f"no run '{reference}': not a folder, and no runs/ folder here or above")


def located(address: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The filesystem of a path or fsspec address, and the path on it. Raises DataError if there is none for it."""
    try:
        return fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise DataError(f"{address}: {error} (for s3://: pip install 'draftlab[remote]')") from error
    except ValueError as error:
        raise DataError(f"{address}: {error}") from error


def find_runs_folder(start: Path | None = None) -> Path | None:
    """The ``runs/`` folder of ``start`` (default: the working directory) or of its nearest parent that has one."""
    start = (start or Path.cwd()).resolve()
    return next((p / "runs" for p in (start, *start.parents) if (p / "runs").is_dir()), None)


def read_manifest(address: str) -> Manifest:
    """The manifest of a run folder. Raises DataError if missing, not JSON, or of another schema version."""
    filesystem, root = located(address)
    path = f"{root}/{MANIFEST}"
    try:
        text = filesystem.cat_file(path)
    except FileNotFoundError as error:
        raise DataError(f"{address}: no {MANIFEST}; a run folder has one") from error
    except Exception as error:  # each library of a storage has errors of its own: no credentials, no network
        raise DataError(f"{address}: cannot be read ({type(error).__name__}: {error})") from error
    try:
        data = json.loads(text, parse_constant=lambda _: math.nan)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: not JSON ({error}); the file is damaged or half-written") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(
            f"{path}: schema_version is {version!r}; this draftlab reads {SCHEMA_VERSION}; "
            "use the draftlab that wrote it, or import the run anew"
        )
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(piece) for piece in first["loc"])
        raise DataError(f"{path}: field '{field}': {first['msg']}") from error
