"""Comparison of data sets: a mean with equal weight per data set, their heterogeneity, and contrasts between them.

A pooled mean depends on the mix of prompts, a mean over data sets does not. The two can disagree, even in sign
(Simpson's paradox). A data set differs from the others only if the contrast itself is significantly different from
0: two different verdicts are not evidence of a difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import special

from analysis.cautions import Caution, caution
from analysis.stats.cluster import ClusterMean, FloatArray, partition, without_rounding
from analysis.stats.estimate import (
    COUNTS,
    Estimate,
    assembled,
    cluster_column,
    interval_of,
    joint,
    tied,
    values_of,
    weights_of,
)
from analysis.stats.exact import SMALLEST_P
from analysis.stats.families import holm
from analysis.stats.inference import infer
from analysis.stats.method import ALPHA, FEWEST, LEVEL, Inference, Method, Sample
from analysis.stats.pooling import random_effects
from analysis.stats.sensitivity import detectable
from analysis.stats.shrinkage import Pooled, partially_pooled
from analysis.stats.strata import Stratum, combine, designed, stratum
from analysis.wording import Estimand, balanced, equals_p

#: With fewer data sets than this, I^2 is too noisy.
FEW_DATASETS = 5
#: A data set of fewer clusters can have a tiny variance by chance, and then a mean over data sets seems exact.
LEAST = 4
#: Cautions of a data set that a test of several inherits.
_UNITS = {"few-units", "skewed"}


def balanced_mean(frame: pd.DataFrame, estimand: Estimand, margin: float | None = None) -> Estimate | None:
    """The difference with every data set weighing the same: the mean of their estimates, with a t interval from the
    variance of each (:mod:`analysis.stats.strata`). None for fewer than two data sets.

    ``frame``: pairs. There is no interval where a data set has fewer than LEAST clusters, or where those of fewer than
    FEWEST weigh so much that fewer than FEWEST effective ones remain, if all clusters are equally variable. (To judge
    by the variances found would keep those studies in which a small data set agrees by chance; for the same reason the
    degrees of freedom are then at most those of equal variances.)
    """
    names = sorted(frame["dataset"].unique())
    if len(names) < 2:
        return None
    clusters, of_row = partition(frame[cluster_column(frame)]), frame["dataset"].to_numpy()
    counts, fewest = frame[list(COUNTS)], clusters.count
    few: list[str] = []
    strata: tuple[list[Stratum], ...] = ([], [], [])
    arms = np.zeros(len(frame)), np.zeros(len(frame))  # deviations, by what they weigh in the balanced mean
    for name in names:
        rows = of_row == name
        values, weights = values_of(counts[rows], estimand), weights_of(counts[rows], estimand)
        of_arms = (None, None) if weights is None else weights
        for kind, x, w in zip(strata, (*values, values[1] - values[0]), (*of_arms, joint(weights)), strict=True):
            kind.append(stratum(x, clusters, rows, w))
        for arm, x in zip(arms, values, strict=True):
            arm[rows] = len(frame) / len(names) / rows.sum() * (x - x.mean())
        count = clusters.subset(rows).count
        few, fewest = few + [str(name)] * (count < FEWEST), min(fewest, count)
    equal = [1 / len(names)] * len(names)
    design = designed(strata[-1], equal) if few and fewest >= LEAST else math.inf
    of_a, of_b, robust = (combine(kind, equal, LEVEL, design) for kind in strata)
    ties = tied(frame)
    tally = len(frame), clusters.count, int(ties.sum()), clusters.subset(~ties).count
    if few and (fewest < LEAST or design + 1 < FEWEST):
        cautions = (caution("small-datasets", names=", ".join(few), least=FEWEST),)
        means = (of_a.mean, None, None), (of_b.mean, None, None)
        without = ClusterMean(robust.mean, None, None, None, None, 0.0, None, None)
        nothing = Inference(Method.NONE, None, None, None, cautions)
        return assembled(balanced(estimand), None, means, without, nothing, tally)
    a, b = arms[0] + of_a.mean, arms[1] + of_b.mean
    reach = float(max(a.max(), b.max()) - min(a.min(), b.min()))
    found = infer(without_rounding(b - a, a), clusters, robust, margin, reach, differ=tally[-1], by=Method.T)
    return assembled(balanced(estimand), None, (interval_of(of_a), interval_of(of_b)), robust, found, tally)


def disagreement(pooled: Estimate, others: Estimate | None, by_dataset: Mapping[str, Estimate]) -> tuple[Caution, ...]:
    """Cautions if the mix of prompts decides the sign or the verdict: the pooled difference against the balanced one,
    and its sign against the sign in every data set."""
    if others is None or pooled.estimate is None or others.estimate is None:
        return ()
    cautions = []
    if pooled.estimate * others.estimate < 0:
        cautions.append(caution("simpson-balanced", pooled=pooled.estimate, balanced=others.estimate))
    elif pooled.verdict is not others.verdict and others.p is not None:
        of_both = f"{pooled.verdict} ({equals_p(pooled.p)})", f"{others.verdict} ({equals_p(others.p)})"
        cautions.append(caution("verdict-by-mix", pooled=of_both[0], balanced=of_both[1]))
    if all(e.estimate is not None and e.estimate * pooled.estimate < 0 for e in by_dataset.values()):
        cautions.append(caution("simpson", pooled=pooled.estimate))
    return tuple(cautions)


@dataclass(frozen=True)
class Heterogeneity:
    """Random effects over data sets: the mean effect on a data set of this kind, and the spread between data sets.

    ``estimate``, ``lo``, ``hi``: mean over a population of data sets (Hartung-Knapp-Sidik-Jonkman, t with k - 1
    degrees of freedom); ``between_sd``: standard deviation of true effects between data sets (Paule-Mandel);
    ``i_squared``: share of the scatter that is between, in 0..1; ``q``: Cochran's; ``p``: Welch's test that all are
    equal, which knows that variances are estimated, with k - 1 and ``df`` degrees of freedom; ``pooled``: what each of
    the data sets' effects is likely to be given the others (:mod:`analysis.stats.shrinkage`), empty for two.
    """

    datasets: int
    estimate: float
    lo: float
    hi: float
    between_sd: float
    i_squared: float
    q: float
    p: float
    df: float
    cautions: tuple[Caution, ...]
    pooled: tuple[Pooled, ...] = ()


def heterogeneity(frame: pd.DataFrame, by_dataset: Mapping[str, Estimate]) -> Heterogeneity | None:
    """None for fewer than two data sets that have a standard error and at least FEWEST clusters that differ. (With one
    differing pair in 60 the standard error is tiny, and the data set would get nearly all the weight.)

    The interval is never narrower than that of the classical random-effects mean. HKSJ alone would be, if data sets
    agree by chance (IntHout et al. 2014).
    """
    usable = {name: e for name, e in by_dataset.items() if e.se and e.n_differ >= FEWEST and e.estimate is not None}
    if len(usable) < 2:
        return None
    effects = np.array([e.estimate for e in usable.values()])
    variances = np.array([e.se**2 for e in usable.values() if e.se])
    pooled, k = random_effects(effects, variances), len(usable)
    p, df = welch(effects, variances, np.array([e.df for e in usable.values()]))
    half = float(special.stdtrit(k - 1, (1 + LEVEL) / 2)) * math.sqrt(pooled.variance)
    cautions = []
    if left_out := sorted(set(by_dataset) - set(usable)):
        cautions.append(caution("heterogeneity-left-out", least=FEWEST, names=", ".join(left_out)))
    if k < FEW_DATASETS:
        cautions.append(caution("few-datasets", n=k))
    if doubtful := [name for name, e in usable.items() if _UNITS & {c.code for c in e.cautions}]:
        cautions.append(caution("datasets-few-or-skewed", names=", ".join(sorted(doubtful))))
    clusters, (dataset, _) = partition(frame[cluster_column(frame)]), pd.factorize(frame["dataset"])
    of_cluster = np.empty(clusters.count, np.int64)
    of_cluster[clusters.index] = dataset
    if (of_cluster[clusters.index] != dataset).any():
        cautions.append(caution("shared-clusters"))
    return Heterogeneity(
        datasets=k,
        estimate=pooled.mean,
        lo=pooled.mean - half,
        hi=pooled.mean + half,
        between_sd=math.sqrt(pooled.between),
        i_squared=max(0.0, 1 - (k - 1) / pooled.q) if pooled.q else 0.0,
        q=pooled.q,
        p=p,
        df=df,
        cautions=tuple(cautions),
        pooled=partially_pooled(list(usable), effects, variances),
    )


def welch(effects: FloatArray, variances: FloatArray, dfs: FloatArray) -> tuple[float, float]:
    """p that (k,) independent effects are equal, and the second degrees of freedom of its F (Welch 1951; James 1951).

    ``variances`` of the effects are estimates with ``dfs`` degrees of freedom each; where those are large the test is
    Cochran's.
    """
    k, weights = effects.size, 1 / variances
    mean = float(weights @ effects / weights.sum())
    q = float(weights @ (effects - mean) ** 2)
    slack = float(((1 - weights / weights.sum()) ** 2 / dfs).sum())
    df = (k**2 - 1) / (3 * slack)
    f = q / (k - 1) / (1 + 2 * (k - 2) * slack / (k**2 - 1))
    return max(float(special.fdtrc(k - 1, df, f)), SMALLEST_P), df


@dataclass(frozen=True)
class Interaction:
    """One data set against all others together: the difference of their differences.

    ``mde``: the true contrast that such a test detects with probability 0.8; ``p_adjusted``: by Holm over
    the contrasts; ``df``: degrees of freedom. With two data sets there is one contrast, ``against`` the other by name.
    ``cautions``: on either side too few units, or skewed ones.
    """

    dataset: str
    against: str
    estimate: float
    lo: float | None
    hi: float | None
    p: float | None
    p_adjusted: float | None
    mde: float | None
    df: float
    cautions: tuple[Caution, ...] = ()

    @property
    def shown(self) -> bool:
        """Whether the data set differs significantly from the others."""
        return self.p_adjusted is not None and self.p_adjusted < ALPHA


def interactions(frame: pd.DataFrame, estimand: Estimand) -> tuple[Interaction, ...]:
    """A contrast per data set, adjusted by Holm: one for two data sets, empty for fewer.

    The variances of both sides are cluster-robust and clusters on both sides enter with their covariance, degrees of
    freedom by Satterthwaite (:func:`analysis.stats.strata.combine`). A side on which fewer than FEWEST clusters differ
    has no test, as in :func:`heterogeneity`.
    """
    names = sorted(frame["dataset"].unique())
    if len(names) < 2:
        return ()
    clusters, ties = partition(frame[cluster_column(frame)]), tied(frame)
    counts, contrasts = frame[list(COUNTS)], []
    for name in names[: 1 if len(names) == 2 else None]:
        inside = (frame["dataset"] == name).to_numpy()
        sides, units = [], []
        for rows in (inside, ~inside):
            a, b = values_of(counts[rows], estimand)
            weights = joint(weights_of(counts[rows], estimand))
            side, differ = stratum(b - a, clusters, rows, weights), clusters.subset(rows & ~ties).count
            sides.append(side)
            units.append(Sample(b - a, clusters.subset(rows), weights, differ, side.found, None))
        enough = all(side.differ >= FEWEST for side in units)
        found = combine(sides, (1, -1), LEVEL)
        lo = hi = p = mde = None
        cautions: tuple[Caution, ...] = ()
        if enough and found.se:
            lo, hi, p, mde = found.lo, found.hi, found.p, detectable(found.se, found.df)
            cautions = tuple(c for side in units for c in side.few_or_skewed())
        against = names[1] if len(names) == 2 else "all others"
        contrasts.append(Interaction(name, against, found.mean, lo, hi, p, p, mde, found.df, cautions))
    adjusted = holm([c.p for c in contrasts])
    return tuple(replace(c, p_adjusted=p) for c, p in zip(contrasts, adjusted, strict=True))
