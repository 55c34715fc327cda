"""Text that is not UTF-8: records whose bytes cannot be decoded are refused, with the encoding to try.

A reader that replaces or skips them changes ids and drops rows, not at random: those with names, formulas, or another
language.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from analysis.errors import DataError, UsageError
from analysis.importers.source import Source

_BLOCK = 1 << 20


def known_encoding(name: str) -> str:
    """The codec's own name. Raises UsageError for one that Python does not know, or that is no text encoding."""
    try:
        found = codecs.lookup(name)
    except LookupError as error:
        raise UsageError(f"--encoding {name}: unknown; for example cp1252, latin-1, gb18030, utf-16-le") from error
    if not found._is_text_encoding:
        raise UsageError(f"--encoding {name}: not an encoding of text")
    return found.name


def require_decodable(source: Source) -> None:
    """Raises DataError for the first record that is not UTF-8. A half character at the very end, where a writer
    stopped, is part of the line that was cut off."""
    if source.is_parquet:
        return
    of_objects = bool(source.sample) or source.document is not None
    for line, data, last in _undecodable(source.blocks(_BLOCK)):
        if of_objects and source.document is None and not data.lstrip().startswith((b"{", b"[")):
            continue  # noise between the records of a log
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if last and error.reason == "unexpected end of data" and not source.ends_with_line:
                return
            raise DataError(
                f"{source.path}: line {line} is not UTF-8 (byte 0x{data[error.start]:02X} at {error.start + 1}); save "
                f"the file as UTF-8, or name its encoding, for example --encoding {_likely(data)}"
            ) from None


def _undecodable(blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool]]:
    """(number, bytes, whether nothing follows in its block) of lines that are not UTF-8."""
    for number, block in blocks:
        try:
            block.decode()
            continue
        except UnicodeDecodeError:
            pass
        lines = block[:-1].split(b"\n")
        for place, line in enumerate(lines):
            try:
                line.decode()
            except UnicodeDecodeError:
                yield number + place, line, place + 1 == len(lines)


def _likely(data: bytes) -> str:
    """An encoding that could be meant: a guess, which the user judges."""
    if data.count(0) > len(data) // 4:
        return "utf-16-le"
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"
