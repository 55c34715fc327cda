"""Prompt lookup: draft what followed the last tokens when they occurred before (Saxena 2023, "prompt lookup decoding").

Needs no training and no hidden states, so a trained drafter has to beat it on whole answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

LONGEST = 3  # tokens


def lookup(
    tokens: Sequence[int] | NDArray[np.int64], count: int, longest: int = LONGEST, least: int = 1
) -> NDArray[np.int64]:
    """Draft ``count`` tokens after ``tokens``: int64 [count], or [0] if the last ``least`` never occurred before.

    The longest match wins, of at most ``longest`` tokens; of equally long ones, the most recent. A match that lies
    closer to the end than ``count`` tokens repeats: after "a b a b" the draft is "a b a b ...".
    Raises ValueError if ``count`` is negative or not 1 <= ``least`` <= ``longest``.
    """
    if count < 0 or not 1 <= least <= longest:
        raise ValueError("lookup requires count >= 0 and 1 <= least <= longest")
    history = np.asarray(tokens, dtype=np.int64)
    for n in range(min(longest, len(history) - 1), least - 1, -1):
        # the windows end before the last token, so that the suffix does not match itself
        found = np.flatnonzero((sliding_window_view(history[:-1], n) == history[-n:]).all(axis=1))
        if found.size:
            copied = history[found[-1] + n :]
            return np.resize(copied, count)
    return history[:0]
