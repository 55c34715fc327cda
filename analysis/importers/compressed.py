"""Uncompressed bytes of gzip and zstd files, as far as a damaged file gives them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PIECE = 1 << 20
#: What a file that is damaged or cut off raises.
BROKEN = (zlib.error, EOFError, OSError, pa.ArrowException)


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file that may be compressed. Raises one of BROKEN where a compressed file breaks off, after all
    that it gives."""
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(GZIP):
        yield from _gunzip(file)
    elif magic == ZSTD:
        yield from _unzstd(file)
    else:
        while piece := file.read(PIECE):
            yield piece


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    """What a gzip file of one or more members holds; unlike the gzip module it gives all up to a break."""
    member = zlib.decompressobj(wbits=31)
    while piece := file.read(PIECE):
        while piece:
            if member.eof:
                if not piece.strip(b"\x00"):
                    break
                member = zlib.decompressobj(wbits=31)
            yield member.decompress(piece)
            piece = member.unused_data
    if not member.eof:
        raise EOFError("it ends before its end mark")


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
    while piece := stream.read(1 << 16):  # under a block: a break loses no more than its own block
        yield piece
