"""Paired estimates: B - A over the same prompts, with the verdict from interval and test.

A sign-flip test is about symmetry around 0, an interval about the mean, so a verdict requires both to agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import wording
from analysis.cautions import Caution, caution
from analysis.stats import exact, ratio
from analysis.stats.cluster import ClusterMean, FloatArray, Partition, cluster_t, partition
from analysis.stats.inference import infer
from analysis.stats.method import ALPHA, FEWEST, LEVEL, Equivalence, Inference, Method
from analysis.stats.sensitivity import detectable
from analysis.wording import Estimand, Verdict, counted


@dataclass(frozen=True)
class Estimate:
    """A paired difference, B - A, with its interval, test and sample. None means undefined.

    ``subset``: the data set or kind of prompts, None for all prompts. ``lo_a`` to ``hi_b``: cluster-robust
    t intervals of each arm's own mean, whatever the method of the difference; None without spread between clusters.
    ``lo``, ``hi``: interval of the difference. All at ``level``. ``p``: two-sided;
    ``p_adjusted``: by Holm over the ``family_size`` tests of its family (itself, for a family of one). ``n_zero``:
    pairs without a difference; ``n_differ``: clusters with one, the units that the estimate rests on; ``n_effective``:
    effective number of independent clusters, by their weights and variances. ``se``, its degrees of freedom ``df``,
    ``design_effect``, ``icc``: of the cluster-robust mean, whatever the method. ``mde``: the true difference that a
    test like this one finds with probability 0.8, at 0.05 over the size of the family; none where fewer units differ
    than such a test requires. ``equivalence``: if a margin was given and the data allow the tests. ``withheld``: that
    the design has too few units for any verdict, whatever interval and p say.
    """

    estimand: Estimand
    subset: str | None
    method: Method
    mean_a: float | None
    lo_a: float | None
    hi_a: float | None
    mean_b: float | None
    lo_b: float | None
    hi_b: float | None
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
    n_differ: int
    n_effective: float
    se: float | None
    df: float
    design_effect: float | None
    icc: float | None
    mde: float | None
    equivalence: Equivalence | None
    verdict: Verdict
    cautions: tuple[Caution, ...]
    withheld: bool = False


#: The counts of a pair that an estimate uses, beside its cluster.
COUNTS = ("tokens_a", "steps_a", "tokens_b", "steps_b")


def cluster_column(frame: pd.DataFrame) -> str:
    """The column that identifies clusters: their numbers if there are any, else their ids."""
    return "cluster" if "cluster" in frame else "cluster_id"


def values_of(frame: pd.DataFrame, estimand: Estimand) -> tuple[NDArray[Any], NDArray[Any]]:
    """Values of arm A and of arm B, (n,) each over the pairs in ``frame``, whose means are the metric of the arms and
    whose difference has the variance of its estimate: integers where every value is a whole number, else floats."""
    tokens = frame["tokens_a"].to_numpy(), frame["tokens_b"].to_numpy()
    steps = frame["steps_a"].to_numpy(), frame["steps_b"].to_numpy()
    whole = all(t.dtype.kind in "iu" for t in tokens) and all(bool((s == 1).all()) for s in steps)
    if estimand is wording.ACCEPTED_LENGTH or (whole and len(frame)):  # one step each: its tokens are the value
        return exact.as_integers(tokens[0]), exact.as_integers(tokens[1])
    if estimand is wording.TAU_POOLED and len(frame):
        return ratio.linearise(tokens[0], steps[0]), ratio.linearise(tokens[1], steps[1])
    return tokens[0] / steps[0], tokens[1] / steps[1]


#: (n,) weights of mean 1 of arm A and of arm B.
Weights = tuple[FloatArray, FloatArray]


def weights_of(frame: pd.DataFrame, estimand: Estimand) -> Weights | None:
    """Weights of pairs in the mean of each arm, None where all have the same: answers of many steps move a pooled
    ratio more."""
    steps = frame["steps_a"].to_numpy(), frame["steps_b"].to_numpy()
    if estimand is not wording.TAU_POOLED or not len(frame) or all(bool((s == 1).all()) for s in steps):
        return None
    return ratio.weights(steps[0]), ratio.weights(steps[1])


def joint(weights: Weights | None) -> FloatArray | None:
    """Weights of pairs in the difference of the arms."""
    return None if weights is None else (weights[0] + weights[1]) / 2


def tied(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Which pairs have the same counts in both arms, (n,)."""
    return ((frame["tokens_a"] == frame["tokens_b"]) & (frame["steps_a"] == frame["steps_b"])).to_numpy()


