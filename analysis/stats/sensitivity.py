"""Power of a comparison: the minimum detectable effect, and the prompts needed for a given effect.

The power of a paired test comes from the noncentral t. Clusters enter through the cluster-robust standard error and
its degrees of freedom, which accounts exactly for the design effect.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from scipy import special

from analysis.stats.method import ALPHA

POWER = 0.8
#: Larger numbers of prompts are not considered.
MOST = 10**9


def detectable(se: float | None, df: float, *, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """Smallest true mean that a two-sided test at ``alpha`` detects with probability ``power``; None without a standard
    error or degrees of freedom."""
    if se is None or se <= 0 or df < 1:
        return None
    return _noncentrality(df, alpha, power) * se


def clusters_needed(
    effect: float,
    se: float,
    clusters: int,
    *,
    effective: float | None = None,
    power: float = POWER,
    fewest: int = 2,
) -> int | None:
    """Clusters of the present kind and sizes that detect ``effect`` with probability ``power``; None beyond MOST.

    The standard error, ``se`` at ``clusters``, shrinks with the root of their number, and ``effective`` clusters (all
    by default) grow with it. ``fewest``: the number that the test requires to reject at all.
    """
    each = 1.0 if effective is None else effective / clusters

    def enough(count: int) -> bool:
        reached = detectable(se * math.sqrt(clusters / count), each * count - 1, power=power)
        return reached is not None and reached <= abs(effect)

    count = fewest + bisect_left(range(fewest, MOST + 1), True, key=enough)
    return count if count <= MOST else None


def t_power(shift: float, df: float, alpha: float = ALPHA) -> float:
    """Probability that a two-sided t test at ``alpha`` rejects where the true mean is ``shift`` >= 0 standard errors
    from 0, by the noncentral t."""
    critical = float(special.stdtrit(df, 1 - alpha / 2))
    if df > 2000:  # the normal approximation is as good
        return float(special.ndtr(shift - critical) + special.ndtr(-shift - critical))
    if shift > 30:  # the numerator hardly varies, and scipy's series does not always converge
        return float(special.chdtr(df, df * (shift / critical) ** 2))
    wrong_side = (
        float(special.nctdtr(df, shift, -critical)) if shift < 5 else 0.0
    )  # under 1e-6, and not always computed
    return float(1 - special.nctdtr(df, shift, critical)) + wrong_side


def _noncentrality(df: float, alpha: float, power: float) -> float:
    """The noncentrality at which a two-sided t test at ``alpha`` rejects with probability ``power``, by bisection."""
    below, above = 0.0, 1.0
    while t_power(above, df, alpha) < power:
        below, above = above, 2 * above
    while above - below > 1e-9 * above:
        middle = (below + above) / 2
        below, above = (middle, above) if t_power(middle, df, alpha) < power else (below, middle)
    return above
