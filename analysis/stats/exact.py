"""Exact inference for paired integer differences: no resampling, no seed, no p of 0.

Accepted lengths are integers, so a difference takes few values, and the distributions that a bootstrap or a
sign-flip test samples from can be written down whole on an integer lattice.

* The bootstrap distribution of a mean is the n-fold convolution of the observed distribution (Clark et al. 2021,
  "Bootstrapping Through Discrete Convolutional Methods").
* The sign-flip (paired permutation) null is a convolution of one scaled binomial per distinct size of difference
  (Pagano and Tritchler 1983; Zmigrod, Vieira and Cotterell 2022, arXiv 2205.01416). Its terms are non-negative, so
  small p-values keep their digits; an FFT would leave noise of 1e-16 instead.
* Flips of whole clusters are counted, not convolved: with fewer than 30 clusters the 2^C subsets fall into two
  halves of at most 2^15, which makes the count exact at any size of the cluster sums.

Everything is cast to int64 first: a difference of unsigned counts would wrap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

#: Above this the normal approximation is as good and the caller uses the cluster t.
MAX_PAIRS = 20_000
#: Exact whole-cluster flips are for fewer than 30 clusters.
MAX_FLIP_CLUSTERS = 29
#: The interval of the cluster flip lists multiples of 1/LATTICE.
LATTICE = 100
#: A p-value below this is given as this: doubles end near 1e-308, and no p is 0.
SMALLEST_P = 1e-300
# Bootstrap mass outside the window of the transform; Hoeffding's bound keeps it below this.
_OUTSIDE = 1e-18


def as_integers(values: Any) -> IntArray:
    """``values`` as int64. Raises TypeError for anything but integers, since rounding would hide a fault."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"exact methods take integers, not {array.dtype}")
    return array.astype(np.int64)


