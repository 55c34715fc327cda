"""Means of data sets, and sums of them: each with the variance that its own clusters give.

A mean over data sets that weigh the same, or the difference of two data sets, rests on the data sets that carry its
variance: six prompts that make up half of a mean leave it five degrees of freedom, whatever the other half has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.stats.cluster import ClusterMean, FloatArray, Partition, cluster_scores, cluster_t
from analysis.stats.exact import SMALLEST_P


@dataclass(frozen=True, eq=False)
class Stratum:
    """The mean over one data set: ``scores``, (C,) over the clusters of all data sets, whose sum of squares is its CR2
    variance; ``present``, (C,): the clusters that it has; ``found``: its cluster-robust mean."""

    scores: FloatArray
    present: NDArray[np.bool_]
    found: ClusterMean


def stratum(
    values: NDArray[Any], clusters: Partition, rows: NDArray[np.bool_], weights: FloatArray | None = None
) -> Stratum:
    """The mean of ``values[rows]``; ``values``, ``weights``: (n,) for those rows alone, ``clusters``: of all rows."""
    own, scores = clusters.subset(rows), np.zeros(clusters.count)
    present = np.zeros(clusters.count, dtype=bool)
    present[clusters.index[rows]] = True
    if own.count > 1:
        scores[present] = cluster_scores(values, own, weights)
    return Stratum(scores, present, cluster_t(values, own, weights=weights))


def combine(
    strata: Sequence[Stratum], factors: Sequence[float], level: float = 0.95, most: float = math.inf
) -> ClusterMean:
    """The sum of ``factors`` times the means, with a t interval; no interval where a data set has no standard error.

    Clusters that several data sets share enter with their covariance. Degrees of freedom by Satterthwaite, but at most
    ``most``; those of the smallest data set where clusters are shared, a lower bound.
    """
    mean = float(sum(f * s.found.mean for f, s in zip(factors, strata, strict=True)))
    if any(s.found.se is None for s in strata):
        return ClusterMean(mean, None, None, None, None, 0.0, None, None)
    scores = np.sum([f * s.scores for f, s in zip(factors, strata, strict=True)], axis=0)
    variance = float(np.square(scores).sum())
    own = [(f**2 * float(np.square(s.scores).sum()), s.found.df) for f, s in zip(factors, strata, strict=True)]
    shared = np.sum([s.present for s in strata], axis=0).max(initial=0) > 1
    if not variance > 0:
        return ClusterMean(mean, 0.0, mean, mean, None, min(df for _, df in own), None, None)
    df = min(_satterthwaite(own) if not shared else min(d for v, d in own if v > 0), most)
    se = math.sqrt(variance)
    half = float(special.stdtrit(df, (1 + level) / 2)) * se
    p = max(2 * float(special.stdtr(df, -abs(mean) / se)), SMALLEST_P)
    return ClusterMean(mean, se, mean - half, mean + half, p, df, None, None)


def designed(strata: Sequence[Stratum], factors: Sequence[float]) -> float:
    """Degrees of freedom of the sum if clusters of all data sets were equally variable, which is known beforehand."""
    return _satterthwaite([(f**2 / s.found.effective, s.found.df) for f, s in zip(factors, strata, strict=True)])


def _satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Of a sum of independent variances, (variance, degrees of freedom) each."""
    return float(sum(v for v, _ in parts) ** 2 / sum(v**2 / df for v, df in parts))
