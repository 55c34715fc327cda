"""Acceptance by draft position: how often the first k drafted tokens survive verification, and where they fail.

Only slots at risk count: a slot after the stop token or the length limit could not have been accepted, whatever
the drafter. At the last slot acceptance is censored: a longer block might have gone on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from analysis.cluster import ClusterMean, Partition, cluster_t, partition
from analysis.inference import LEVEL
from analysis.keys import in_order
from analysis.load import Evaluated
from analysis.pair import Pairs
from analysis.ratio import linearise
from analysis.step_counts import Counts

CURVE = (
    *("k", "survival", "lo", "hi", "at_risk"),
    *("conditional", "conditional_lo", "conditional_hi", "reached", "missed_vocabulary"),
)


@dataclass(frozen=True)
class Ceiling:
    """The mass at the last slot, where acceptance is censored.

    ``mass``, ``lo``, ``hi``: share of full-length steps whose every draft token was accepted. ``hidden``: tokens per
    step that an endless block would add if acceptance went on at the conditional rate c of the last slot,
    mass * c / (1 - c); None if c is 1. An extrapolation, to say how much the ceiling may hide.
    """

    k: int
    mass: float
    lo: float
    hi: float
    hidden: float | None


@dataclass(frozen=True)
class Positions:
    """Acceptance of one arm by draft position, over the paired prompts. ``curve`` has columns CURVE, a row per k:

    * ``survival``: P(accepted >= k) with its 95% interval ``lo``, ``hi``, over ``at_risk`` steps;
    * ``conditional``: P(accepted >= k | accepted >= k - 1), over the ``reached`` steps in which slot k came to be
      compared;
    * ``missed_vocabulary``: share of those in which the target's token was one that the drafter cannot propose; the
      rest of 1 - conditional are mismatches.
    """

    curve: pd.DataFrame
    ceiling: Ceiling | None


@dataclass(frozen=True)
class _Slots:
    """Per prompt (n,), at one k: steps at risk, survivors, steps that reached it, misses for lack of vocabulary."""

    at_risk: Counts
    survived: Counts
    reached: Counts
    missed_vocabulary: Counts


def positions(a: Evaluated, b: Evaluated, pairs: Pairs) -> tuple[Positions, Positions, pd.DataFrame]:
    """Both arms, and the difference of survivals, B - A: a row per k of ``k``, ``difference``, ``lo``, ``hi``.

    The difference is paired by prompt, with a cluster-robust t interval. An arm's own intervals are Wilson's for its
    effective number of steps, p (1 - p) / se^2 with the cluster-robust se: unlike mean +- t se they stay inside 0..1
    and have a width at 0 and at 1.
    """
    clusters = partition(pairs.frame["cluster"])
    slots = tuple(_slots(arm, pairs.frame[f"row_{side}"].to_numpy()) for arm, side in ((a, "a"), (b, "b")))
    differences = []
    for k in sorted(slots[0].keys() & slots[1].keys()):
        first, second = slots[0][k], slots[1][k]
        rows = (first.at_risk > 0) | (second.at_risk > 0)
        values = [linearise(s.survived[rows], s.at_risk[rows]) for s in (first, second)]
        found = cluster_t(values[1] - values[0], clusters.subset(rows))
        differences.append({"k": k, "difference": found.mean, "lo": found.lo, "hi": found.hi})
    table = pd.DataFrame(differences, columns=["k", "difference", "lo", "hi"]).astype({"lo": float, "hi": float})
    return _arm(slots[0], clusters), _arm(slots[1], clusters), table


def _slots(evaluated: Evaluated, rows: NDArray[np.int64]) -> Mapping[int, _Slots]:
    """Counts of the paired prompts, whose rows in the arm's counts are ``rows``, for k = 1..B-1."""
    counts = evaluated.counts
    slots = counts.at_risk, counts.survived, counts.reached, counts.missed_vocabulary
    which = slice(None) if in_order(rows, len(counts.steps)) else rows
    found = {}
    for k in range(1, counts.at_risk.shape[1] + 1):
        found[k] = _Slots(*(of_slot[:, k - 1][which] for of_slot in slots))
    while found and not found[len(found)].at_risk.any():  # slots that only prompts without a pair had
        found.popitem()
    return found


def _arm(slots: Mapping[int, _Slots], clusters: Partition) -> Positions:
    rows = []
    for k, s in slots.items():
        survival, conditional = _share(s.survived, s.at_risk, clusters), _share(s.survived, s.reached, clusters)
        reached = s.reached.sum()
        missed = float(s.missed_vocabulary.sum() / reached) if reached else np.nan
        rows.append((k, *survival, int(s.at_risk.sum()), *conditional, int(reached), missed))
    curve = pd.DataFrame(rows, columns=list(CURVE))
    if curve.empty:
        return Positions(curve, None)
    last = curve.iloc[-1]
    rate = float(last["conditional"])
    hidden = None if rate == 1 else float(last["survival"]) * rate / (1 - rate) if rate > 0 else 0.0
    mass, lo, hi = (float(last[column]) for column in ("survival", "lo", "hi"))
    return Positions(curve, Ceiling(int(last["k"]), mass, lo, hi, hidden))


def _share(hits: Counts, trials: Counts, clusters: Partition) -> tuple[float, float, float]:
    """Pooled share of hits with its interval; NaN without trials."""
    some = trials > 0
    if not some.any():
        return np.nan, np.nan, np.nan
    mean = cluster_t(linearise(hits[some], trials[some]), clusters.subset(some))
    return mean.mean, *_wilson(mean)


def _wilson(share: ClusterMean) -> tuple[float, float]:
    p, clusters = share.mean, share.df + 1
    # without spread every cluster counts as one observation; one cluster leaves everything open
    n = p * (1 - p) / share.se**2 if share.se else clusters
    if clusters < 2:
        return 0.0, 1.0
    z2 = float(special.stdtrit(share.df, (1 + LEVEL) / 2)) ** 2
    centre, half = p + z2 / (2 * n), np.sqrt(max(0.0, z2 * (p * (1 - p) / n + z2 / (4 * n * n))))
    return max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))
