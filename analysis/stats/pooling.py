"""Random effects over data sets: effects scatter around a mean by their own errors and by a variance between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stats.cluster import FloatArray

# Halvings of the bracket of the variance between: beyond the digits of a double.
_HALVINGS = 200


@dataclass(frozen=True)
class RandomEffects:
    """``mean`` of the effects over a population of data sets; ``between``: variance between them (Paule and Mandel
    1982; 0 where their errors explain the scatter); ``variance`` of the mean: the larger of the classical one and that
    of Hartung, Knapp, Sidik and Jonkman; ``q``: Cochran's, around the fixed-effects mean."""

    mean: float
    between: float
    variance: float
    q: float


def random_effects(effects: FloatArray, variances: FloatArray) -> RandomEffects:
    """Of (k,) independent effects with estimated ``variances`` > 0, k >= 2."""
    k = effects.size

    def scatter(between: float) -> tuple[float, float, float]:
        weights = 1 / (variances + between)
        mean = float(weights @ effects / weights.sum())
        return mean, float(weights.sum()), float(weights @ (effects - mean) ** 2)

    q, below, above = scatter(0.0)[2], 0.0, 0.0
    if q > k - 1:
        above = float(np.square(effects - effects.mean()).sum())  # there the scatter is below k - 1
        for _ in range(_HALVINGS):
            middle = (below + above) / 2
            below, above = (middle, above) if scatter(middle)[2] > k - 1 else (below, middle)
    mean, weight, left = scatter(above)
    return RandomEffects(mean, above, max(left / (k - 1), 1.0) / weight, q)
