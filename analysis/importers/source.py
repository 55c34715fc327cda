"""A log file as text and JSON values, whatever its encoding, compression and damage.

gzip and zstd are recognised by their first bytes, UTF-8 and UTF-16 by their byte-order marks; CRLF is a line end.
What cannot be read of a JSON-lines file is a :class:`Problem` with its line, and the rest is read.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from analysis.errors import DataError, UsageError

GZIP, ZSTD, PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
#: A single JSON document is parsed whole; JSON lines are not, so only they may be larger.
LARGEST_DOCUMENT = 1 << 30
_SNIFF_LINES = 200
_SNIFF_BYTES = 1 << 20


@dataclass(frozen=True)
class Problem:
    """A row that was not imported: its 1-based line in the file (None: no one line) and why."""

    line: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.line is None else f"line {self.line}: {self.reason}"


@dataclass(frozen=True)
class Row:
    """A JSON object of a file, with the line on which it stands (of a JSON array: its number)."""

    line: int
    value: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """One log file. ``path`` is local; ``name`` is its file name without compression suffixes."""

    path: Path
    damage: list[Problem] = field(default_factory=list, compare=False)

    @classmethod
    def open(cls, path: Path | str) -> Source:
        """Raises UsageError if there is no such file, DataError if it is empty."""
        source = cls(Path(path))
        if source.path.is_dir():
            raise UsageError(f"{path}: a folder, not a log file")
        try:
            size = source.path.stat().st_size
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
        if not size:
            raise DataError(f"{path}: the file is empty")
        return source

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(".gz").removesuffix(".zst")

    @property
    def stem(self) -> str:
        """The file's name without suffixes of formats (version numbers with dots stay)."""
        stem = self.name
        for suffix in (".jsonl", ".json", ".csv", ".parquet", ".txt", ".log", ".prom"):
            stem = stem.removesuffix(suffix)
        return stem or self.name

    @cached_property
    def is_parquet(self) -> bool:
        with self.path.open("rb") as file:
            return file.read(4) == PARQUET

    @cached_property
    def document(self) -> Any:
        """The value, if the file is one JSON value (over several lines, or not an object on a line of many)."""
        if self.is_parquet or self._has_json_lines():
            return None
        with self._bytes() as file:
            data = _read(file, LARGEST_DOCUMENT + 1)
        if len(data) > LARGEST_DOCUMENT:
            return None
        text = _decode(data).strip().rstrip("\x00").rstrip()
        if not text.startswith(("{", "[")):
            return None
        try:
            return parse(text)
        except ValueError:
            return None

    def _has_json_lines(self) -> bool:
        """Whether one of the first two lines is a whole JSON object and another line follows it."""
        lines = [line for line in self.head.splitlines() if line.strip()]
        for line in lines[:2] if len(lines) > 1 else ():
            try:
                if isinstance(parse(line), dict):
                    return True
            except ValueError:
                pass
        return False

    @cached_property
    def head(self) -> str:
        """The first mebibyte of the file, as text."""
        if self.is_parquet:
            return ""
        with self._bytes() as file:
            return _decode(_read(file, _SNIFF_BYTES))

    @cached_property
    def sample(self) -> list[dict[str, Any]]:
        """The first JSON objects of the file, enough to tell what it is."""
        rows = []
        for line in self.head.splitlines()[:_SNIFF_LINES]:
            try:
                value = parse(line.strip("\x00 \t\r\n"))
            except ValueError:
                continue
            rows += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict)]
        if not rows and self.document is not None:
            items = self.document if isinstance(self.document, list) else [self.document]
            rows = [v for v in items[:_SNIFF_LINES] if isinstance(v, dict)]
        return rows

    @property
    def first_value(self) -> Any:
        """The document that the file is, else its first object; None if it has none."""
        return self.document if self.document is not None else next(iter(self.sample), None)

    def lines(self) -> Iterator[tuple[int, str]]:
        """(1-based number, text without its end) of every line that is not empty."""
        with self._bytes() as file:
            first = file.read(2)
            if first in (b"\xff\xfe", b"\xfe\xff"):
                decoded = io.StringIO(_decode(first + _read(file, -1)))
                yield from ((n, t.rstrip("\r\n")) for n, t in enumerate(decoded, 1) if t.strip())
                return
            number, rest = 1, first
            try:
                for line in file:
                    text = _decode(rest + line).rstrip("\r\n")
                    if text.strip():
                        yield number, text
                    number, rest = number + 1, b""
            except (OSError, EOFError, pa.ArrowException) as error:
                self.damage.append(Problem(number, f"the compressed file is damaged or cut off here ({_brief(error)})"))
            if rest.strip():
                yield number, _decode(rest).rstrip("\r\n")

    def rows(self) -> Iterator[Row]:
        """Every JSON object: of the lines, or of the one array or object that the file is. What is no object is
        added to ``damage``."""
        self.damage.clear()
        if self.document is not None and not (isinstance(self.document, dict) and "\n" not in self.head.strip()):
            items = self.document if isinstance(self.document, list) else [self.document]
            for number, value in enumerate(items, 1):
                if isinstance(value, dict):
                    yield Row(number, value)
                else:
                    self.damage.append(Problem(number, f"not an object but {_kind(value)}"))
            return
        for number, text in self.lines():
            if not text.strip("\x00 \t"):
                self.damage.append(Problem(number, "NUL bytes: the writer was stopped here"))
                continue
            try:
                value = parse(text.strip("\x00 \t"))
            except ValueError as error:
                self.damage.append(Problem(number, f"not JSON ({_brief(error)}): half a line, or damaged"))
                continue
            if not isinstance(value, dict):
                self.damage.append(Problem(number, f"not an object but {_kind(value)}"))
                continue
            if "\x00" in text:
                self.damage.append(Problem(number, "NUL bytes beside the row: the writer was stopped here; row kept"))
            yield Row(number, value)

    def _bytes(self) -> BinaryIO:
        with self.path.open("rb") as file:
            magic = file.read(4)
        if magic.startswith(GZIP):
            return gzip.open(self.path, "rb")  # type: ignore[return-value]
        if magic == ZSTD:
            return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(self.path)), "zstd"))  # type: ignore
        return self.path.open("rb")


def parse(text: str) -> Any:
    """A JSON value. Raises ValueError for what is none, for one nested too deeply, and for a repeated key, whose
    value would depend on the reader."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key '{next(n for n in names if names.count(n) > 1)}' is given twice")
    return value


def _read(file: BinaryIO, size: int) -> bytes:
    """Up to ``size`` bytes (-1: all), as far as a damaged compressed file gives them."""
    chunks, left = [], size
    try:
        while left and (chunk := file.read(min(left, 1 << 20) if left > 0 else 1 << 20)):
            chunks.append(chunk)
            left -= len(chunk) if left > 0 else 0
    except (OSError, EOFError, pa.ArrowException):
        pass  # what could be read is judged; reading the rows says where it broke
    return b"".join(chunks)


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace").removeprefix("\ufeff")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


def _brief(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:80]


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")
