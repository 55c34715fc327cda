"""Several training seeds per arm: would the difference survive another training, on other prompts?

Seeds and prompts are crossed: every training answers every prompt. The variance of the mean difference therefore has
a part from seeds, a part from clusters of prompts, and a residual that both contain and that is counted once:

    variance = seeds + prompts - residual

Arms are paired by seed where their seeds are the same (equal data, equal initial weights), else independent (Welch); a
single run of one arm is a fixed opponent of every training of the other. Two t tests must agree: one over seeds
alone, with known degrees of freedom, and one with the variance above, CR2 for the clusters
(:func:`analysis.stats.cluster.cluster_t`) and Satterthwaite's degrees of freedom over the three parts. p is the larger
of the two and the interval the wider, so p < 0.05 exactly if the interval excludes 0. A verdict requires five seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.cautions import caution
from analysis.stats.cluster import ClusterMean, FloatArray, Partition, cluster_scores, cluster_t, without_rounding
from analysis.stats.estimate import Estimate, conclude
from analysis.stats.exact import SMALLEST_P
from analysis.stats.inference import with_unseen
from analysis.stats.method import ALPHA, FEWEST, LEVEL, Equivalence, Inference, Method, Sample
from analysis.stats.strata import combine, stratum
from analysis.wording import Estimand, Verdict, p_value

#: A verdict about training requires at least this many seeds per arm.
FEWEST_SEEDS = 5

Design = Literal["paired", "independent", "one run"]
_METHODS: dict[Design, Method] = {
    "paired": Method.CROSSED,
    "independent": Method.CROSSED_UNPAIRED,
    "one run": Method.CROSSED_ONE_RUN,
}


@dataclass(frozen=True)
class Parts:
    """What the variance of the mean difference consists of: ``seeds``, ``prompts``, ``residual`` (in both, so counted
    once), and ``total``, at least as large as seeds or prompts; with degrees of freedom of all but the residual."""

    seeds: float
    prompts: float
    residual: float
    total: float
    df_seeds: float
    df_prompts: float
    df: float

    @property
    def effective(self) -> float:
        """Effective number of independent clusters of prompts."""
        return self.df_prompts + 1

    def half_widths(self, level: float) -> tuple[float, float]:
        """Half-widths of the interval over seeds alone and of the interval over seeds and prompts."""
        of_seeds, both = ((self.seeds, self.df_seeds), (self.total, self.df))
        first, second = (float(special.stdtrit(df, (1 + level) / 2)) * math.sqrt(v) for v, df in (of_seeds, both))
        return first, second

    def tail(self, distance: float) -> float:
        """One-sided p of an estimate at this distance from the tested value: the larger of the two tests."""
        return max(float(special.stdtr(df, -distance / math.sqrt(v))) for v, df in self._tests)

    def p_of_seeds(self, difference: float) -> float:
        """Two-sided p over seeds alone; 1 if all seeds agree, because their spread is then unknown."""
        return 2 * float(special.stdtr(self.df_seeds, -abs(difference) / math.sqrt(self.seeds))) if self.seeds else 1.0

    @property
    def _tests(self) -> list[tuple[float, float]]:
        """(variance, df) over seeds alone, unless all seeds agree, and over seeds and prompts."""
        return [(v, df) for v, df in ((self.seeds, self.df_seeds), (self.total, self.df)) if v > 0]


@dataclass(frozen=True)
class Crossed:
    """The difference over seeds and prompts: ``estimate``, and the ``parts`` of its variance (None where they are not
    defined). ``means_a``, ``means_b``: of each run."""

    estimate: Estimate
    parts: Parts | None
    design: Design
    means_a: tuple[float, ...]
    means_b: tuple[float, ...]

    @property
    def seeds(self) -> float:
        """Seeds per arm; for independent arms of different numbers their harmonic mean."""
        of_a, of_b = len(self.means_a), len(self.means_b)
        return 2 / (1 / of_a + 1 / of_b) if self.design == "independent" else float(max(of_a, of_b))

    @property
    def deltas(self) -> tuple[float, ...]:
        """B - A per seed; empty if arms are independent."""
        if self.design == "independent":
            return ()
        return tuple(float(d) for d in np.asarray(self.means_b) - np.asarray(self.means_a))


def crossed(
    a: FloatArray,
    b: FloatArray,
    clusters: Partition,
    estimand: Estimand,
    *,
    paired: bool,
    subset: str | None = None,
    margin: float | None = None,
    datasets: NDArray[np.int64] | None = None,
    weights: FloatArray | None = None,
    ties: NDArray[np.bool_] | None = None,
) -> Crossed:
    """The estimate over seeds and prompts. ``a``, ``b``: values (seeds of the arm, n prompts) whose row means are the
    metric of each run, over the same prompts in the same order; with ``paired``, row i of both has the same seed.
    ``datasets``, (n,) numbers: if given, data sets have equal weight instead of prompts. ``weights``: (n,) of mean 1 in
    each data set, as in :func:`analysis.stats.cluster.cluster_t`. ``ties``, (n,): prompts that do not differ between
    the arms, with any seed; by default those of equal values, which linearised ratios hardly have."""
    design = _design(a, b, paired)
    blocks = [a, b] if design == "independent" else [b - a]
    seeds = min(len(block) for block in blocks)
    prompts = _Prompts(clusters, datasets, weights)
    means_a, means_b = prompts.means(a), prompts.means(b)
    difference, profile = float(means_b.mean() - means_a.mean()), b.mean(axis=0) - a.mean(axis=0)
    if ties is None:
        ties = unchanged(a, b, paired=paired)
    differ = clusters.subset(~ties).count
    cautions = [caution("few-seeds", n=seeds, least=FEWEST_SEEDS)] if seeds < FEWEST_SEEDS else []
    parts = inference = p = None
    if clusters.count < FEWEST:
        cautions.append(caution("few-clusters-crossed", n=clusters.count, least=FEWEST))
    elif seeds > 1 and (robust := prompts.mean(profile)) is not None:
        parts = _parts(blocks, prompts, robust)
        inference = _test(difference, parts, margin)
        if inference is None:
            cautions.append(caution("zero-variance", n=a.shape[1]))
        else:
            if inference.equivalence is not None:
                reach = float(max(a.max(), b.max()) - min(a.min(), b.min()))
                inference = with_unseen(inference, inference.equivalence, profile, clusters, reach, weights)
            p = inference.p
            cautions += inference.cautions
            if robust.se:
                cautions += Sample(profile, clusters, weights, differ, robust, None).few_or_skewed()
            if robust.se and robust.effective < FEWEST:
                cautions.append(caution("dominated", n=clusters.count, effective=robust.effective))
    draft = Estimate(
        estimand=estimand,
        subset=subset,
        method=_METHODS[design],
        mean_a=float(means_a.mean()),
        lo_a=None,
        hi_a=None,
        mean_b=float(means_b.mean()),
        lo_b=None,
        hi_b=None,
        estimate=difference,
        lo=inference.lo if inference else None,
        hi=inference.hi if inference else None,
        level=LEVEL,
        p=p,
        p_adjusted=p,
        family_size=1,
        n_pairs=a.shape[1],
        n_clusters=clusters.count,
        n_zero=int(ties.sum()),
        n_differ=differ,
        n_effective=parts.effective if parts is not None else 0.0,
        se=math.sqrt(parts.total) if parts is not None else None,
        df=parts.df if parts is not None else 0,
        design_effect=None,
        icc=None,
        mde=None,
        equivalence=inference.equivalence if inference else None,
        verdict=Verdict.INCONCLUSIVE,
        cautions=tuple(cautions),
        withheld=seeds < FEWEST_SEEDS or not (parts and _METHODS[design].enough(clusters.count, parts.effective)),
    )
    return Crossed(conclude(draft, p, 1), parts, design, tuple(map(float, means_a)), tuple(map(float, means_b)))


def unchanged(a: NDArray[Any], b: NDArray[Any], *, paired: bool) -> NDArray[np.bool_]:
    """(n,) prompts whose value is the same in every pair of runs that is compared: of one seed, or if arms are not
    paired of any two. ``a``, ``b``: (seeds of the arm, n)."""
    if _design(a, b, paired) == "independent":
        return np.asarray((a == a[0]).all(axis=0) & (b == a[0]).all(axis=0))
    return np.asarray((a == b).all(axis=0))


def _design(a: NDArray[Any], b: NDArray[Any], paired: bool) -> Design:
    return "one run" if min(len(a), len(b)) == 1 else "paired" if paired else "independent"


def _test(difference: float, parts: Parts, margin: float | None) -> Inference | None:
    """Interval, p and equivalence; None if every training and every prompt has the same difference other than 0."""
    if parts.total <= 0:
        return None if difference else Inference(Method.CROSSED, None, None, 1.0)
    half, inner = (max(parts.half_widths(level)) for level in (LEVEL, 1 - 2 * ALPHA))
    p = max(min(1.0, 2 * parts.tail(abs(difference))), SMALLEST_P)
    equivalence = None
    if margin is not None:
        worst = max(parts.tail(margin - difference), parts.tail(margin + difference), SMALLEST_P)
        equivalence = Equivalence(margin, difference - inner, difference + inner, 0.0, worst, worst)
    of_seeds = parts.p_of_seeds(difference)
    cautions = (
        (caution("seeds-without-prompts", seeds=p_value(of_seeds), p=p_value(p)),) if of_seeds < ALPHA <= p else ()
    )
    return Inference(Method.CROSSED, difference - half, difference + half, p, cautions, equivalence)


@dataclass(frozen=True, eq=False)
class _Prompts:
    """The prompts of all runs, (n,), and what a mean over them is: of all, or of data sets that weigh the same."""

    clusters: Partition
    datasets: NDArray[np.int64] | None
    weights: FloatArray | None

    def means(self, rows: FloatArray) -> FloatArray:
        """(seeds,) means of ``rows``, (seeds, n)."""
        if self.datasets is None:
            return rows.mean(axis=1)
        return np.asarray(np.mean([rows[:, of].mean(axis=1) for of in self._of_each], axis=0))

    def mean(self, values: FloatArray) -> ClusterMean | None:
        """The cluster-robust mean of ``values``, (n,); None where a data set has too few clusters."""
        if self.datasets is None:
            return cluster_t(values, self.clusters, weights=self.weights)
        each = self._of_each
        if min(self.clusters.subset(of).count for of in each) < FEWEST:
            return None
        strata = [stratum(values[of], self.clusters, of, self._weights_of(of)) for of in each]
        return combine(strata, [1 / len(each)] * len(each))

    def variance(self, values: FloatArray) -> float:
        """CR2 variance of the mean of ``values``, (n,)."""
        scores = np.zeros(self.clusters.count)
        if self.datasets is None:
            scores = cluster_scores(values, self.clusters, self.weights)
        for of in self._of_each:
            own, present = self.clusters.subset(of), np.unique(self.clusters.index[of])
            scores[present] += cluster_scores(values[of], own, self._weights_of(of)) / len(self._of_each)
        return float(np.square(scores).sum())

    @property
    def _of_each(self) -> list[NDArray[np.bool_]]:
        return [] if self.datasets is None else [self.datasets == number for number in np.unique(self.datasets)]

    def _weights_of(self, rows: NDArray[np.bool_]) -> FloatArray | None:
        return None if self.weights is None else self.weights[rows]


def _parts(blocks: Sequence[FloatArray], prompts: _Prompts, robust: ClusterMean) -> Parts:
    """Analysis of variance with whole clusters of prompts as units. ``blocks``: values (seeds, n prompts) of the
    differences, or of A and of B where they are independent; ``robust``: the mean over prompts of all seeds."""
    of_seeds = [_seed_variance(prompts.means(block), block) for block in blocks]
    seeds, df_seeds = _summed(of_seeds, [len(block) - 1.0 for block in blocks])
    residual = 0.0
    for block in blocks:
        rests = sum(prompts.variance(row) for row in block - block.mean(axis=0))
        residual += rests / (len(block) * (len(block) - 1))
    of_prompts = (robust.se or 0.0) ** 2
    total = max(seeds, of_prompts, seeds + of_prompts - residual)
    squares = seeds**2 / df_seeds + (of_prompts**2 + residual**2 / df_seeds) / robust.df
    df = total**2 / squares if squares else robust.df
    return Parts(seeds, of_prompts, residual, total, df_seeds, robust.df, df)


def _seed_variance(means: FloatArray, values: FloatArray) -> float:
    """Variance of the mean over seeds, from the spread of the seeds' means."""
    rest = without_rounding(means - means.mean(), values)
    return float(np.square(rest).sum()) / (means.size - 1) / means.size


def _summed(variances: Sequence[float], dfs: Sequence[float]) -> tuple[float, float]:
    """A sum of independent variances with Satterthwaite's degrees of freedom."""
    total = sum(variances)
    if not total > 0:
        return 0.0, sum(dfs)
    return total, total**2 / sum(v**2 / df for v, df in zip(variances, dfs, strict=True))
