"""Paired estimates: which method a kind of data gets, what degenerate data give, and when there is a verdict.

| data | interval and p |
|---|---|
| integers, clusters of one, at most 20,000 pairs | exact bootstrap of the mean, exact sign-flip |
| integers, real clusters, fewer than 30 of them | exact flip of whole clusters, interval by its inversion |
| all else: integers otherwise, ratios of sums, means of ratios | cluster-robust t |

A sign-flip test asks for symmetry about 0 and an interval for the mean, so a verdict needs both to agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis import exact, wording
from analysis.cluster import ClusterMean, Partition, cluster_t, partition
from analysis.ratio import linearise
from analysis.wording import Caution, Estimand, Verdict, caution

LEVEL = 0.95
ALPHA = 0.05
#: Two-sided sign-flips of fewer than this many cannot reach p < 0.05: 2^(1 - 5) = 0.0625.
FEWEST = 6


@dataclass(frozen=True)
class Estimate:
    """A paired difference, B - A, with what it rests on. None is: not defined.

    ``subset``: the data set it is about, None for all. ``lo``, ``hi``: interval at ``level``. ``p``: two-sided;
    ``p_adjusted``: by Holm over the ``family_size`` tests of its family (itself, for a family of one).
    ``n_zero``: pairs without a difference. ``se``, ``design_effect``, ``icc``: of the cluster-robust mean, whatever
    the method.
    """

    estimand: Estimand
    subset: str | None
    method: str
    mean_a: float | None
    mean_b: float | None
    estimate: float | None
    lo: float | None
    hi: float | None
    level: float
    p: float | None
    p_adjusted: float | None
    family_size: int
    n_pairs: int
    n_clusters: int
    n_zero: int
    se: float | None
    design_effect: float | None
    icc: float | None
    verdict: Verdict
    cautions: tuple[Caution, ...]


@dataclass(frozen=True)
class _Inference:
    method: str
    lo: float | None
    hi: float | None
    p: float
    cautions: tuple[Caution, ...] = ()


def of_integers(a: Any, b: Any, cluster_ids: Any, estimand: Estimand, subset: str | None = None) -> Estimate:
    """Mean difference of integers, (n,) per arm over the same prompts; n of 0 gives an empty estimate."""
    a, b = exact.as_integers(a), exact.as_integers(b)
    return _estimate(a, b, int(np.sum(a == b)), cluster_ids, estimand, subset)


def of_ratios(
    tokens: tuple[Any, Any], steps: tuple[Any, Any], cluster_ids: Any, estimand: Estimand, subset: str | None = None
) -> Estimate:
    """Difference of tokens per step, pooled (``TAU_POOLED``) or as a mean over prompts (``TAU_MEAN``).

    ``tokens``, ``steps``: (arm A, arm B), (n,) integers each, steps positive.
    """
    (t_a, t_b), (s_a, s_b) = tokens, steps
    ties = int(np.sum((t_a == t_b) & (s_a == s_b)))
    if estimand is wording.TAU_POOLED and len(t_a):
        a, b = linearise(t_a, s_a), linearise(t_b, s_b)
    else:
        a, b = np.asarray(t_a) / np.asarray(s_a), np.asarray(t_b) / np.asarray(s_b)
    return _estimate(a, b, ties, cluster_ids, estimand, subset)


def conclude(estimate: Estimate, p_adjusted: float | None, family_size: int) -> Estimate:
    """``estimate`` with its p adjusted within a family, and the verdict that this leaves."""
    cautions = tuple(c for c in estimate.cautions if c.code not in ("p-without-interval", "interval-without-p"))
    estimate = replace(estimate, p_adjusted=p_adjusted, family_size=family_size, cautions=cautions)
    if estimate.n_pairs > 1 and estimate.n_zero == estimate.n_pairs:
        return replace(estimate, verdict=Verdict.IDENTICAL)
    verdict = Verdict.INCONCLUSIVE
    if p_adjusted is not None and estimate.lo is not None and estimate.hi is not None:
        rejects, excludes = p_adjusted < ALPHA, estimate.lo > 0 or estimate.hi < 0
        if rejects and excludes:
            verdict = Verdict.B_BETTER if estimate.lo > 0 else Verdict.A_BETTER
        elif rejects:
            cautions += (caution("p-without-interval", p=wording.p_value(p_adjusted)),)
        elif excludes:
            adjusted = f" after Holm over {family_size}" if family_size > 1 else ""
            cautions += (caution("interval-without-p", p=wording.p_value(p_adjusted), adjusted=adjusted),)
    return replace(estimate, verdict=verdict, cautions=cautions)


def _estimate(
    a: NDArray[Any], b: NDArray[Any], ties: int, cluster_ids: Any, estimand: Estimand, subset: str | None
) -> Estimate:
    n = a.size
    if n == 0:
        return Estimate(
            estimand=estimand,
            subset=subset,
            method="none",
            **dict.fromkeys(("mean_a", "mean_b", "estimate", "lo", "hi", "p", "p_adjusted", "se"), None),
            level=LEVEL,
            family_size=0,
            n_pairs=0,
            n_clusters=0,
            n_zero=0,
            design_effect=None,
            icc=None,
            verdict=Verdict.INCONCLUSIVE,
            cautions=(caution("no-pairs"),),
        )
    differences, clusters = b - a, partition(cluster_ids)
    robust = cluster_t(differences, clusters, LEVEL)
    inference = _infer(differences, clusters, robust)
    return conclude(
        Estimate(
            estimand=estimand,
            subset=subset,
            method=inference.method,
            mean_a=float(a.mean()),
            mean_b=float(b.mean()),
            estimate=robust.mean,
            lo=inference.lo,
            hi=inference.hi,
            level=LEVEL,
            p=inference.p,
            p_adjusted=inference.p,
            family_size=1,
            n_pairs=n,
            n_clusters=clusters.count,
            n_zero=ties,
            se=robust.se,
            design_effect=robust.design_effect,
            icc=robust.icc,
            verdict=Verdict.INCONCLUSIVE,
            cautions=inference.cautions,
        ),
        inference.p,
        1,
    )


def _infer(d: NDArray[Any], clusters: Partition, robust: ClusterMean) -> _Inference:
    """Interval and p of the mean of ``d`` (n,), n >= 1."""
    n, count = d.size, clusters.count
    if n == 1:
        return _Inference("none", None, None, 1.0, (caution("single-pair"),))
    if not d.any():
        return _Inference("none", 0.0, 0.0, 1.0, (caution("zero-variance", n=n),))
    if count == 1:
        return _Inference("none", None, None, 1.0, (caution("one-cluster"),))

    integers = d.dtype.kind == "i"
    if integers and clusters.singletons and n <= exact.MAX_PAIRS:
        inference = _exact(d)
    elif integers and count <= exact.MAX_FLIP_CLUSTERS:
        inference = _cluster_flip(d, clusters)
    else:
        inference = _cluster_t(robust, count)
    if robust.se == 0:
        return _without_spread(inference, d, robust)
    return inference


def _exact(d: NDArray[np.int64]) -> _Inference:
    lo, hi = exact.bootstrap_interval(d, LEVEL)
    few = (caution("few-pairs", n=d.size, least=2.0 ** (1 - d.size)),) if d.size < FEWEST else ()
    return _Inference("exact", lo, hi, exact.sign_flip_p(d), few)


def _cluster_flip(d: NDArray[np.int64], clusters: Partition) -> _Inference:
    sums = clusters.sums(d)
    p, interval = exact.cluster_flip_p(sums), exact.cluster_flip_interval(sums, clusters.sizes, LEVEL)
    if interval is None:
        few = caution("few-clusters", n=clusters.count, least=2.0 ** (1 - clusters.count))
        return _Inference("cluster flip", None, None, p, (few,))
    return _Inference("cluster flip", *interval, p)


def _cluster_t(robust: ClusterMean, count: int) -> _Inference:
    few = (caution("few-clusters-t", n=count),) if count <= exact.MAX_FLIP_CLUSTERS else ()
    p = robust.p
    if p is None:  # no spread: all clusters differ from 0 the same way, and the exact flip of whole clusters gives
        p = max(2.0 ** (1 - count), exact.SMALLEST_P) if robust.mean else 1.0
    return _Inference("cluster t", robust.lo, robust.hi, p, few)


def _without_spread(inference: _Inference, d: NDArray[Any], robust: ClusterMean) -> _Inference:
    """A standard error of 0: a point if all differences are equal, no interval if only the cluster means are."""
    if np.ptp(d) <= 1e-9 * np.abs(d).max():
        return replace(
            inference,
            lo=robust.mean,
            hi=robust.mean,
            cautions=(*inference.cautions, caution("zero-variance", n=d.size)),
        )
    told = (*inference.cautions, caution("zero-cluster-error", n=robust.df + 1))
    return replace(inference, lo=None, hi=None, cautions=told)