def of_pairs(
    frame: pd.DataFrame, estimand: Estimand, subset: str | None = None, margin: float | None = None
) -> Estimate:
    """The estimate over pairs (:class:`analysis.runlog.pairing.Pairs`), those of data set ``subset`` if one is
    given. Without pairs the estimate is empty."""
    rows = frame if subset is None else frame.loc[frame["dataset"] == subset, [*COUNTS, cluster_column(frame)]]
    values, weights = values_of(rows, estimand), weights_of(rows, estimand)
    return of_values(*values, tied(rows), rows[cluster_column(rows)], estimand, subset, margin, weights)


def of_questions(frame: pd.DataFrame, margin: float | None = None) -> Estimate | None:
    """The mean of tau over prompts, with all turns of a prompt together; None if every prompt has one turn."""
    if not (frame["turn"] > 0).any():
        return None
    questions = frame.groupby(["prompt_id", "sample"], sort=True)
    joined = questions[list(COUNTS)].sum()
    joined[cluster_column(frame)] = questions[cluster_column(frame)].first()
    return of_pairs(joined.reset_index(drop=True), wording.TAU_PROMPTS, margin=margin)


def conclude(
    estimate: Estimate, p_adjusted: float | None, family_size: int, p_equivalence: float | None = None
) -> Estimate:
    """``estimate`` with its p-values adjusted within a family, and the resulting verdict.

    With a margin, a significant difference that is shown to lie inside it counts as equivalent, not as better.
    """
    alpha = ALPHA / max(family_size, 1)
    least = estimate.method.fewest_that_differ(alpha)
    # signs of clusters have the power of a t over their number, whatever they weigh
    df = estimate.n_clusters - 1 if estimate.method.counts_signs else estimate.df
    equivalence = estimate.equivalence
    if equivalence is not None and p_equivalence is not None:
        equivalence = replace(equivalence, p_adjusted=p_equivalence)
    estimate = replace(
        estimate,
        p_adjusted=p_adjusted,
        family_size=family_size,
        mde=detectable(estimate.se, df, alpha=alpha) if estimate.n_differ >= least else None,
        equivalence=equivalence,
    )
    verdict, cautions = _verdict(estimate)
    if estimate.se and estimate.n_clusters >= FEWEST and estimate.n_differ < least:
        units = counted(estimate.n_clusters, "prompt" if estimate.n_clusters == estimate.n_pairs else "cluster")
        cautions = (*cautions, caution("few-differ", n=estimate.n_differ, units=units, least=least))
    kept = tuple(c for c in estimate.cautions if c.code not in _OF_THE_VERDICT)
    return replace(estimate, verdict=verdict, cautions=(*kept, *cautions))


_OF_THE_VERDICT = (
    "p-without-interval",
    "interval-without-p",
    "alone-not-in-family",
    "inside-margin",
    "few-differ",
)


def _verdict(e: Estimate) -> tuple[Verdict, tuple[Caution, ...]]:
    """The verdict, with its cautions."""
    if e.withheld:
        return Verdict.INCONCLUSIVE, ()
    equivalent = e.equivalence is not None and e.equivalence.shown
    if e.n_pairs > 1 and e.n_zero == e.n_pairs:
        return (Verdict.EQUIVALENT if equivalent else Verdict.IDENTICAL), ()
    rejects = e.p_adjusted is not None and e.p_adjusted < ALPHA
    excludes = e.lo is not None and e.hi is not None and (e.lo > 0 or e.hi < 0)
    p = wording.p_value(e.p_adjusted)
    if equivalent and e.equivalence is not None:
        inside = (caution("inside-margin", p=p, margin=e.equivalence.margin),) if rejects and excludes else ()
        return Verdict.EQUIVALENT, inside
    if rejects and excludes:
        return (Verdict.B_BETTER if e.lo is not None and e.lo > 0 else Verdict.A_BETTER), ()
    if rejects and e.lo is not None:
        return Verdict.INCONCLUSIVE, (caution("p-without-interval", p=p),)
    if excludes:
        if e.p is not None and e.p < ALPHA:
            alone = wording.p_value(e.p)
            return Verdict.INCONCLUSIVE, (caution("alone-not-in-family", alone=alone, size=e.family_size, p=p),)
        adjusted = f" after Holm correction over {e.family_size} tests" if e.family_size > 1 else ""
        return Verdict.INCONCLUSIVE, (caution("interval-without-p", p=p, adjusted=adjusted),)
    return Verdict.INCONCLUSIVE, ()


