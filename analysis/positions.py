"""Acceptance by draft position: how often the first k drafted tokens all survive verification.

Only slots at risk count: a slot after the stop token or the length limit could not have been accepted, whatever
the drafter. At the last slot acceptance is censored: a longer block might have gone on.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import special

from analysis.cluster import ClusterMean, cluster_t, partition
from analysis.load import Evaluated
from analysis.pair import Pairs
from analysis.ratio import linearise
from analysis.schema import PAIR_KEY


def survival(evaluated: Evaluated, pairs: Pairs) -> pd.DataFrame:
    """P(accepted >= k) for k = 1..B-1 over the paired prompts: one row per k with ``survival``, its 95% interval
    ``lo``, ``hi`` over prompt clusters and ``at_risk`` steps.

    The interval is Wilson's for the effective number of steps, survival (1 - survival) / se^2 with the
    cluster-robust se: unlike mean +- t se it stays inside 0..1 and has a width at 0 and at 1.
    """
    key = list(PAIR_KEY)
    columns = [*key, "drafted", "eligible", "accepted"]
    steps = evaluated.steps.select(columns).to_pandas().merge(pairs.frame[[*key, "cluster_id"]], on=key)
    # logs that do not tell which slots were at risk: all that were drafted
    eligible = steps["eligible"].fillna(steps["drafted"]).to_numpy(dtype=np.float64)
    accepted = steps["accepted"].to_numpy(dtype=np.float64)
    prompt = steps.groupby(key).ngroup().to_numpy()
    cluster_of_prompt = steps.groupby(prompt)["cluster_id"].first().to_numpy()
    rows = []
    for k in range(1, int(np.nanmax(eligible, initial=0)) + 1):
        at_risk = np.bincount(prompt, eligible >= k)
        survived = np.bincount(prompt, (eligible >= k) & (accepted >= k))
        some = at_risk > 0
        mean = cluster_t(linearise(survived[some], at_risk[some]), partition(cluster_of_prompt[some]))
        lo, hi = _wilson(mean)
        rows.append({"k": k, "survival": mean.mean, "lo": lo, "hi": hi, "at_risk": int(at_risk.sum())})
    return pd.DataFrame(rows, columns=["k", "survival", "lo", "hi", "at_risk"])


def _wilson(share: ClusterMean, level: float = 0.95) -> tuple[float, float]:
    p, clusters = share.mean, share.df + 1
    # without spread every cluster counts as one observation; one cluster leaves everything open
    n = p * (1 - p) / share.se**2 if share.se else clusters
    if clusters < 2:
        return 0.0, 1.0
    z2 = float(special.stdtrit(share.df, (1 + level) / 2)) ** 2
    centre, half = p + z2 / (2 * n), np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n)))
    return max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))
