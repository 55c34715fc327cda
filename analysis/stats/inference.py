"""Interval and tests of one mean, by the method that the data get, and what degenerate data give.

| data | interval and p |
|---|---|
| integers, clusters of one, at most 20,000 pairs | exact bootstrap of the mean, exact sign-flip |
| integers, real clusters, fewer than 30 of them | exact flip of whole clusters, interval by its inversion |
| all else: integers otherwise, ratios of sums, means of ratios | cluster-robust t |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.stats import exact
from analysis.stats.cluster import ClusterMean, Partition
from analysis.stats.unseen import MOST, tail_above, units_wanted
from analysis.wording import Caution, caution, counted, p_value

LEVEL = 0.95
ALPHA = 0.05
#: Two-sided sign-flips of fewer than this many cannot reach p < 0.05: 2^(1 - 5) = 0.0625.
FEWEST = 6
#: With so many pairs, or fewer than so many that differ, exact methods are not to be trusted with skewed differences.
FEW_PAIRS, FEW_THAT_DIFFER = 30, 10
#: A margin is a fraction of at most this denominator, so that whole-number arithmetic decides whether it is reached.
FINEST = 10**6


def fewest_that_differ(method: str, alpha: float = ALPHA) -> int:
    """Units that must differ for a test by ``method`` to reject at ``alpha``: k flips give 2^(1 - k) at least, and
    where the rest is ties a t on fewer than FEWEST rests on no spread either."""
    return max(FEWEST, math.floor(2 - math.log2(alpha)) if method in ("exact", "cluster flip") else 0)


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests of a mean against a margin stated beforehand (Schuirmann 1987).

    ``lo``, ``hi``: interval at 1 - 2 alpha, that is 90%; ``p_unseen``: the probability that prompts which would put
    the mean outside were never drawn (:mod:`analysis.stats.unseen`), which those that were drawn cannot tell; ``p``:
    the largest of it and the two one-sided p-values; ``p_adjusted``: by Holm over the family.
    """

    margin: float
    lo: float | None
    hi: float | None
    p_unseen: float
    p: float
    p_adjusted: float

    @property
    def shown(self) -> bool:
        """Whether interval and tests both put the mean inside the margin."""
        inside = self.lo is not None and self.hi is not None and -self.margin < self.lo and self.hi < self.margin
        return inside and self.p_adjusted < ALPHA


@dataclass(frozen=True)
class Inference:
    """What a method says about a mean: interval at 95%, two-sided p against 0, and equivalence if a margin is given."""

    method: str
    lo: float | None
    hi: float | None
    p: float
    cautions: tuple[Caution, ...] = ()
    equivalence: Equivalence | None = None


def infer(
    d: NDArray[Any], clusters: Partition, robust: ClusterMean, margin: float | None = None, reach: float = 0.0
) -> Inference:
    """Interval and p of the mean of ``d``, (n,), n >= 1; ``robust`` is its cluster-robust mean, ``reach`` the largest
    difference that a prompt could have, which the tests against a margin want."""
    found = _infer(d, clusters, robust, None if margin is None else Fraction(margin).limit_denominator(FINEST))
    return found if found.equivalence is None else with_unseen(found, found.equivalence, d, clusters, reach)


def with_unseen(found: Inference, tested: Equivalence, d: NDArray[Any], clusters: Partition, reach: float) -> Inference:
    """``found`` with its equivalence asking for units enough, and a caution where only their number is in its way."""
    sums, sizes = clusters.sums(d), clusters.sizes
    # equal values do not show how far values can differ
    above, below = (tail_above(side, sizes, reach, tested.margin) if reach else 1.0 for side in (sums, -sums))
    unseen = max(above, below)
    told = found.cautions
    if tested.shown and not reach:
        told = (*told, caution("no-range"))
    elif tested.shown and unseen >= ALPHA:
        nearer = sums if above >= below else -sums
        wanted = units_wanted(nearer, sizes, reach, tested.margin, ALPHA) or MOST
        units = counted(clusters.count, "prompt" if clusters.singletons else "cluster")
        facts: dict[str, Any] = {"margin": tested.margin, "p": p_value(unseen), "reach": reach, "wanted": f"{wanted:,}"}
        told = (*told, caution("unseen-values", units=units, **facts))
    p = max(tested.p, unseen)
    return replace(found, cautions=told, equivalence=replace(tested, p_unseen=unseen, p=p, p_adjusted=p))


