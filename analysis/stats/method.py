"""A method of inference: what it requires, what it says of a mean, and the cautions that belong to it.

Each method makes one assumption, and lives in one module: :mod:`~analysis.stats.by_bootstrap` (the differences drawn
are the population), :mod:`~analysis.stats.by_flips` (units are symmetric about the mean), :mod:`~analysis.stats.by_t`
(the mean is nearly normal). :mod:`~analysis.stats.inference` chooses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.cautions import Caution, caution
from analysis.stats.cluster import ClusterMean, FloatArray, Partition
from analysis.stats.exact import SMALLEST_P
from analysis.wording import counted

LEVEL = 0.95
ALPHA = 0.05
#: Two-sided sign-flips of fewer than this many cannot reach p < 0.05: 2^(1 - 5) = 0.0625. No verdict rests on fewer
#: units, whatever the method.
FEWEST = 6
#: With fewer units that differ, or fewer effective units, verdicts carry a caution: skewed units mislead every method.
ENOUGH = 30
#: So do fewer than so many that all differ in one direction: what would balance them may be rarer than one in them.
ENOUGH_OF_ONE_SIGN = 100
#: So does a mean whose own skewness, sum of cubed deviations over the 1.5th power of their squares, is larger.
MOST_SKEWED = 0.2


class Method(StrEnum):
    """How interval and p were made; the value is its key in ``result.json``."""

    BOOTSTRAP = "exact"
    FLIPS = "cluster flip"
    T = "cluster t"
    CROSSED = "crossed"
    CROSSED_UNPAIRED = "crossed, unpaired"
    CROSSED_ONE_RUN = "crossed, one run"
    NONE = "none"

    @property
    def counts_signs(self) -> bool:
        """Whether its p is a share of 2^k sign vectors of the k units that differ, so 2^(1 - k) at least."""
        return self in (Method.BOOTSTRAP, Method.FLIPS)

    def enough(self, clusters: int, effective: float) -> bool:
        """Whether a verdict may rest on these units. A t requires FEWEST effective clusters; signs count whatever a
        cluster weighs, so a flip requires as many clusters."""
        return clusters >= FEWEST and (self.counts_signs or effective >= FEWEST)

    def fewest_that_differ(self, alpha: float = ALPHA) -> int:
        """Units that must differ for the test to reject at ``alpha``: where the rest is ties, a t on fewer than FEWEST
        rests on no spread either."""
        return max(FEWEST, math.floor(2 - math.log2(alpha)) if self.counts_signs else 0)


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

    @classmethod
    def of(cls, bound: Fraction, interval: tuple[float, float] | None, *one_sided: float) -> Equivalence:
        """From the interval at 90% and the one-sided p-values, before it is known what was not drawn."""
        lo, hi = interval or (None, None)
        p = max(*one_sided, SMALLEST_P)
        return cls(float(bound), lo, hi, 0.0, p, p)


@dataclass(frozen=True)
class Inference:
    """What a method says about a mean: interval at 95%, two-sided p against 0, and equivalence if a margin is given.
    None is: not defined."""

    method: Method
    lo: float | None
    hi: float | None
    p: float | None
    cautions: tuple[Caution, ...] = ()
    equivalence: Equivalence | None = None


@dataclass(frozen=True, eq=False)
class Sample:
    """What a method sees: differences ``d``, (n,), their ``clusters`` and ``weights`` (n,) of mean 1 (None: equal),
    how many clusters ``differ`` at all, the cluster-robust mean, and the margin ``bound`` if one was stated."""

    d: NDArray[Any]
    clusters: Partition
    weights: FloatArray | None
    differ: int
    robust: ClusterMean
    bound: Fraction | None

    @property
    def sums(self) -> NDArray[Any]:
        """(C,) sums of the differences per cluster; for a ratio its mean times the weight, and residuals."""
        if self.weights is None:
            return self.clusters.sums(self.d)
        return self.clusters.sums(self.d + self.robust.mean * (self.weights - 1))

    @property
    def sizes(self) -> NDArray[Any]:
        """(C,) prompts per cluster, or their weights."""
        return self.clusters.sizes if self.weights is None else self.clusters.sums(self.weights)

    @property
    def units(self) -> str:
        """``12 prompts``, ``7 clusters``."""
        return counted(self.clusters.count, "prompt" if self.clusters.singletons else "cluster")

    def skewness(self) -> float:
        """Of the mean itself, from the deviations of clusters; 0 without any."""
        deviations = self.sums - self.robust.mean * self.sizes
        squares = float(np.square(deviations).sum())
        return abs(float((deviations**3).sum())) / squares**1.5 if squares > 0 else 0.0

    def few_or_skewed(self) -> tuple[Caution, ...]:
        """Where no method holds its promise for skewed units: the values that would balance the mean may be missing
        from the sample, and what is missing no method can see."""
        sums, effective = self.sums, min(self.robust.effective, float(self.differ))
        one_sign = bool((sums >= 0).all() or (sums <= 0).all())
        if effective < (ENOUGH_OF_ONE_SIGN if one_sign else ENOUGH):
            return (caution("few-units", units=self.units, differ=self.differ),)
        skewness = self.skewness()
        return (caution("skewed", skewness=skewness, most=MOST_SKEWED),) if skewness > MOST_SKEWED else ()
