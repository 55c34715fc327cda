"""A log file as text and JSON values, whatever its encoding, compression and damage.

gzip and zstd are recognised by their first bytes, UTF-8 and UTF-16 by their byte-order marks; CRLF is a line end.
What cannot be read of a JSON-lines file is a :class:`Problem` with its line, and the rest is read.
"""

from __future__ import annotations

import codecs
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from analysis.errors import DataError, UsageError
from analysis.importers.compressed import BROKEN, PIECE, pieces
from analysis.importers.json_text import parse
from analysis.importers.nested import at

PARQUET = b"PAR1"
UTF16 = (b"\xff\xfe", b"\xfe\xff")
#: A single JSON document is parsed whole; JSON lines are not, so only they may be larger.
LARGEST_DOCUMENT = 1 << 30
_SNIFF_ROWS = 200
_SNIFF_BYTES = 1 << 20
#: Of a file whose first two lines are longer than _SNIFF_BYTES this much is looked at.
_LONGEST_LINES = 1 << 26


#: Why a row is not imported. ``invalid``: a record of the format that contradicts itself or lacks a field; the others
#: are no fault of the log's records: ``unrelated`` lines, a line ``cut off`` where the writer stopped, a request that
#: ``failed``, a prompt with ``no steps``, an earlier run of a prompt that was ``run again``. ``detail``: the reason
#: behind another problem, or a row that was kept.
Kind = Literal["invalid", "unrelated", "cut off", "failed", "no steps", "run again", "detail"]


@dataclass(frozen=True)
class Problem:
    """A row that was not imported: its 1-based line in the file (None: no one line), why, and the kind of reason."""

    line: int | None
    reason: str
    kind: Kind = "invalid"

    def __str__(self) -> str:
        return self.reason if self.line is None else f"line {self.line}: {self.reason}"


