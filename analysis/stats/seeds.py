"""Several training seeds per arm: would the difference survive another training, on other prompts?

Seeds and prompts are crossed: every trained pair answers every prompt. So the error of the mean difference has a part
from seeds, a part from clusters of prompts, and their residual, which is in both and counts once:

    variance = seed part + prompt-cluster part - residual

Arms are paired by seed where their seeds are the same (equal data, equal initial weights), else independent (Welch).
A verdict about training needs five seeds per arm, and both the t test over seeds and the crossed interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from analysis.stats.cluster import FloatArray, Partition, cluster_t, without_rounding
from analysis.stats.estimate import Estimate, conclude
from analysis.stats.exact import SMALLEST_P
from analysis.stats.inference import LEVEL
from analysis.wording import Estimand, Verdict, caution

#: Fewer seeds per arm than this allow no verdict about training.
FEWEST_SEEDS = 5


@dataclass(frozen=True)
class Parts:
    """What the variance of the mean difference consists of: ``seeds``, ``prompts``, ``residual`` (in both, so counted
    once), and ``total``, at least as large as either part; ``df`` by Satterthwaite."""

    seeds: float
    prompts: float
    residual: float
    total: float
    df: float


@dataclass(frozen=True)
class Crossed:
    """The difference over seeds and prompts: ``estimate`` with the crossed interval and the p of the t over seeds,
    ``parts`` of its variance (None where they are not defined), ``deltas`` per seed if paired, else the two arms'
    means per seed."""

    estimate: Estimate
    parts: Parts | None
    paired: bool
    means_a: tuple[float, ...]
    means_b: tuple[float, ...]

    @property
    def deltas(self) -> tuple[float, ...]:
        """B - A per seed; empty if the arms are not paired."""
        return tuple(b - a for a, b in zip(self.means_a, self.means_b, strict=True)) if self.paired else ()


def crossed(
    a: FloatArray, b: FloatArray, clusters: Partition, estimand: Estimand, *, paired: bool, subset: str | None = None
) -> Crossed:
    """The estimate over seeds and prompts. ``a``, ``b``: values (seeds of the arm, n prompts) whose row means are the
    metric of each run, over the same prompts in the same order; with ``paired``, rows of both are of one seed."""
    means_a, means_b = a.mean(axis=1), b.mean(axis=1)
    difference = float(means_b.mean() - means_a.mean())
    p = _seed_p(means_a, means_b, paired)
    parts = _parts(a, b, clusters, paired)
    seeds = min(len(a), len(b))
    ties = (a == b).all(axis=0) if paired else np.zeros(a.shape[1], bool)
    lo = hi = None
    if parts is not None and parts.total > 0:
        half = float(special.stdtrit(parts.df, (1 + LEVEL) / 2)) * math.sqrt(parts.total)
        lo, hi = difference - half, difference + half
    few = (caution("few-seeds", n=seeds, least=FEWEST_SEEDS),) if seeds < FEWEST_SEEDS else ()
    draft = Estimate(
        estimand=estimand,
        subset=subset,
        method="crossed" if paired else "crossed, unpaired",
        mean_a=float(means_a.mean()),
        lo_a=None,
        hi_a=None,
        mean_b=float(means_b.mean()),
        lo_b=None,
        hi_b=None,
        estimate=difference,
        lo=lo,
        hi=hi,
        level=LEVEL,
        p=p,
        p_adjusted=p,
        family_size=1,
        n_pairs=a.shape[1],
        n_clusters=clusters.count,
        n_zero=int(ties.sum()),
        n_differ=clusters.subset(~ties).count,
        se=math.sqrt(parts.total) if parts is not None else None,
        df=parts.df if parts is not None else 0,
        design_effect=None,
        icc=None,
        mde=None,
        equivalence=None,
        verdict=Verdict.INCONCLUSIVE,
        cautions=few,
    )
    return Crossed(conclude(draft, p, 1), parts, paired, tuple(map(float, means_a)), tuple(map(float, means_b)))


def _seed_p(a: NDArray[np.float64], b: NDArray[np.float64], paired: bool) -> float | None:
    """t over seeds: of the paired deltas, or Welch's; None for fewer than two seeds or no spread."""
    if min(a.size, b.size) < 2:
        return None
    if paired:
        deltas = without_rounding(b - a, np.concatenate([a, b]))
        variance, df = deltas.var(ddof=1) / deltas.size, float(deltas.size - 1)
    else:
        of_a, of_b = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
        variance = of_a + of_b
        if variance > 0:
            df = variance**2 / (of_a**2 / (a.size - 1) + of_b**2 / (b.size - 1))
    if not variance > 0:
        return 1.0 if b.mean() == a.mean() else None
    t = abs(float(b.mean() - a.mean())) / math.sqrt(variance)
    return max(2 * float(special.stdtr(df, -t)), SMALLEST_P)


def _parts(a: FloatArray, b: FloatArray, clusters: Partition, paired: bool) -> Parts | None:
    """Analysis of variance of values (seeds, prompts), with whole clusters of prompts as the units."""
    if min(len(a), len(b)) < 2 or clusters.count < 2:
        return None
    blocks = [b - a] if paired else [a, b]
    seeds = [_seed_part(block) for block in blocks]
    residual = sum(_residual_part(block, clusters) for block in blocks)
    prompts = cluster_t(b.mean(axis=0) - a.mean(axis=0), clusters).se
    assert prompts is not None
    of_seeds, of_prompts = sum(seeds), prompts**2
    total = max(of_seeds, of_prompts, of_seeds + of_prompts - residual)
    if total <= 0:
        return Parts(of_seeds, of_prompts, residual, 0.0, 1.0)
    squares = sum(part**2 / (len(block) - 1) for part, block in zip(seeds, blocks, strict=True))
    squares += of_prompts**2 / (clusters.count - 1)
    return Parts(of_seeds, of_prompts, residual, total, total**2 / squares)


def _seed_part(block: FloatArray) -> float:
    """Variance of the mean over seeds, from the spread of the seeds' means."""
    means = block.mean(axis=1)
    means = without_rounding(means - means.mean(), block)
    return float(means @ means) / (means.size - 1) / means.size


def _residual_part(block: FloatArray, clusters: Partition) -> float:
    """Variance of the mean that comes from seeds and prompts together: what is left of cluster sums after both."""
    rest = block - block.mean(axis=1, keepdims=True) - block.mean(axis=0) + block.mean()
    sums = np.stack([clusters.sums(row) for row in rest])
    s, c = len(block), clusters.count
    return float((sums**2).sum()) * s * c / ((s - 1) * (c - 1)) / block.size**2
