"""Sign-flip tests of a mean, and the interval that their inversion gives: no resampling, no seed, no p of 0.

If units (prompts, or whole clusters of them) are symmetric about the mean, each sign of their deviation is as likely as
the other, whatever their sizes and variances. The null distribution is over all 2^C sign vectors, and it is never
sampled:

* with fewer than 30 units, the 2^C subsets fall into two halves of at most 2^15, which makes the count exact at any
  size of the sums;
* with more, the sum of the flipped units is a convolution on an integer lattice (Pagano and Tritchler 1983; Zmigrod,
  Vieira and Cotterell 2022, arXiv 2205.01416). Its terms are not negative, so small p-values keep their digits; an FFT
  would leave noise of 1e-16 instead.

Integers lie on a lattice by themselves; sums that do not (ratios, shifted clusters) are rounded to one that is fine
beside their scatter.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.stats.exact import SMALLEST_P, IntArray, as_integers

#: Up to so many units all sign vectors are counted; beyond it their sums are convolved.
MOST_COUNTED = 29
#: The interval of integer differences lists multiples of 1/LATTICE.
LATTICE = 100
# Beyond so many halvings counts of sign vectors would overflow.
_HALVED_AT_ONCE = 500
# Steps in the sum of the sizes of all units: what counting bears, what integers are convolved with as they are, and per
# unit where sums are rounded: the error is then below 0.3% of the standard deviation, however units are distributed.
_COUNTED_STEPS, _WHOLE_STEPS, _STEPS_PER_UNIT = 2**50, 2**15, 96


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
    return min(1.0, max(2 * _convolved(d if d.sum() > 0 else -d), SMALLEST_P))


def flip_p(sums: NDArray[Any]) -> float:
    """Two-sided p of the test that flips whole clusters, given the cluster sums of the differences, (C,).

    Valid if cluster sums are symmetric about 0, whatever goes on inside a cluster. At least 2^(1 - C).
    """
    total = sums.sum()
    if total == 0:
        return 1.0
    return min(1.0, 2 * _share(sums if total > 0 else -sums))


def flip_above(sums: NDArray[Any], sizes: NDArray[Any], bound: Fraction) -> float:
    """One-sided p of the flip of whole clusters, of a mean at most ``bound`` against one above it; at least 2^-C.

    ``sums``, ``sizes``: (C,) sums of the differences and weights per cluster.
    """
    if sums.dtype.kind == "i" and sizes.dtype.kind == "i":
        return _share(bound.denominator * sums - bound.numerator * sizes)
    return _share(sums - float(bound) * sizes)


def flip_interval(
    sums: NDArray[Any], sizes: NDArray[Any], level: float = 0.95, step: Fraction = Fraction(1, LATTICE)
) -> tuple[float, float] | None:
    """Interval of the mean difference by inverting :func:`flip_p`.

    It spans the shifts delta, multiples of ``step`` beside the estimate itself, that the flip test of
    ``sums - delta * sizes`` does not reject at 1 - level; so it excludes 0 exactly where that test rejects 0.
    None if no shift can be rejected, that is if 2^(1 - C) > 1 - level (at 95%: under 6 clusters).

    ``sums``, ``sizes``: (C,) sums of the differences per cluster, and prompts per cluster (their weights, for a ratio).
    """
    if 2.0 ** (1 - sums.size) > 1 - level:
        return None
    some = sizes > 0
    if sums.dtype.kind != "i" or sizes.dtype.kind != "i":
        sums, sizes = sums / float(step), sizes.astype(np.float64)
    else:
        sums, sizes = step.denominator * sums, step.numerator * sizes
    sums, sizes = sums[some], sizes[some]
    lower, upper = _lower_bound(sums, sizes, 1 - level), 0.0 - _lower_bound(-sums, sizes, 1 - level)
    return lower * step.numerator / step.denominator, upper * step.numerator / step.denominator


def _lower_bound(sums: NDArray[Any], sizes: NDArray[Any], alpha: float) -> float:
    """Smallest whole shift at or under the mean that is not rejected, or the mean itself."""

    def rejected(shift: int) -> bool:
        return flip_p(sums - shift * sizes) <= alpha

    # Under the mean the p-value grows with the shift: 2^C p/2 counts the sets of clusters, the empty one
    # included, whose mean is at most the shift. So bisect between a shift under all of them and the mean.
    mean = sums.sum() / sizes.sum()
    below, above = math.floor((sums / sizes).min()) - 1, math.floor(mean)
    if rejected(above):
        return float(mean)
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (middle, above) if rejected(middle) else (below, middle)
    return float(above)


def _share(values: NDArray[Any]) -> float:
    """Share of all sign vectors whose sum is at least that of ``values``, (C,)."""
    counted = values.size <= MOST_COUNTED
    if values.dtype.kind == "i":
        values = values // max(int(np.gcd.reduce(values)), 1)
    size = float(np.abs(values).sum())
    if size > 0 and not (values.dtype.kind == "i" and size <= (_COUNTED_STEPS if counted else _WHOLE_STEPS)):
        steps = _COUNTED_STEPS if counted else max(2**12, _STEPS_PER_UNIT * values.size)
        values = np.rint(values * (steps / size)).astype(np.int64)
    return _share_at_most_zero(values) if counted else max(_convolved(values), SMALLEST_P)


def _share_at_most_zero(values: IntArray) -> float:
    """Share of all subsets, the empty one included, whose sum is at most 0: turning a subset of ``values`` around
    leaves the total as large as it was, or larger, where the sum of the subset is at most 0."""
    half = values.size // 2
    left, right = _subset_sums(values[:half]), np.sort(_subset_sums(values[half:]))
    return int(np.searchsorted(right, -left, side="right").sum()) / 2**values.size


def _subset_sums(values: IntArray) -> IntArray:
    sums = np.zeros(1, dtype=np.int64)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


def _convolved(values: IntArray) -> float:
    """The same share from the distribution of the sum of the negative parts, which has to be at most the observed."""
    most = -int(values[values < 0].sum())
    sizes, counts = np.unique(np.abs(values[values != 0]), return_counts=True)
    ways, halved = np.zeros(most + 1), 0  # sign vectors by the sum they turn around, to be halved so often
    ways[0], top = 1.0, 0
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):  # ascending: the cheapest order
        if count <= size:
            for _ in range(count):
                top = min(top + size, most)
                ways[size : top + 1] += ways[: max(top + 1 - size, 0)]
                halved += 1
                if halved == _HALVED_AT_ONCE:
                    ways, halved = np.ldexp(ways, -halved), 0
        else:
            longer = _convolve_strided(ways[: top + 1], _fair_binomial(count), size)[: most + 1]
            ways[: longer.size], top = longer, longer.size - 1
    return math.ldexp(float(ways.sum()), -halved)


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
