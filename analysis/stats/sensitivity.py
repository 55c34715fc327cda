"""What a comparison could have seen: minimum detectable effect, and the prompts that a given effect needs.

A paired test has power through the noncentral t; clusters enter through the cluster-robust standard error and its
degrees of freedom, which is the design effect done exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from scipy import special

from analysis.stats.method import ALPHA

POWER = 0.8
#: Beyond this many prompts "more of the same" is no answer.
MOST = 10**9


def detectable(se: float | None, df: float, *, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """Smallest true mean that a two-sided test at ``alpha`` finds with probability ``power``; None without a standard
    error or degrees of freedom."""
    if se is None or se <= 0 or df < 1:
        return None
    return _noncentrality(df, alpha, power) * se


def clusters_needed(effect: float, se: float, clusters: int, *, power: float = POWER, fewest: int = 2) -> int | None:
    """Clusters of the present kind and size that find ``effect`` with probability ``power``; None beyond MOST.

    The standard error, ``se`` at ``clusters``, shrinks with the root of their number. ``fewest``: what the test needs
    to reject at all.
    """

    def found(count: int) -> bool:
        reached = detectable(se * math.sqrt(clusters / count), count - 1, power=power)
        return reached is not None and reached <= abs(effect)

    count = fewest + bisect_left(range(fewest, MOST + 1), True, key=found)
    return count if count <= MOST else None


def t_power(shift: float, df: float, alpha: float = ALPHA) -> float:
    """Probability that a two-sided t test at ``alpha`` rejects where the true mean is ``shift`` >= 0 standard errors
    from 0, by the noncentral t."""
    critical = float(special.stdtrit(df, 1 - alpha / 2))
    if df > 2000:  # there the normal is as good
        return float(special.ndtr(shift - critical) + special.ndtr(-shift - critical))
    if shift > 30:  # there the numerator hardly varies, and scipy's series does not always converge
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
