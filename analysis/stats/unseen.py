"""What a sample may have missed: the tail of a mean if unsampled units are more extreme than the sampled ones.

A bootstrap only knows observed values, so twelve equal pairs look like certainty. Here the sampled units, and one more
at the end of the possible range, get random shares of the population: weights D uniform on the simplex. That is
the bound of Gaffke (2005; Learned-Miller and Thomas 2019) for means of bounded values. For n units of 0 it says
(1 - bound/reach)^n, the probability that a kind of prompt frequent enough to move the mean to the bound was never
drawn; for units of 0 and ``reach`` it is the exact binomial (Clopper-Pearson) tail.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from analysis.stats.cluster import FloatArray

#: Larger numbers of units are not considered.
MOST = 10**9
# Step, bend and end of the line of integration, and the relative size below which terms are negligible.
_STEP, _BEND, _FARTHEST, _NEGLIGIBLE = 0.1, 0.5, 40.0, 1e-13


def tail_above(sums: NDArray[np.number], sizes: NDArray[np.int64], reach: float, bound: float) -> float:
    """P(mean >= bound), the units, and one of typical size all at ``reach``, weighted uniformly on the simplex.

    ``sums``, ``sizes``: (C,) sums of the differences and prompts per unit (cluster); ``reach``: the largest
    difference that a prompt can have.
    """
    return _tail(*_shifted(sums, sizes, bound), _extreme(sizes, reach, bound))


def units_wanted(
    sums: NDArray[np.number], sizes: NDArray[np.int64], reach: float, bound: float, alpha: float
) -> int | None:
    """Units like these with which :func:`tail_above` is below ``alpha``; None for a mean that reaches the bound."""
    (values, counts), extreme = _shifted(sums, sizes, bound), _extreme(sizes, reach, bound)
    if values @ counts >= 0:
        return None

    def shown(units: int) -> bool:
        return _tail(values, counts * (units / sums.size), extreme) < alpha

    units = 1 + bisect_left(range(1, MOST + 1), True, key=shown)
    return units if units <= MOST else None


def _shifted(sums: NDArray[np.number], sizes: NDArray[np.int64], bound: float) -> tuple[FloatArray, FloatArray]:
    """Distinct values of sum - bound * size, and how many units have each: a weighted mean reaches the bound where
    the weighted sum of these reaches 0."""
    values, counts = np.unique(sums - bound * sizes, return_counts=True)
    return values, counts.astype(np.float64)


def _extreme(sizes: NDArray[np.int64], reach: float, bound: float) -> float:
    return float(sizes.mean()) * (reach - bound)


def _tail(values: FloatArray, counts: FloatArray, extreme: float) -> float:
    """P(sum of values * G + extreme * E >= 0), G ~ Gamma(counts), E ~ Exponential: uniform weights but for a factor."""
    x, n = np.append(values, extreme), np.append(counts, 1.0)
    if x.max() <= 0:
        return float(x.min() == 0)
    if x.min() >= 0:
        return 1.0
    return _integral(x, n) if x @ n <= 0 else 1.0 - _integral(-x, n)


def _integral(x: FloatArray, n: FloatArray) -> float:
    """P(sum of x * G >= 0), G ~ Gamma(n), for x of either sign and a mean of at most 0.

    With K the log of the moment generating function, the integral of exp(K(s))/s, divided by 2 pi i, over a line that
    crosses the real axis between 0 and the first pole: at the saddle point, and bent to the side where exp(K) falls
    instead of turning, which is that of its third derivative. Trapezoid rule in y, the height being sinh(y).
    """
    below, above = 0.0, 1 / float(x.max())
    for _ in range(40):
        saddle = (below + above) / 2
        rises = float((n * x / (1 - saddle * x)).sum()) > 1 / saddle
        below, above = (below, saddle) if rises else (saddle, above)
    reduced = x / (1 - saddle * x)
    scale = 1 / math.sqrt(float((n * reduced**2).sum()) + saddle**-2)
    bend = math.copysign(_BEND, float((n * reduced**3).sum()))
    total, y = 0.0, 0.0
    while True:
        s = saddle + scale * complex(bend * (math.cosh(y) - 1), math.sinh(y))
        along = complex(math.cosh(y), -bend * math.sinh(y))  # ds/dy, over i and the scale
        term = complex(np.exp(-(n * np.log(1 - s * x)).sum())) / s * along
        total += term.real * (2 if y else 1)
        if abs(term) <= _NEGLIGIBLE * abs(total) or y > _FARTHEST:
            return min(1.0, max(0.0, scale * _STEP / (2 * math.pi) * total))
        y += _STEP