def _infer(d: NDArray[Any], clusters: Partition, robust: ClusterMean, bound: Fraction | None) -> Inference:
    n, count = d.size, clusters.count
    if n == 1:
        return Inference("none", None, None, 1.0, (caution("single-pair"),))
    if not d.any():
        return Inference("none", 0.0, 0.0, 1.0, (caution("zero-variance", n=n),), _of_point(0.0, clusters, bound))
    if count == 1:
        return Inference("none", None, None, 1.0, (caution("one-cluster"),))

    integers = d.dtype.kind == "i"
    if integers and clusters.singletons and n <= exact.MAX_PAIRS:
        found = _exact(d, bound)
    elif integers and count <= exact.MAX_FLIP_CLUSTERS:
        found = _cluster_flip(d, clusters, bound)
    else:
        found = _cluster_t(robust, count, bound)
    if robust.se != 0:
        return found
    if np.ptp(d) <= 1e-9 * np.abs(d).max():  # all differences are equal: a point
        told = (*found.cautions, caution("zero-variance", n=n))
        return Inference(found.method, robust.mean, robust.mean, found.p, told, _of_point(robust.mean, clusters, bound))
    told = (*found.cautions, caution("zero-cluster-error", n=count))
    return Inference(found.method, None, None, found.p, told)


def _exact(d: NDArray[np.int64], bound: Fraction | None) -> Inference:
    few = d.size < FEWEST
    mean = exact.bootstrap_mean(d)
    equivalence = None
    if bound is not None:
        equivalence = _equivalence(bound, mean.interval(1 - 2 * ALPHA), mean.at_most(-bound), mean.at_least(bound))
    told = _few_pairs(d.size, int(np.count_nonzero(d)))
    return Inference("exact", *mean.interval(LEVEL), exact.sign_flip_p(d), told, None if few else equivalence)


def _few_pairs(n: int, differ: int) -> tuple[Caution, ...]:
    """A percentile interval is too narrow where few pairs, or few that differ, hold what there is of a skew."""
    if n < FEWEST:
        return (caution("few-pairs", n=n, least=2.0 ** (1 - n)),)
    if n <= FEW_PAIRS or differ < FEW_THAT_DIFFER:
        return (caution("few-pairs-bootstrap", n=n, differ=differ),)
    return ()


def _cluster_flip(d: NDArray[np.int64], clusters: Partition, bound: Fraction | None) -> Inference:
    sums, sizes = clusters.sums(d), clusters.sizes
    p, interval = exact.cluster_flip_p(sums), exact.cluster_flip_interval(sums, sizes, LEVEL)
    if interval is None:
        few = caution("few-clusters", n=clusters.count, least=2.0 ** (1 - clusters.count))
        return Inference("cluster flip", None, None, p, (few,))
    equivalence = None
    if bound is not None:
        inner = exact.cluster_flip_interval(sums, sizes, 1 - 2 * ALPHA)
        above, below = (exact.cluster_flip_above(side * sums, sizes, -bound) for side in (1, -1))
        equivalence = _equivalence(bound, inner, above, below)
    return Inference("cluster flip", *interval, p, (), equivalence)


def _cluster_t(robust: ClusterMean, count: int, bound: Fraction | None) -> Inference:
    few = (caution("few-clusters-t", n=count),) if count <= exact.MAX_FLIP_CLUSTERS else ()
    if robust.se is None or robust.p is None:
        # no spread: all clusters differ from 0 the same way, and the exact flip of whole clusters gives
        p = max(2.0 ** (1 - count), exact.SMALLEST_P) if robust.mean else 1.0
        return Inference("cluster t", robust.lo, robust.hi, p, few)
    equivalence = None
    if bound is not None and count >= FEWEST:
        half = float(special.stdtrit(robust.df, 1 - ALPHA)) * robust.se
        below, above = (float(special.stdtr(robust.df, (s * robust.mean - bound) / robust.se)) for s in (1, -1))
        equivalence = _equivalence(bound, (robust.mean - half, robust.mean + half), below, above)
    return Inference("cluster t", robust.lo, robust.hi, robust.p, few, equivalence)


def _of_point(value: float, clusters: Partition, bound: Fraction | None) -> Equivalence | None:
    """Without spread the interval is a point, and p the least that so many clusters can give, never 0."""
    if bound is None or clusters.count < FEWEST:
        return None
    least = max(2.0**-clusters.count, exact.SMALLEST_P)
    return _equivalence(bound, (value, value), least if abs(value) < bound else 1.0)


def _equivalence(bound: Fraction, interval: tuple[float, float] | None, *one_sided: float) -> Equivalence:
    lo, hi = interval or (None, None)
    p = max(*one_sided, exact.SMALLEST_P)
    return Equivalence(float(bound), lo, hi, 0.0, p, p)
