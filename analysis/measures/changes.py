"""How many prompts change from A to B, in which direction, and by how much: a mean can rest on few of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from analysis.stats.cluster import cluster_t, partition
from analysis.stats.estimate import interval_of

Direction = Literal["B higher", "A higher", "equal"]


@dataclass(frozen=True)
class Change:
    """The prompts that move in one direction: ``n`` of them, their ``share`` of all pairs with a cluster-robust 95%
    interval over ``n_effective`` effective clusters, and the ``mean`` and ``median`` of B - A among them, in tokens per
    step (None without any)."""

    direction: Direction
    n: int
    share: float
    lo: float | None
    hi: float | None
    n_effective: float | None
    mean: float | None
    median: float | None


def changes(pairs: pd.DataFrame) -> tuple[Change, ...]:
    """Of pairs with counts; empty without any. Each prompt's value is its tokens per step, compared in integers."""
    if pairs.empty:
        return ()
    tokens_a, steps_a, tokens_b, steps_b = (
        pairs[name].to_numpy(dtype=np.int64) for name in ("tokens_a", "steps_a", "tokens_b", "steps_b")
    )
    sign = np.sign(tokens_b * steps_a - tokens_a * steps_b)
    difference = tokens_b / steps_b - tokens_a / steps_a
    clusters = partition(pairs["cluster"])
    directions: tuple[tuple[Direction, int], ...] = (("B higher", 1), ("A higher", -1), ("equal", 0))
    found = []
    for direction, of_sign in directions:
        here = sign == of_sign
        robust = cluster_t(here.astype(float), clusters)
        share, lo, hi = interval_of(robust)
        moved = difference[here] if of_sign and here.any() else None
        of_moved = (None, None) if moved is None else (float(moved.mean()), float(np.median(moved)))
        lo, hi = (None, None) if lo is None or hi is None else (max(lo, 0.0), min(hi, 1.0))
        effective = robust.effective if robust.se else None
        found.append(Change(direction, int(here.sum()), share, lo, hi, effective, *of_moved))
    return tuple(found)
