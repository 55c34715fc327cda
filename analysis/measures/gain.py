"""Is the gain of a gated arm larger on prompts where its gate moved more? A relation, not an effect.

The slope is of the per-prompt gain on the spread of the gate within the prompt, per standard deviation of the spread,
with a cluster-robust interval. It is taken within data sets (an intercept each): data sets differ in both, and a slope
between them is one of kinds of prompts. Nobody assigned prompts their spread: length and what the target finds hard
still move both. A slope of 0 does not mean that the dynamics do nothing, nor another that they do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from analysis.measures.gates import Gates
from analysis.runlog.pairing import Pairs
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import partition, without_rounding
from analysis.stats.exact import SMALLEST_P
from analysis.stats.inference import LEVEL


@dataclass(frozen=True, eq=False)
class GainBySpread:
    """``slope``: tokens of gain, gated arm over the other, per standard deviation of the spread over all prompts,
    within data sets, with interval and p (cluster-robust t); ``correlation``: Pearson's, within data sets as well;
    ``points``: prompt_id, dataset, spread, gain per prompt."""

    side: str
    slope: float
    lo: float
    hi: float
    p: float
    correlation: float
    n_pairs: int
    n_clusters: int
    points: pd.DataFrame


def gain_by_spread(pairs: Pairs, gates_a: Gates | None, gates_b: Gates | None) -> GainBySpread | None:
    """For the arm whose gate moves, B if both do; None if neither does, or for want of spread or clusters."""
    side, gates = ("B", gates_b) if gates_b is not None and len(gates_b.spread) else ("A", gates_a)
    if gates is None or gates.spread.empty:
        return None
    rows = pairs.frame.merge(gates.spread, on=list(PAIR_KEY))
    gain = (rows["tokens_b"] / rows["steps_b"] - rows["tokens_a"] / rows["steps_a"]).to_numpy()
    gain = gain if side == "B" else -gain
    spread = rows["spread"].to_numpy()
    clusters = partition(rows["cluster_id"])
    datasets = partition(rows["dataset"])
    n, count, coefficients = gain.size, clusters.count, datasets.count + 1
    if count < 3 or n <= coefficients:
        return None
    x, y = (without_rounding(v - (datasets.sums(v) / datasets.sizes)[datasets.index], v) for v in (spread, gain))
    if not np.ptp(x) > 1e-9 or not y.any():
        return None
    x = x / spread.std(ddof=1)
    slope = float(x @ y / (x @ x))
    scores = clusters.sums(without_rounding(x * (y - slope * x), y))
    # statsmodels' cluster covariance, with its factor for the coefficients
    factor = count / (count - 1) * (n - 1) / (n - coefficients)
    se = math.sqrt(factor * float(scores @ scores)) / float(x @ x)
    half = float(special.stdtrit(count - 1, (1 + LEVEL) / 2)) * se
    p = max(2 * float(special.stdtr(count - 1, -abs(slope) / se)), SMALLEST_P) if se > 0 else 1.0
    points = rows[["prompt_id", "dataset", "spread"]].assign(gain=gain)
    correlation = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    return GainBySpread(side, slope, slope - half, slope + half, p, correlation, n, count, points)
