"""Writing a run folder: rows are streamed, and incomplete files are never visible to readers.

Rows go to hidden temporary files, which :meth:`RunWriter.commit` renames into place, and only then names in the
manifest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.runlog.addresses import MANIFEST
from analysis.runlog.manifest import Manifest, Part, Status
from analysis.runlog.reading import conform, read_manifest, rows_to_table
from analysis.runlog.schema import SCHEMA_VERSION, TABLES

#: Rows that are buffered before they are written.
ROW_GROUP = 1 << 17


def _parquet_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Encoding by type: measured floats rarely repeat, and splitting their bytes improves compression by a third."""
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
    """Write under a temporary name, flush to disk, rename: readers see either the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@dataclass
class _Part:
    """A file being written. Rows are buffered until they fill a row group, because small row groups have large
    overhead."""

    writer: pq.ParquetWriter
    temporary: Path
    final: Path
    waiting: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> None:
        self.waiting.append(table)
        if sum(len(t) for t in self.waiting) >= ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting))
            self.waiting.clear()

    def close(self) -> None:
        self.flush()
        self.writer.close()
        self.temporary.replace(self.final)


class RunWriter:
    """Writes one run folder.

    ``append`` streams rows to a temporary file; ``commit`` renames what was appended and lists it in the
    manifest; ``save`` rewrites ``run.json``. ``part`` names a file inside the table's folder (an evaluation,
    a rank); without it the table is a single file, replaced as a whole.
    """

    def __init__(self, folder: Path | str, manifest: Manifest):
        self.folder = Path(folder)
        self.manifest = manifest
        self._open: dict[tuple[str, str | None], _Part] = {}
        self.folder.mkdir(parents=True, exist_ok=True)

    @classmethod
    def resume(cls, folder: Path | str) -> RunWriter:
        """Continue an existing run folder, finished or not."""
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
            self._open[name, part] = _Part(_parquet_writer(temporary, TABLES[name]), temporary, final)
        self._open[name, part].add(table)

    def commit(self) -> None:
        """Close what was appended, rename it into place and list it in the manifest."""
        for (name, _), part in sorted(self._open.items(), key=lambda item: str(item[1].final)):
            part.close()
            file = part.final.relative_to(self.folder).as_posix()
            rows = pq.read_metadata(part.final).num_rows
            kept = [p for p in self.manifest.tables.get(name, []) if p.file != file]
            parts = [*kept, Part(file=file, rows=rows, sha256=sha256_of(part.final))]
            self.manifest.tables[name] = sorted(parts, key=lambda p: p.file)
        self._open.clear()
        self.save()

    def save(self) -> None:
        """Rewrite the manifest, with the overall status derived from its stages."""
        self.manifest.status = self.manifest.overall_status()
        self.manifest.schema_version = SCHEMA_VERSION  # a run of an earlier version may get tables of this one
        write_atomic(self.folder / MANIFEST, self.manifest.to_json())

    def finish(self, status: Status = "complete") -> None:
        """Commit, and set the overall status (for runs without stages, such as imported logs)."""
        self.commit()
        if status != self.manifest.status:
            self.manifest.status = status
            write_atomic(self.folder / MANIFEST, self.manifest.to_json())
