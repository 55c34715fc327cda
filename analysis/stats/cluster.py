"""Means of clustered observations: prompts that share an original question or a template are not independent.

All methods share one partition into clusters, so they cannot disagree about it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import special

from analysis.errors import DataError
from analysis.keys import flat
from analysis.stats.exact import SMALLEST_P

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Partition:
    """Which cluster each observation belongs to: ``index`` (n,) in 0..count - 1, by sorted cluster id."""

    index: NDArray[np.int64]
    count: int

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(C,) observations per cluster."""
        return np.bincount(self.index, minlength=self.count)

    @property
    def singletons(self) -> bool:
        """Whether every cluster holds one observation."""
        return self.count == self.index.size

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """(C,) cluster sums of ``values`` (n,); integers stay integers."""
        sums = np.zeros(self.count, dtype=values.dtype)
        np.add.at(sums, self.index, values)
        return sums

    def subset(self, rows: NDArray[np.bool_]) -> Partition:
        """The partition of the observations in ``rows``, (n,) booleans."""
        return self if rows.all() else Partition.numbered(self.index[rows], self.count)

    @classmethod
    def numbered(cls, numbers: NDArray[np.int64], count: int) -> Partition:
        """The partition by numbers in 0..count - 1, not all of which need occur."""
        present = np.zeros(count, dtype=bool)
        present[numbers] = True
        if present.all():
            return cls(numbers, count)
        return cls((np.cumsum(present) - 1)[numbers], int(present.sum()))


def partition(ids: Iterable[str] | Iterable[int]) -> Partition:
    """The partition by cluster id, or by numbers of clusters (not negative) that stand for ids in the same order.

    Raises DataError if any id is missing (None, NaN or empty).
    """
    column = ids if isinstance(ids, pd.Series) else pd.Series(ids if isinstance(ids, np.ndarray) else list(ids))
    if column.dtype.kind == "i":
        numbers = column.to_numpy(dtype=np.int64)
        return Partition.numbered(numbers, int(numbers.max(initial=-1)) + 1)
    if isinstance(column.dtype, pd.StringDtype):
        missing = int((column.isna() | (column == "")).sum())
    else:
        missing = sum(not isinstance(i, str) or not i for i in column)
    if missing:
        raise DataError(
            f"cluster_id is missing for {missing} of {len(column)} prompts; give each its own id if none is known"
        )
    encoded = flat(pa.array(column, from_pandas=True)).dictionary_encode()
    names, index = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
    if not pc.all(pc.less(names[:-1], names[1:])).as_py():
        rank = np.empty(len(names), np.int64)
        rank[pc.sort_indices(names).to_numpy()] = np.arange(len(names))
        index = rank[index]
    return Partition(index, len(names))


@dataclass(frozen=True)
class ClusterMean:
    """A mean with its cluster-robust t interval; undefined values are None.

    ``df``: degrees of freedom of the t, 0 without a standard error; ``effective``: df + 1, the number of equal,
    equally variable clusters that would tell as much (all of them where they are equal, all prompts where prompts are
    independent and weigh the same). ``design_effect`` is the variance over that of independent observations; ``icc``
    the one-way ANOVA estimate of the correlation within a cluster, which can be negative.
    """

    mean: float
    se: float | None
    lo: float | None
    hi: float | None
    p: float | None
    df: float
    design_effect: float | None
    icc: float | None

    @property
    def effective(self) -> float:
        """Effective number of independent units."""
        return self.df + 1


def cluster_t(values: Any, clusters: Partition, level: float = 0.95, weights: FloatArray | None = None) -> ClusterMean:
    """Mean of ``values`` (n,) with a CR2 standard error and a t with Satterthwaite degrees of freedom.

    ``weights``, (n,) with mean 1: how much each observation moves the mean, where that is not the same for all, as in
    a ratio of sums (:func:`analysis.stats.ratio.weights`). CR2 (Bell and McCaffrey 2002; Pustejovsky and Tipton 2018)
    divides each squared cluster sum of residuals by its expected shrinkage, with p_c the share of the weight in c:

        se^2 = sum over c of (sum of residuals in c)^2 / (1 - p_c) / n^2

    The degrees of freedom are those of this estimator (:func:`satterthwaite`) in a random-effects model with the
    intraclass correlation that the data make likeliest (Imbens and Kolesar 2016), so that a few large clusters, or a
    few long answers, count for what they are. Independent prompts of equal weight give the ordinary t test, C equal
    clusters a t with C - 1. One cluster has no standard error; a standard error of 0 has no p.
    """
    x = np.asarray(values, dtype=np.float64)
    n, count, mean = x.size, clusters.count, float(x.mean())
    if count < 2:
        return ClusterMean(mean, None, None, None, None, 0.0, None, None)
    residual = without_rounding(x - mean, x)
    se = math.sqrt(_squares(cluster_scores(x, clusters, weights)))
    w = np.ones(n) if weights is None else weights
    of_clusters, df = clusters.sums(w), float(count - 1)
    if np.ptp(of_clusters) > 1e-9:
        df = satterthwaite(of_clusters, likeliest_icc(residual, w, clusters))
    half = float(special.stdtrit(df, (1 + level) / 2)) * se
    p = max(2 * float(special.stdtr(df, -abs(mean) / se)), SMALLEST_P) if se > 0 else None
    independent = _squares(residual) / (n - 1) / n
    design_effect = se**2 / independent if independent > 0 else None
    return ClusterMean(mean, se, mean - half, mean + half, p, df, design_effect, _icc(residual, clusters))