@dataclass(frozen=True)
class Row:
    """A JSON object of a file, with the line on which it stands (of a JSON array: its number).

    ``more``: columns of a table beside those that have one of our names.
    """

    line: int
    value: dict[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def others(self) -> Mapping[str, Any]:
        """The columns that may tell rows apart: those beside our own, or all of a JSON object."""
        return self.more or self.value


@dataclass(frozen=True)
class Source:
    """One log file. ``path`` is local; ``name`` is its file name without compression suffixes; ``encoding``: of
    its text, if that is neither UTF-8 nor UTF-16 with a mark; ``whole``: what the
    file is may show anywhere in it, not in its opening alone; ``inside``: the keys under which its rows stand."""

    path: Path
    encoding: str | None = None
    whole: bool = False
    inside: tuple[str, ...] = ()
    damage: list[Problem] = field(default_factory=list, compare=False)

    @classmethod
    def open(cls, path: Path | str, encoding: str | None = None) -> Source:
        """Raises UsageError if there is no such file, DataError if it is empty."""
        source = cls(Path(path), encoding)
        if source.path.is_dir():
            raise UsageError(f"{path}: a folder, not a log file; give the files in it, those of one arm together")
        if str(path) == "-":
            raise UsageError("standard input: a log is read more than once; write it to a file and give that")
        try:
            status = source.path.stat()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(
                f"{path}: a pipe or device; a log is read more than once; write it to a file and give that"
            )
        if not status.st_size:
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
        data = self._bytes(LARGEST_DOCUMENT + 1)
        if len(data) > LARGEST_DOCUMENT:
            return None
        text = _decode(data).strip().rstrip("\x00").rstrip()
        if not text.startswith(("{", "[")):
            return None
        try:
            return at(parse(text), self.inside)
        except ValueError:
            return None

    def _has_json_lines(self) -> bool:
        """Whether one of the first two lines is a whole JSON object and another line follows it."""
        lines = [line for line in self.head.split("\n") if line.strip()]
        for line in lines[:2] if len(lines) > 1 else ():
            try:
                if isinstance(parse(line), dict):
                    return True
            except ValueError:
                pass
        return False

    @cached_property
    def head(self) -> str:
        """The first mebibyte of the file as text, more if its first two lines are longer."""
        if self.is_parquet:
            return ""
        data = bytearray()
        for chunk in self._chunks([]):
            data += chunk
            if len(data) >= _SNIFF_BYTES and (data.count(b"\n") > 1 or len(data) >= _LONGEST_LINES):
                break
        return _decode(bytes(data))

    def opening(self) -> Iterator[str]:
        """The lines by which the file is recognised."""
        if self.whole and not self.is_parquet:
            yield from (text for _, text in self.lines())
        else:
            yield from self.head.split("\n")

    @cached_property
    def sample(self) -> list[dict[str, Any]]:
        """The first JSON objects of the file, enough to tell what it is."""
        rows: list[dict[str, Any]] = []
        for line in self.opening() if not self.inside else ():
            text = line.strip("\x00 \t\r")
            if not text.startswith(("{", "[")):
                continue
            try:
                value = parse(text)
            except ValueError:
                continue
            rows += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict)]
            if len(rows) >= _SNIFF_ROWS:
                break
        if not rows and self.document is not None:
            items = self.document if isinstance(self.document, list) else [self.document]
            rows = [v for v in items[:_SNIFF_ROWS] if isinstance(v, dict)]
        return rows

    @property
    def first_value(self) -> Any:
        """The document that the file is, else its first object; None if it has none."""
        return self.document if self.document is not None else next(iter(self.sample), None)

    def lines(self) -> Iterator[tuple[int, str]]:
        """(1-based number, text without its end) of every line that is not empty."""
        for number, block in self.blocks(PIECE):
            for place, line in enumerate(block[:-1].split(b"\n")):
                if text := text_of(line):
                    yield number + place, text

    def blocks(self, size: int) -> Iterator[tuple[int, bytes]]:
        """(1-based number of the first line, whole lines in UTF-8 with their ends), about ``size`` bytes at a time;
        the last line gets an end if it has none. Where a compressed file breaks off is told in ``damage``."""
        self.damage.clear()
        if self._bytes(2) in UTF16:
            chunks: Iterable[bytes] = [_decode(self._bytes()).encode()]
        else:
            chunks = self._chunks(self.damage)
        number, held = 1, bytearray()
        for chunk in chunks:
            held += chunk
            if len(held) >= size and (cut := held.rfind(b"\n") + 1):
                yield number, bytes(held[:cut])
                number += held.count(b"\n", 0, cut)
                del held[:cut]
        if held:
            yield number, bytes(held) if held.endswith(b"\n") else bytes(held) + b"\n"

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
                    self.damage.append(Problem(number, f"not an object but {_kind(value)}", "unrelated"))
            return
        last = 0
        for number, text in self.lines():
            last = number
            bare = text.strip("\x00 \t")
            if not bare:
                self.damage.append(Problem(number, "NUL bytes: the writer was stopped here", "cut off"))
                continue
            try:
                value = parse(bare)
            except ValueError as error:
                kind: Kind = "invalid" if bare.startswith("{") else "unrelated"
                self.damage.append(Problem(number, f"not JSON ({_brief(error)}): half a line, or damaged", kind))
                continue
            if not isinstance(value, dict):
                self.damage.append(Problem(number, f"not an object but {_kind(value)}", "unrelated"))
                continue
            if "\x00" in text:
                reason = "NUL bytes beside the row: the writer was stopped here; row kept"
                self.damage.append(Problem(number, reason, "detail"))
            yield Row(number, value)
        if self.damage and self.damage[-1].line == last and self.damage[-1].kind == "invalid":
            self.damage[-1] = replace(self.damage[-1], kind="cut off")  # where the writer stopped

    def _bytes(self, size: int | None = None) -> bytes:
        """The first ``size`` bytes, or all, as far as a damaged file gives them."""
        data = bytearray()
        for chunk in self._chunks([]):
            data += chunk
            if size is not None and len(data) >= size:
                break
        return bytes(data[:size])

    def _chunks(self, damage: list[Problem]) -> Iterator[bytes]:
        """Uncompressed bytes in pieces, in UTF-8 if the encoding was named; where a compressed file breaks off, a
        problem is added to ``damage``."""
        plain = self._pieces(damage)
        if self.encoding is None or self.is_parquet or self._is_utf8:
            yield from plain
            return
        try:
            for text in codecs.iterdecode(plain, self.encoding):
                yield text.encode()
        except UnicodeError as error:
            raise DataError(f"{self.path}: not {self.encoding}, the encoding that was named ({error})") from error

    @property
    def ends_with_line(self) -> bool:
        """Whether the last line has its end."""
        return any(piece.endswith(b"\n") for piece in deque(self._chunks([]), maxlen=1))

    @cached_property
    def _is_utf8(self) -> bool:
        """Whether all of it can be decoded, and holds no NUL, which UTF-16 without a mark does."""
        try:
            return not any("\x00" in text for text in codecs.iterdecode(self._pieces([]), "utf-8"))
        except UnicodeDecodeError:
            return False

    def _pieces(self, damage: list[Problem]) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            try:
                yield from pieces(file)
            except BROKEN as error:
                reason = f"the compressed file is damaged or cut off ({_brief(error)})"
                damage.append(Problem(None, reason, "cut off"))


def text_of(data: bytes) -> str:
    """A line as text; empty if it is blank."""
    text = _decode(data).rstrip("\r")
    return text if text.strip() else ""


def _decode(data: bytes) -> str:
    if data.startswith(UTF16):
        return data.decode("utf-16", errors="replace").removeprefix("\ufeff")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


def _brief(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:80]


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")
