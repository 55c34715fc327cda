"""Is the gain of a gated arm larger on prompts where its gate moved more? An association, not an effect.

The slope is of the per-prompt gain on the spread of the gate within the prompt, per standard deviation of the spread,
with a cluster-robust interval. It is estimated within data sets (one intercept each), because data sets differ in both
and a slope between them would compare kinds of prompts. The spread was not assigned at random: answer length and
difficulty affect both. A slope of 0 does not show that the dynamics do nothing, and another slope does not show that
they help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.measures.gates import Gates
from analysis.runlog.pairing import Pairs
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import partition
from analysis.stats.method import LEVEL
from analysis.stats.regression import slope


@dataclass(frozen=True, eq=False)
class GainBySpread:
    """``slope``: tokens of gain, gated arm over the other, per standard deviation of the spread over all prompts,
    within data sets, with interval and p (CR2, :mod:`analysis.stats.regression`); ``n_effective``: effective number of
    clusters; ``correlation``: Pearson's, within data sets as well; ``points``: prompt_id, dataset, spread, gain per
    prompt."""

    side: str
    slope: float
    lo: float
    hi: float
    p: float
    correlation: float
    n_pairs: int
    n_clusters: int
    n_effective: float
    points: pd.DataFrame


def gain_by_spread(pairs: Pairs, gates_a: Gates | None, gates_b: Gates | None) -> GainBySpread | None:
    """For the arm with a moving gate (B if both have one); None without a moving gate, or with too little spread or too
    few clusters."""
    side, gates = ("B", gates_b) if gates_b is not None and len(gates_b.spread) else ("A", gates_a)
    if gates is None or gates.spread.empty:
        return None
    rows = pairs.frame.merge(gates.spread, on=list(PAIR_KEY))
    gain = (rows["tokens_b"] / rows["steps_b"] - rows["tokens_a"] / rows["steps_a"]).to_numpy()
    gain = gain if side == "B" else -gain
    spread = rows["spread"].to_numpy()
    clusters, datasets = partition(rows["cluster_id"]), partition(rows["dataset"])
    if gain.size < 2 or not np.ptp(spread) > 0:
        return None
    found = slope(spread / spread.std(ddof=1), gain, datasets, clusters, LEVEL)
    if found is None:
        return None
    points = rows[["prompt_id", "dataset", "spread"]].assign(gain=gain)
    x, y = (v - (datasets.sums(v) / datasets.sizes)[datasets.index] for v in (spread, gain))
    return GainBySpread(
        side=side,
        slope=found.slope,
        lo=found.lo,
        hi=found.hi,
        p=found.p,
        correlation=float(x @ y) / math.sqrt(float(x @ x) * float(y @ y)),
        n_pairs=gain.size,
        n_clusters=clusters.count,
        n_effective=found.effective,
        points=points,
    )
