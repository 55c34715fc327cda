"""Data sets side by side: a mean in which they weigh the same, how much they differ, and which one differs.

A pooled mean follows the mix of prompts; a mean over data sets does not; the two can disagree, even in sign
(Simpson). A data set that looks better than the rest is a finding only if the contrast itself, *this against the
others*, is told from 0: two verdicts that differ are not a difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import special

from analysis.stats.cluster import Partition, partition, without_rounding
from analysis.stats.estimate import COUNTS, Estimate, cluster_column, of_values, tied, values_of
from analysis.stats.exact import SMALLEST_P
from analysis.stats.families import holm
from analysis.stats.inference import ALPHA, FEWEST, LEVEL
from analysis.stats.sensitivity import detectable
from analysis.wording import Caution, Estimand, Verdict, balanced, caution, equals_p

#: I^2 over fewer data sets than this is noise.
FEW_DATASETS = 5


def balanced_mean(frame: pd.DataFrame, estimand: Estimand, margin: float | None = None) -> Estimate | None:
    """The difference with every data set weighing the same: the mean of their estimates, with a cluster-robust t
    over clusters shared by all of them. None for fewer than two data sets.

    ``frame``: pairs. A data set of one cluster has no spread of its own, so with one there is no interval.
    """
    count, cluster = frame["dataset"].nunique(), cluster_column(frame)
    if count < 2:
        return None
    means: tuple[list[float], list[float]] = [], []
    residuals: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    clusters, ties, lone = [], [], []
    for name, rows in frame[["dataset", *COUNTS, cluster]].groupby("dataset"):
        for arm, values in enumerate(values_of(rows, estimand)):
            mean = float(values.mean())
            means[arm].append(mean)
            residuals[arm].append(len(frame) / count / len(values) * (values - mean))
        clusters.append(rows[cluster].to_numpy())
        ties.append(tied(rows))
        lone += [str(name)] if rows[cluster].nunique() < 2 else []
    arms = [sum(m) / count + np.concatenate(r) for m, r in zip(means, residuals, strict=True)]
    del residuals, rows
    estimate = of_values(
        arms[0], arms[1], np.concatenate(ties), np.concatenate(clusters), balanced(estimand), margin=margin
    )
    if not lone:
        return estimate
    estimate = replace(estimate, lo=None, hi=None, p=None, p_adjusted=None, se=None, mde=None)
    estimate = replace(estimate, lo_a=None, hi_a=None, lo_b=None, hi_b=None, equivalence=None)
    told = (caution("lone-clusters", names=", ".join(lone)),)
    return replace(estimate, method="none", verdict=Verdict.INCONCLUSIVE, cautions=told)


def disagreement(pooled: Estimate, others: Estimate | None, by_dataset: Mapping[str, Estimate]) -> tuple[Caution, ...]:
    """Warnings where the mix of prompts decides the sign, or the verdict: the pooled difference against the balanced
    one, and its sign against that of every single data set."""
    if others is None or pooled.estimate is None or others.estimate is None:
        return ()
    told = []
    if pooled.estimate * others.estimate < 0:
        told.append(caution("simpson-balanced", pooled=pooled.estimate, balanced=others.estimate))
    elif pooled.verdict is not others.verdict and others.p is not None:
        of_both = f"{pooled.verdict} ({equals_p(pooled.p)})", f"{others.verdict} ({equals_p(others.p)})"
        told.append(caution("verdict-by-mix", pooled=of_both[0], balanced=of_both[1]))
    if all(e.estimate is not None and e.estimate * pooled.estimate < 0 for e in by_dataset.values()):
        told.append(caution("simpson", pooled=pooled.estimate))
    return tuple(told)


@dataclass(frozen=True)
class Heterogeneity:
    """Random effects over data sets: the mean effect on a data set of this kind, and how much data sets differ.

    ``estimate``, ``lo``, ``hi``: mean over a population of data sets (Hartung-Knapp-Sidik-Jonkman, t with k - 1
    degrees of freedom); ``between_sd``: standard deviation of true effects between data sets (Paule-Mandel);
    ``i_squared``: share of the scatter that is between, in 0..1; ``q``, ``p``: Cochran's test that all are equal.
    """

    datasets: int
    estimate: float
    lo: float
    hi: float
    between_sd: float
    i_squared: float
    q: float
    p: float
    cautions: tuple[Caution, ...]


def heterogeneity(frame: pd.DataFrame, by_dataset: Mapping[str, Estimate]) -> Heterogeneity | None:
    """None for fewer than two data sets that have a standard error and at least FEWEST clusters that differ: one pair
    that differs among 60 has a tiny standard error, and with it nearly all the weight.

    The interval is never narrower than that of the classical random-effects mean: where data sets agree by luck,
    HKSJ alone would be (IntHout et al. 2014).
    """
    usable = {name: e for name, e in by_dataset.items() if e.se and e.n_differ >= FEWEST and e.estimate is not None}
    if len(usable) < 2:
        return None
    effects = np.array([e.estimate for e in usable.values()])
    variances = np.array([e.se**2 for e in usable.values() if e.se])
    # imported here: it loads half of statsmodels, which one data set does without
    from statsmodels.stats.meta_analysis import combine_effects

    with np.errstate(divide="ignore"):  # it also gives 1 - 1/h^2, where h may be 0
        found = combine_effects(effects, variances, "iterated", use_t=True)
    k, mean = len(usable), float(found.mean_effect_re)
    error = math.sqrt(max(float(found.var_hksj_re), float(found.sd_eff_w_re) ** 2))
    half = float(special.stdtrit(k - 1, (1 + LEVEL) / 2)) * error
    q = max(0.0, float(found.q))
    told = []
    if left_out := sorted(set(by_dataset) - set(usable)):
        told.append(caution("heterogeneity-left-out", least=FEWEST, names=", ".join(left_out)))
    if k < FEW_DATASETS:
        told.append(caution("few-datasets", n=k))
    clusters, (dataset, _) = partition(frame[cluster_column(frame)]), pd.factorize(frame["dataset"])
    of_cluster = np.empty(clusters.count, np.int64)
    of_cluster[clusters.index] = dataset
    if (of_cluster[clusters.index] != dataset).any():
        told.append(caution("shared-clusters"))
    return Heterogeneity(
        datasets=k,
        estimate=mean,
        lo=mean - half,
        hi=mean + half,
        between_sd=math.sqrt(float(found.tau2)),
        i_squared=max(0.0, 1 - (k - 1) / q) if q else 0.0,
        q=q,
        p=max(float(special.chdtrc(k - 1, q)), SMALLEST_P),
        cautions=tuple(told),
    )


@dataclass(frozen=True)
class Interaction:
    """One data set against all others together: the difference of their differences.

    ``mde``: the true contrast that a test like this one finds with probability 0.8; ``p_adjusted``: by Holm over
    the contrasts. With two data sets there is one contrast, ``against`` the other by name.
    """

    dataset: str
    against: str
    estimate: float
    lo: float | None
    hi: float | None
    p: float | None
    p_adjusted: float | None
    mde: float | None

    @property
    def shown(self) -> bool:
        """Whether the data set is told from the others."""
        return self.p_adjusted is not None and self.p_adjusted < ALPHA


def interactions(frame: pd.DataFrame, estimand: Estimand) -> tuple[Interaction, ...]:
    """A contrast per data set, adjusted by Holm; one for two data sets, none for fewer.

    Each side's variance is cluster-robust and clusters on both sides enter with their covariance. The degrees of
    freedom are Satterthwaite's, those of the smaller side where clusters are shared.
    """
    names = sorted(frame["dataset"].unique())
    if len(names) < 2:
        return ()
    clusters = partition(frame[cluster_column(frame)])
    counts = frame[list(COUNTS)]
    contrasts = []
    for name in names[: 1 if len(names) == 2 else None]:
        inside = (frame["dataset"] == name).to_numpy()
        mean, variance, df = _contrast(counts, estimand, clusters, inside)
        lo = hi = p = None
        if variance > 0:
            se = math.sqrt(variance)
            half = float(special.stdtrit(df, (1 + LEVEL) / 2)) * se
            lo, hi, p = mean - half, mean + half, max(2 * float(special.stdtr(df, -abs(mean) / se)), SMALLEST_P)
        against = names[1] if len(names) == 2 else "all others"
        mde = detectable(math.sqrt(variance), df) if variance > 0 else None
        contrasts.append(Interaction(name, against, mean, lo, hi, p, p, mde))
    adjusted = holm([c.p for c in contrasts])
    return tuple(replace(c, p_adjusted=p) for c, p in zip(contrasts, adjusted, strict=True))


def _contrast(
    frame: pd.DataFrame, estimand: Estimand, clusters: Partition, inside: np.ndarray
) -> tuple[float, float, float]:
    """Difference of the differences inside and outside, its variance (0 if not defined), degrees of freedom."""
    means, sums, counts = [], [], []
    for rows in (inside, ~inside):
        a, b = values_of(frame[rows], estimand)
        d = (b - a).astype(np.float64)
        count = clusters.subset(rows).count
        residual = without_rounding(d - d.mean(), d) / d.size
        of_clusters = without_rounding(np.bincount(clusters.index[rows], residual, clusters.count), d / d.size)
        means.append(float(d.mean()))
        sums.append(of_clusters * math.sqrt(count / max(count - 1, 1)))
        counts.append(count)
    variances = [float(s @ s) for s in sums]
    if min(counts) < 2 or not sum(variances):
        return means[0] - means[1], 0.0, 0.0
    difference = sums[0] - sums[1]
    if sum(counts) > clusters.count:
        df = float(min(counts) - 1)
    else:
        df = sum(variances) ** 2 / sum(v**2 / (c - 1) for v, c in zip(variances, counts, strict=True))
    return means[0] - means[1], float(difference @ difference), df
