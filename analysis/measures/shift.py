"""Where in the distribution of accepted lengths the arms differ: the shift function over the paired prompts."""

from __future__ import annotations

import pandas as pd

from analysis.stats.cluster import partition
from analysis.stats.shift import Shift, shift_function


def shift(pairs: pd.DataFrame) -> Shift | None:
    """Of each prompt's tokens per step; None with fewer than two pairs or without a difference."""
    a, b = (pairs[f"tokens_{side}"].to_numpy(float) / pairs[f"steps_{side}"].to_numpy(float) for side in "ab")
    return shift_function(a, b, partition(pairs["cluster"])) if len(pairs) > 1 and (a != b).any() else None
