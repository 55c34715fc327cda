"""The shift function: differences of the deciles of two arms, B - A (Doksum 1974; Rousselet, Pernet and Wilcox 2017).

A mean does not say whether B gains on hard prompts, on easy ones, or everywhere. Deciles are Harrell and Davis's
(1982), a weighted mean of all order statistics, which moves smoothly where many values are tied. Their errors are those
of a bootstrap that draws whole clusters, both arms together, so that pairs stay pairs. As in Wilcox's method (1995) the
intervals are difference +- c se, here with Bonferroni's c over the deciles from a t with the effective clusters'
degrees of freedom: simultaneous, 95% for all together.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.stats.cluster import FloatArray, Partition, cluster_t
from analysis.stats.method import FEWEST, LEVEL

DECILES = tuple(k / 10 for k in range(1, 10))
DRAWS = 1000
#: More clusters than this are drawn in as many groups, and values rounded to as many levels, for the errors alone.
_MOST = 1000
#: How far from its quantile a Harrell-Davis weight reaches, in standard deviations, and on how many points it is known.
_REACH, _POINTS = 10.0, 2049


@dataclass(frozen=True)
class Decile:
    """The ``q`` quantile of each arm's values, their ``difference`` B - A, and its simultaneous interval (None: without
    variation between draws, or too few clusters)."""

    q: float
    a: float
    b: float
    difference: float
    lo: float | None
    hi: float | None

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 0."""
        return self.lo is not None and self.hi is not None and (self.lo > 0 or self.hi < 0)


@dataclass(frozen=True)
class Shift:
    """``deciles`` with intervals that hold together at ``level``, over ``n_clusters`` clusters, of which
    ``n_effective`` are effective; ``tied``: the largest share of an arm's prompts that have one and the same value,
    where quantiles move in steps; ``draws`` of the bootstrap, 0 with fewer than FEWEST effective clusters."""

    deciles: tuple[Decile, ...]
    n_clusters: int
    n_effective: float
    tied: float
    level: float
    draws: int


def shift_function(a: Any, b: Any, clusters: Partition) -> Shift:
    """Of values ``a``, ``b``, (n,) each, n >= 1, of the same prompts. The bootstrap is seeded by the data, so that the
    same inputs give the same intervals."""
    arms = [np.asarray(x, dtype=np.float64) for x in (a, b)]
    robust = cluster_t(arms[1] - arms[0], clusters, LEVEL)
    points = [harrell_davis(x) for x in arms]
    enough = clusters.count >= FEWEST and robust.effective >= FEWEST
    errors = _errors(arms, clusters) if enough else np.zeros(len(DECILES))
    # a draw of few or unequal clusters varies less than a new sample, as residuals do
    shares = clusters.sizes / clusters.index.size
    factor = 1 / math.sqrt(1 - float(np.square(shares).sum())) if enough else 0.0
    c = factor * float(special.stdtrit(robust.df, 1 - (1 - LEVEL) / 2 / len(DECILES))) if enough else 0.0
    deciles, rounding = [], 1e-9 * max(float(np.abs(x).max()) for x in arms)
    for q, of_a, of_b, se in zip(DECILES, *points, errors, strict=True):
        d = float(of_b - of_a)
        bounds = (d - c * float(se), d + c * float(se)) if se > rounding else (None, None)
        deciles.append(Decile(q, float(of_a), float(of_b), d, *bounds))
    tied = max(int(np.unique(x, return_counts=True)[1].max()) for x in arms) / arms[0].size
    return Shift(tuple(deciles), clusters.count, robust.effective, tied, LEVEL, DRAWS if enough else 0)


def harrell_davis(values: FloatArray) -> FloatArray:
    """(9,) deciles of ``values``, (n,): sums of order statistics, the i-th weighted by the probability that a
    Beta((n + 1) q, (n + 1) (1 - q)) lies in ((i - 1)/n, i/n)."""
    levels, counts = np.unique(values, return_counts=True)
    return _deciles(counts[None, :], levels, values.size)[0]


def _deciles(counts: NDArray[Any], levels: FloatArray, n: int) -> FloatArray:
    """(draws, 9) from the weights of ``levels``, ascending, in every draw, (draws, m); ``n``: sample size."""
    reached = np.cumsum(counts, axis=1)
    below = reached[:, :-1] / reached[:, -1:]
    gaps, found = np.diff(levels), []
    for q in DECILES:
        spread = math.sqrt(q * (1 - q) / (n + 2))
        grid = np.clip(q + spread * np.linspace(-_REACH, _REACH, _POINTS), 0, 1)
        weight = special.betainc((n + 1) * q, (n + 1) * (1 - q), grid)
        found.append(levels[0] + (1 - np.interp(below, grid, weight, 0.0, 1.0)) @ gaps)
    return np.stack(found, axis=1)


def _errors(arms: list[FloatArray], clusters: Partition) -> FloatArray:
    """(9,) standard deviations of the differences of deciles over draws of clusters."""
    units = clusters.index % _MOST  # groups of independent clusters are independent too
    count, n = min(clusters.count, _MOST), arms[0].size
    seed = hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in (*arms, units))).digest()
    rng = np.random.default_rng(int.from_bytes(seed[:8], "big"))
    drawn = rng.multinomial(count, np.full(count, 1 / count), DRAWS).astype(np.float64)
    differences = np.zeros((DRAWS, len(DECILES)))
    for sign, values in zip((-1, 1), arms, strict=True):
        levels = np.unique(values)
        if levels.size > _MOST:
            levels = np.unique(np.quantile(values, np.linspace(0, 1, _MOST), method="inverted_cdf"))
        place = np.searchsorted(levels, values, side="right") - 1
        tally = np.bincount(units * levels.size + place, minlength=count * levels.size)
        differences += sign * _deciles(drawn @ tally.reshape(count, levels.size), levels, n)
    return np.asarray(differences.std(axis=0, ddof=1))