def cluster_scores(values: FloatArray, clusters: Partition, weights: FloatArray | None = None) -> FloatArray:
    """(C,) sums of residuals over n, each over the root of its expected shrinkage: the sum of squares is the CR2
    variance of the mean of ``values``, (n,). C >= 2."""
    x = np.asarray(values, dtype=np.float64)
    sums = without_rounding(clusters.sums(without_rounding(x - x.mean(), x)), x)
    shares = (clusters.sizes if weights is None else clusters.sums(weights)) / x.size
    return np.asarray(sums / np.sqrt(1 - shares) / x.size)


def satterthwaite(weights: FloatArray, icc: float) -> float:
    """Degrees of freedom of the CR2 variance of a mean over clusters with these total ``weights``, (C,), C >= 2: their
    sizes, where observations weigh the same.

    With v_c = w_c (1 + (w_c - 1) icc) the variance of a cluster's sum, the estimator is a quadratic form z'Mz in the
    residual sums, whose covariance is B = diag(v) - p v' - v p' + (sum v) p p', p = w / sum w; the degrees of freedom
    are tr(MB)^2 / tr(MBMB), in O(C) steps.
    """
    p, v = weights / weights.sum(), weights * (1 + (weights - 1) * icc)
    m, total = 1 / (1 - p), float(v.sum())
    diagonal = v - 2 * p * v + total * p**2
    # off-diagonal entries of B are total p_c p_d - p_c v_d - v_c p_d; the sum of their squares, then the diagonal
    pp, vv, pv = float((m * p * p).sum()), float((m * v * v).sum()), float((m * p * v).sum())
    squares = total**2 * pp**2 + 2 * pp * vv - 4 * total * pp * pv + 2 * pv**2
    squares += float((m**2 * (diagonal**2 - (diagonal - v) ** 2)).sum())
    return float((m * diagonal).sum()) ** 2 / squares


#: Correlations within a cluster among which the likeliest is looked for; degrees of freedom need it no finer.
_ICC = np.append(np.arange(20) / 20, 0.99)


def likeliest_icc(residual: FloatArray, weights: FloatArray, clusters: Partition) -> float:
    """The intraclass correlation of largest likelihood, of :data:`_ICC`, under v_c = w_c (1 + (w_c - 1) icc).

    ``residual``: (n,), weight times deviation from the mean, with variance w (1 - icc) within a cluster.
    """
    some = weights > 0
    w, of_clusters = weights[some], clusters.sums(weights)
    with_weight = of_clusters > 0
    of_clusters, sums = of_clusters[with_weight], clusters.sums(residual)[with_weight]
    n, count = w.size, of_clusters.size
    means = _squares(residual[some] / np.sqrt(w)) - _squares(sums / np.sqrt(of_clusters))
    within = max(means, 0.0) if n > count else 0.0
    between = sums**2 / of_clusters / (1 - of_clusters / of_clusters.sum())
    if not within + float(between.sum()) > 0:
        return 0.0
    inside = (1 - _ICC)[:, None]
    spread = inside + _ICC[:, None] * of_clusters
    scale = (within / inside[:, 0] + (between / spread).sum(axis=1)) / n
    likelihood = n * np.log(scale) + (n - count) * np.log(inside[:, 0]) + np.log(spread).sum(axis=1)
    return float(_ICC[np.argmin(likelihood)])


def _squares(x: FloatArray) -> float:
    """Sum of squares, without the threads that a dot product may start."""
    return float(np.square(x).sum())


def without_rounding(differences: NDArray[Any], scale: FloatArray) -> FloatArray:
    """``differences`` with rounding errors of values of this scale set to 0, so that equal values have difference 0."""
    size = float(np.abs(scale).max(initial=0.0))
    equal = np.abs(differences) <= 64 * np.finfo(float).eps * scale.size * size
    return np.where(equal, 0.0, differences) if equal.any() else differences


def _icc(residual: FloatArray, clusters: Partition) -> float | None:
    if clusters.singletons:
        return None
    n, count, sizes = residual.size, clusters.count, clusters.sizes
    means = clusters.sums(residual) / sizes
    between = float(sizes @ means**2) / (count - 1)
    within = float(((residual - means[clusters.index]) ** 2).sum()) / (n - count)
    typical = (n - float(sizes @ sizes) / n) / (count - 1)  # cluster size, adjusted for inequality
    spread = between + (typical - 1) * within
    return (between - within) / spread if spread > 0 else None