def own_mean(
    values: NDArray[Any], clusters: Partition, weights: FloatArray | None = None
) -> tuple[float, float | None, float | None]:
    """One arm's mean of ``values`` (n,) with its cluster-robust t interval; no interval if clusters do not differ,
    because lack of variation is not certainty."""
    return interval_of(cluster_t(values, clusters, LEVEL, weights))


def without_means(estimate: Estimate) -> Estimate:
    """The estimate of a contrast whose two sides are no arm's mean."""
    return replace(estimate, mean_a=None, lo_a=None, hi_a=None, mean_b=None, lo_b=None, hi_b=None)


def interval_of(found: ClusterMean) -> tuple[float, float | None, float | None]:
    """Mean and interval, which a standard error of 0 does not have."""
    return (found.mean, found.lo, found.hi) if found.se else (found.mean, None, None)


def of_values(
    a: NDArray[Any],
    b: NDArray[Any],
    ties: NDArray[np.bool_],
    cluster_ids: Iterable[str],
    estimand: Estimand,
    subset: str | None = None,
    margin: float | None = None,
    weights: Weights | None = None,
    by: Method | None = None,
) -> Estimate:
    """The estimate of mean(b) - mean(a), (n,) values per arm of the same prompts; ``ties``, (n,): pairs that do not
    differ, though a linearised ratio may; ``weights`` per arm, as in :func:`~.cluster.cluster_t`; ``by``: a method in
    place of the one that the data get."""
    if a.size == 0:
        return _empty(estimand, subset)
    d, clusters = b - a, partition(cluster_ids)
    (w_a, w_b), w = (None, None) if weights is None else weights, joint(weights)
    robust = cluster_t(d, clusters, LEVEL, w)
    reach = float(max(a.max(), b.max()) - min(a.min(), b.min()))
    differ = clusters.subset(~ties).count
    inference = infer(d, clusters, robust, margin, reach, weights=w, differ=differ, by=by)
    arms = own_mean(a, clusters, w_a), own_mean(b, clusters, w_b)
    return assembled(estimand, subset, arms, robust, inference, (a.size, clusters.count, int(ties.sum()), differ))


def assembled(
    estimand: Estimand,
    subset: str | None,
    arms: tuple[tuple[float, float | None, float | None], tuple[float, float | None, float | None]],
    robust: ClusterMean,
    found: Inference,
    counts: tuple[int, int, int, int],
) -> Estimate:
    """The estimate from its parts, a family of one. ``arms``: mean and interval of A and of B; ``counts``: pairs,
    clusters, ties, clusters that differ."""
    (mean_a, lo_a, hi_a), (mean_b, lo_b, hi_b) = arms
    n_pairs, n_clusters, n_zero, n_differ = counts
    few = robust.se and n_clusters >= FEWEST and robust.effective < FEWEST
    dominated = (caution("dominated", n=n_clusters, effective=robust.effective),) if few else ()
    estimate = Estimate(
        estimand=estimand,
        subset=subset,
        method=found.method,
        mean_a=mean_a,
        lo_a=lo_a,
        hi_a=hi_a,
        mean_b=mean_b,
        lo_b=lo_b,
        hi_b=hi_b,
        estimate=robust.mean,
        lo=found.lo,
        hi=found.hi,
        level=LEVEL,
        p=found.p,
        p_adjusted=found.p,
        family_size=1,
        n_pairs=n_pairs,
        n_clusters=n_clusters,
        n_zero=n_zero,
        n_differ=n_differ,
        n_effective=robust.effective,
        se=robust.se,
        df=robust.df,
        design_effect=robust.design_effect,
        icc=robust.icc,
        mde=None,
        equivalence=found.equivalence,
        verdict=Verdict.INCONCLUSIVE,
        cautions=(*found.cautions, *dominated),
        withheld=n_zero < n_pairs and not found.method.enough(n_clusters, robust.effective),
    )
    return conclude(estimate, found.p, 1)


def _empty(estimand: Estimand, subset: str | None) -> Estimate:
    return Estimate(
        estimand=estimand,
        subset=subset,
        method=Method.NONE,
        mean_a=None,
        lo_a=None,
        hi_a=None,
        mean_b=None,
        lo_b=None,
        hi_b=None,
        estimate=None,
        lo=None,
        hi=None,
        level=LEVEL,
        p=None,
        p_adjusted=None,
        family_size=0,
        n_pairs=0,
        n_clusters=0,
        n_zero=0,
        n_differ=0,
        n_effective=0.0,
        se=None,
        df=0.0,
        design_effect=None,
        icc=None,
        mde=None,
        equivalence=None,
        verdict=Verdict.INCONCLUSIVE,
        cautions=(caution("no-pairs"),),
    )