@dataclass(frozen=True, eq=False)
class BootstrapMean:
    """Exact bootstrap distribution of the mean of ``n`` integers: ``cdf[i]`` is P(sum of n draws <= first + i).

    Ties of a probability with its target count as reached; they are told to 16 n eps.
    """

    n: int
    first: int
    cdf: NDArray[np.float64]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Percentile interval. Convention: with F the distribution function of the mean and alpha = 1 - level, the
        bounds are the smallest x with F(x) >= alpha/2 and the smallest x with F(x) >= 1 - alpha/2. They are
        multiples of 1/n."""
        tails = np.array([(1 - level) / 2, (1 + level) / 2])
        lower, upper = np.searchsorted(self.cdf, tails - 16 * self.n * np.finfo(float).eps)
        return (self.first + int(lower)) / self.n, (self.first + int(upper)) / self.n

    def at_most(self, bound: Fraction) -> float:
        """P(mean <= bound), at least 2^-n: no test of n pairs can say less."""
        return self._at_least_attainable(self._below(math.floor(bound * self.n) + 1))

    def at_least(self, bound: Fraction) -> float:
        """P(mean >= bound), at least 2^-n."""
        return self._at_least_attainable(1.0 - self._below(math.ceil(bound * self.n)))

    def _below(self, total: int) -> float:
        """P(sum < total)."""
        index = total - 1 - self.first
        return 0.0 if index < 0 else float(self.cdf[min(index, self.cdf.size - 1)])

    def _at_least_attainable(self, probability: float) -> float:
        return min(1.0, max(probability, 2.0**-self.n, SMALLEST_P))


def bootstrap_mean(differences: Any) -> BootstrapMean:
    """The bootstrap distribution of the mean of ``differences``, (n,) integers, n >= 1.

    Costs one FFT, whose length grows as range * sqrt(n).
    """
    d = as_integers(differences)
    n, lowest = d.size, int(d.min())
    counts = np.bincount(d - lowest)
    width = counts.size - 1
    if width == 0:
        return BootstrapMean(n, n * lowest, np.ones(1))

    # The sum of n draws lies in 0..n*width, and but for _OUTSIDE within `reach` of its mean. The transform may be
    # as short as that window: sums are then known modulo its length, and the window says which.
    mean_sum = int((d - lowest).sum())
    reach = math.ceil(width * math.sqrt(n * math.log(2 / _OUTSIDE) / 2))
    first = max(0, mean_sum - reach)
    points = 1 << (min(n * width, mean_sum + reach) - first).bit_length()
    pmf = np.fft.irfft(np.fft.rfft(counts / n, points) ** n, points)
    cdf = np.roll(pmf, -first).clip(min=0).cumsum()
    return BootstrapMean(n, first + n * lowest, cdf / cdf[-1])


def sign_flip_p(differences: Any) -> float:
    """Two-sided p of the sign-flip test that the differences are symmetric about 0: P(|sum| >= |observed sum|).

    ``differences``: (n,) integers; zeros drop out, and no differences at all give 1. The smallest value is
    2^(1 - n); below 1e-300 it is given as that.
    """
    d = as_integers(differences)
    d = d[d != 0]
    if d.sum() == 0:
        return 1.0
    d = d // np.gcd.reduce(d)
    # The distribution of the sum of the negative parts N, where |sum| >= |observed| means N at most the smaller of
    # the two observed parts, or the mirror image. Sizes ascend: the cheapest order.
    sizes, counts = np.unique(np.abs(d), return_counts=True)
    pmf = np.ones(1)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        pmf = _convolve_strided(pmf, _fair_binomial(count), size)
    smaller_part = min(int(d[d > 0].sum()), -int(d[d < 0].sum()))
    return min(1.0, max(2 * float(pmf[: smaller_part + 1].sum()), SMALLEST_P))


def cluster_flip_p(sums: Any) -> float:
    """Two-sided p of the sign-flip test that flips whole clusters, given the cluster sums of the differences.

    ``sums``: (C,) integers, C < 30. Valid if cluster sums are symmetric about 0 whatever goes on inside a cluster.
    The smallest value is 2^(1 - C).
    """
    values = as_integers(sums)
    total = int(values.sum())
    if total == 0:
        return 1.0
    return min(1.0, 2 * _share_at_most_zero(values if total > 0 else -values))


def cluster_flip_above(sums: Any, sizes: Any, bound: Fraction) -> float:
    """One-sided p of the flip of whole clusters, of a mean at most ``bound`` against one above it; at least 2^-C.

    ``sums``, ``sizes``: (C,) integers, C < 30.
    """
    return _share_at_most_zero(bound.denominator * as_integers(sums) - bound.numerator * as_integers(sizes))


def cluster_flip_interval(sums: Any, sizes: Any, level: float = 0.95) -> tuple[float, float] | None:
    """Interval of the mean difference by inverting :func:`cluster_flip_p`.

    It spans the shifts delta, multiples of 1/100 beside the estimate itself, that the flip test of
    ``sums - delta * sizes`` does not reject at 1 - level; so it excludes 0 exactly where that test rejects 0.
    None if no shift can be rejected, that is if 2^(1 - C) > 1 - level (at 95%: under 6 clusters).

    ``sums``, ``sizes``: (C,) integers, cluster sums of the differences and prompts per cluster, C < 30.
    """
    total, prompts = as_integers(sums), as_integers(sizes)
    if 2.0 ** (1 - total.size) > 1 - level:
        return None
    return _lower_bound(total, prompts, 1 - level), 0.0 - _lower_bound(-total, prompts, 1 - level)


def _lower_bound(sums: IntArray, sizes: IntArray, alpha: float) -> float:
    """Smallest shift at or under the estimate that is not rejected."""

    def rejected(step: int) -> bool:
        return cluster_flip_p(LATTICE * sums - step * sizes) <= alpha

    # Under the estimate the p-value grows with the shift: 2^C p/2 counts the sets of clusters, the empty one
    # included, whose mean is at most the shift. So bisect between a shift under all of them and the estimate.
    below = int((LATTICE * sums // sizes).min()) - 1
    above = LATTICE * int(sums.sum()) // int(sizes.sum())
    if rejected(above):
        return int(sums.sum()) / int(sizes.sum())
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (middle, above) if rejected(middle) else (below, middle)
    return above / LATTICE


def _share_at_most_zero(values: IntArray) -> float:
    """Share of all subsets, the empty one included, whose sum is at most 0 (C < 30 values)."""
    if values.size > MAX_FLIP_CLUSTERS:
        raise ValueError(f"{values.size} clusters are too many to enumerate")
    half = values.size // 2
    left, right = _subset_sums(values[:half]), np.sort(_subset_sums(values[half:]))
    return int(np.searchsorted(right, -left, side="right").sum()) / 2**values.size


def _subset_sums(values: IntArray) -> IntArray:
    sums = np.zeros(1, dtype=np.int64)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


def _fair_binomial(count: int) -> NDArray[np.float64]:
    """Probabilities of Binomial(count, 1/2), each the double nearest to the fraction."""
    half, coefficient, scale = [], 1, 1 << count
    for k in range(count // 2 + 1):
        half.append(coefficient / scale)
        coefficient = coefficient * (count - k) // (k + 1)
    return np.array(half + half[: (count + 1) // 2][::-1])


def _convolve_strided(pmf: NDArray[np.float64], steps: NDArray[np.float64], stride: int) -> NDArray[np.float64]:
    """``pmf`` convolved with ``steps`` set ``stride`` apart, by direct sums of non-negative terms."""
    rows = -(-pmf.size // stride)
    grid = np.zeros(rows * stride)
    grid[: pmf.size] = pmf
    columns = [np.convolve(column, steps) for column in grid.reshape(rows, stride).T]
    return np.stack(columns, axis=1).ravel()[: pmf.size + stride * (steps.size - 1)]
