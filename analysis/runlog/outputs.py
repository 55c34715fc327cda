"""One hash and one measure of repetition for outputs, whoever logs them.

Outputs are equal where their hashes are. A hash of tokens and a hash of a text are of different units: they say nothing
about each other, so who compares hashes asks first whether both are of one unit (:attr:`Counting.ids`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Sequence

import numpy as np


def hash_of_tokens(tokens: Sequence[int]) -> str:
    """Short hash (16 hex digits) of output tokens, little-endian int32."""
    return hashlib.sha256(np.asarray(tokens, dtype="<i4").tobytes()).hexdigest()[:16]


def hash_of_text(text: str) -> str:
    """Short hash (16 hex digits) of an output of which only the text is known."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def repetition(items: Sequence[Hashable], n: int = 4) -> float:
    """Share of repeated n-grams of tokens or words, 1 - distinct / all: 0 where none repeats, near 1 in a loop.

    Sequences shorter than n + 1 have one n-gram at most, so 0.
    """
    grams = [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def words(text: str) -> list[str]:
    """Words of a text, each with the white space before it: joined they are the text."""
    return re.findall(r"\s*\S+|\s+$", text)


def ids_of_words(pieces: Sequence[str]) -> list[int]:
    """(n,) 31-bit hashes of words, in place of token ids where no text may be written."""
    return [int.from_bytes(hashlib.blake2s(w.encode(errors="replace"), digest_size=4).digest()) >> 1 for w in pieces]
