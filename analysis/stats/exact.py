"""Exact bootstrap of the mean of paired integer differences: no resampling, no seed.

Accepted lengths are integers, so a difference takes few values, and the distribution that a bootstrap samples from can
be written down whole on an integer lattice: the bootstrap distribution of a mean is the n-fold convolution of the
observed distribution (Clark et al. 2021, "Bootstrapping Through Discrete Convolutional Methods").

Inputs are cast to int64 first, because a difference of unsigned counts would wrap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

#: Above this the normal approximation is as good, and the caller uses the cluster t.
MAX_PAIRS = 20_000
#: Smallest p-value reported: doubles end near 1e-308, and no p is 0.
SMALLEST_P = 1e-300
# Bootstrap mass outside the window of the transform; Hoeffding's bound keeps it below this.
_OUTSIDE = 1e-18


def as_integers(values: Any) -> IntArray:
    """``values`` as int64. Raises TypeError for other types, because rounding would hide a fault."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"exact methods require integers, not {array.dtype}")
    return array.astype(np.int64)


@dataclass(frozen=True, eq=False)
class BootstrapMean:
    """Exact bootstrap distribution of the mean of ``n`` integers: ``cdf[i]`` is P(sum of n draws <= first + i).

    A probability that equals its target within 16 n eps counts as reached.
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
        """P(mean <= bound), at least 2^-n, the smallest p of a test of n pairs."""
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
