"""Interval and tests of one mean: the method for each kind of data, and the handling of degenerate data.

| data | interval and p |
|---|---|
| integers, singleton clusters, at most 20,000 pairs | exact bootstrap of the mean, exact sign-flip |
| all else with fewer than 30 effective clusters | flip of whole clusters, interval by its inversion |
| all else: many clusters, ratios of sums, means of ratios | cluster-robust t |

One rule for integers and ratios: a ratio of sums has weights, and a few long answers are as few as a few clusters.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.cautions import caution
from analysis.stats import by_bootstrap, by_flips, by_t
from analysis.stats.cluster import ClusterMean, FloatArray, Partition
from analysis.stats.exact import SMALLEST_P
from analysis.stats.method import ALPHA, FEWEST, Equivalence, Inference, Method, Sample
from analysis.stats.unseen import MOST, tail_above, units_wanted
from analysis.wording import counted, p_value

#: A margin is a fraction with at most this denominator, so that integer arithmetic decides whether it is reached.
FINEST = 10**6


def infer(
    d: NDArray[Any],
    clusters: Partition,
    robust: ClusterMean,
    margin: float | None = None,
    reach: float = 0.0,
    *,
    weights: FloatArray | None = None,
    differ: int | None = None,
    by: Method | None = None,
) -> Inference:
    """Interval and p of the mean of ``d``, (n,), n >= 1.

    ``robust``: its cluster-robust mean; ``reach``: the largest difference that a prompt could have, which the tests
    against a margin require; ``weights``: as in :func:`analysis.stats.cluster.cluster_t`; ``differ``: clusters with a
    difference, those of ``d`` by default; ``by``: a method in place of the one that the data get.
    """
    bound = None if margin is None else Fraction(margin).limit_denominator(FINEST)
    if differ is None:
        differ = clusters.subset(d != 0).count
    sample = Sample(d, clusters, weights, differ, robust, bound)
    inference = _degenerate(sample) or _METHODS[by or method_for(sample)].infer(sample)
    return (
        inference
        if inference.equivalence is None
        else with_unseen(inference, inference.equivalence, d, clusters, reach, weights)
    )


_METHODS = {Method.BOOTSTRAP: by_bootstrap, Method.FLIPS: by_flips, Method.T: by_t}


def method_for(sample: Sample) -> Method:
    """The method that the data get."""
    if by_bootstrap.applies(sample):
        return Method.BOOTSTRAP
    return Method.FLIPS if by_flips.applies(sample) else Method.T


def with_unseen(
    inference: Inference,
    tested: Equivalence,
    d: NDArray[Any],
    clusters: Partition,
    reach: float,
    weights: FloatArray | None = None,
) -> Inference:
    """``found`` with an equivalence test that also requires enough units, and a caution if only their number prevents
    it."""
    if weights is None:
        sums, sizes = clusters.sums(d), clusters.sizes
    else:
        sums, sizes = clusters.sums(d + float(d.mean()) * (weights - 1)), clusters.sums(weights)
    # if all values are equal, the possible range is unknown
    above, below = (tail_above(side, sizes, reach, tested.margin) if reach else 1.0 for side in (sums, -sums))
    unseen = max(above, below)
    cautions = inference.cautions
    if tested.shown and not reach:
        cautions = (*cautions, caution("no-range"))
    elif tested.shown and unseen >= ALPHA:
        nearer = sums if above >= below else -sums
        wanted = units_wanted(nearer, sizes, reach, tested.margin, ALPHA) or MOST
        units = counted(clusters.count, "prompt" if clusters.singletons else "cluster")
        facts: dict[str, Any] = {"margin": tested.margin, "p": p_value(unseen), "reach": reach, "wanted": f"{wanted:,}"}
        cautions = (*cautions, caution("unseen-values", units=units, **facts))
    p = max(tested.p, unseen)
    return replace(inference, cautions=cautions, equivalence=replace(tested, p_unseen=unseen, p=p, p_adjusted=p))


def _degenerate(sample: Sample) -> Inference | None:
    """What one pair, one cluster, and clusters that do not differ give; None for all other data."""
    d, clusters, robust = sample.d, sample.clusters, sample.robust
    n, count = d.size, clusters.count
    if n == 1:
        return Inference(Method.NONE, None, None, 1.0, (caution("single-pair"),))
    if not d.any():
        return Inference(Method.NONE, 0.0, 0.0, 1.0, (caution("zero-variance", n=n),), _of_point(sample, 0.0))
    if count == 1:
        return Inference(Method.NONE, None, None, 1.0, (caution("one-cluster"),))
    if robust.se:
        return None
    # all clusters differ from 0 by the same mean, and the flip of whole clusters gives
    method, p = method_for(sample), max(2.0 ** (1 - count), SMALLEST_P)
    few = (
        () if count >= FEWEST else (caution("few-pairs" if clusters.singletons else "few-clusters", n=count, least=p),)
    )
    if np.ptp(d) > 1e-9 * np.abs(d).max():
        return Inference(method, None, None, p, (*few, caution("zero-cluster-error", n=count)))
    told = (*(few or sample.few_or_skewed()), caution("zero-variance", n=n))
    return Inference(method, robust.mean, robust.mean, p, told, _of_point(sample, robust.mean))


def _of_point(sample: Sample, value: float) -> Equivalence | None:
    """Without spread the interval is a point, and p is the smallest possible with this number of clusters, never 0."""
    if sample.bound is None or sample.clusters.count < FEWEST:
        return None
    least = max(2.0**-sample.clusters.count, SMALLEST_P)
    return Equivalence.of(sample.bound, (value, value), least if abs(value) < sample.bound else 1.0)
