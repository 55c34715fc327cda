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
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.cautions import caution
from analysis.stats.cluster import FloatArray, Partition, cluster_t, without_rounding
from analysis.stats.estimate import Estimate, conclude
from analysis.stats.exact import SMALLEST_P
from analysis.stats.inference import with_unseen
from analysis.stats.method import ALPHA, FEWEST, LEVEL, Equivalence, Inference, Method
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
) -> Crossed:
    """The estimate over seeds and prompts. ``a``, ``b``: values (seeds of the arm, n prompts) whose row means are the
    metric of each run, over the same prompts in the same order; with ``paired``, row i of both has the same seed.
    ``datasets``, (n,) numbers: if given, data sets have equal weight instead of prompts."""
    design: Design = "one run" if min(len(a), len(b)) == 1 else "paired" if paired else "independent"
    blocks = [a, b] if design == "independent" else [b - a]
    seeds = min(len(block) for block in blocks)
    means_a, means_b = _means(a, datasets), _means(b, datasets)
    difference = float(means_b.mean() - means_a.mean())
    ties = np.zeros(a.shape[1], bool) if design == "independent" else (a == b).all(axis=0)
    parts = _parts(blocks, clusters, datasets)
    cautions = [caution("few-seeds", n=seeds, least=FEWEST_SEEDS)] if seeds < FEWEST_SEEDS else []
    if clusters.count < FEWEST:
        parts = None
        cautions.append(caution("few-clusters-crossed", n=clusters.count, least=FEWEST))
    inference = None if parts is None else _test(difference, parts, margin)
    if inference is not None and inference.equivalence is not None:
        reach = float(max(a.max(), b.max()) - min(a.min(), b.min()))
        inference = with_unseen(inference, inference.equivalence, b.mean(axis=0) - a.mean(axis=0), clusters, reach)
    if inference is not None:
        cautions += inference.cautions
    elif parts is not None:
        cautions.append(caution("zero-variance", n=a.shape[1]))
    p = inference.p if inference is not None else None
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
        n_differ=clusters.subset(~ties).count,
        n_effective=parts.df + 1 if parts is not None else 0.0,
        se=math.sqrt(parts.total) if parts is not None else None,
        df=parts.df if parts is not None else 0,
        design_effect=None,
        icc=None,
        mde=None,
        equivalence=inference.equivalence if inference else None,
        verdict=Verdict.INCONCLUSIVE,
        cautions=tuple(cautions),
        withheld=seeds < FEWEST_SEEDS,
    )
    return Crossed(conclude(draft, p, 1), parts, design, tuple(map(float, means_a)), tuple(map(float, means_b)))


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


def _means(rows: FloatArray, datasets: NDArray[np.int64] | None) -> FloatArray:
    """(seeds,) means of ``rows``, over prompts or over data sets."""
    if datasets is None:
        return rows.mean(axis=1)
    return np.mean([rows[:, datasets == number].mean(axis=1) for number in np.unique(datasets)], axis=0)


def _parts(blocks: Sequence[FloatArray], clusters: Partition, datasets: NDArray[np.int64] | None) -> Parts | None:
    """Analysis of variance with whole clusters of prompts as units. ``blocks``: values (seeds, n prompts) of the
    differences, or of A and of B where they are independent."""
    if min(map(len, blocks)) < 2:
        return None
    of_seeds = [_seed_variance(_means(block, datasets), block) for block in blocks]
    seeds, df_seeds = _summed(of_seeds, [len(block) - 1.0 for block in blocks])
    profile = blocks[-1].mean(axis=0) - (blocks[0].mean(axis=0) if len(blocks) == 2 else 0.0)
    of_prompts = _prompt_variance(profile, clusters, datasets)
    if of_prompts is None:
        return None
    prompts, df_prompts = of_prompts
    residual = 0.0
    for block in blocks:
        rests = [_prompt_variance(row, clusters, datasets) for row in block - block.mean(axis=0)]
        residual += sum(rest[0] for rest in rests if rest) / (len(block) * (len(block) - 1))
    total = max(seeds, prompts, seeds + prompts - residual)
    squares = seeds**2 / df_seeds + (prompts**2 + residual**2 / df_seeds) / df_prompts
    return Parts(seeds, prompts, residual, total, df_seeds, df_prompts, total**2 / squares if squares else df_prompts)


def _seed_variance(means: FloatArray, values: FloatArray) -> float:
    """Variance of the mean over seeds, from the spread of the seeds' means."""
    rest = without_rounding(means - means.mean(), values)
    return float(np.square(rest).sum()) / (means.size - 1) / means.size


def _prompt_variance(
    values: FloatArray, clusters: Partition, datasets: NDArray[np.int64] | None
) -> tuple[float, float] | None:
    """Variance of the mean over prompts, or over data sets, and its degrees of freedom; None if a data set has too
    few clusters. Data sets that share clusters are treated as perfectly correlated, which is an upper bound."""
    if datasets is None:
        mean = cluster_t(values, clusters)
        return None if mean.se is None else (mean.se**2, mean.df)
    variances, dfs, units = [], [], 0
    for number in np.unique(datasets):
        rows = datasets == number
        own = clusters.subset(rows)
        mean = cluster_t(values[rows], own)
        if mean.se is None or own.count < FEWEST:
            return None
        variances.append(mean.se**2)
        dfs.append(mean.df)
        units += own.count
    if units > clusters.count:
        return float(np.mean(np.sqrt(variances))) ** 2, min(dfs)
    variance, df = _summed(variances, dfs)
    return variance / len(variances) ** 2, df


def _summed(variances: Sequence[float], dfs: Sequence[float]) -> tuple[float, float]:
    """A sum of independent variances with Satterthwaite's degrees of freedom."""
    total = sum(variances)
    if not total > 0:
        return 0.0, sum(dfs)
    return total, total**2 / sum(v**2 / df for v, df in zip(variances, dfs, strict=True))
