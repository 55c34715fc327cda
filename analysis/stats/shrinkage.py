"""Partial pooling: what each data set's effect is likely to be, given the effects in the others.

A description beside the tests, not a test: it borrows strength by assuming that the true effects of the data sets are
drawn from one normal distribution. Data sets of few prompts are pulled to the mean of all, those of many hardly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.stats.cluster import FloatArray

#: With fewer data sets the distribution of their effects cannot be estimated (Gelman 2006: a uniform prior on its
#: standard deviation is proper from three on).
FEWEST_EFFECTS = 3
_GRID = 400
#: The standard deviation between data sets is looked for up to so many times the spread of the effects.
_REACH = 8.0
_HALVINGS = 60


@dataclass(frozen=True)
class Pooled:
    """The effect of one data set given all: posterior mean ``estimate``, 95% interval ``lo`` to ``hi``, and
    ``p_positive``, the probability that B is better there. ``weight``: share of the estimate that is the data set's
    own, in 0..1; the rest is the mean of all."""

    dataset: str
    estimate: float
    lo: float
    hi: float
    p_positive: float
    weight: float


def partially_pooled(names: Sequence[str], effects: FloatArray, variances: FloatArray) -> tuple[Pooled, ...]:
    """Of (k,) independent effects with ``variances`` > 0; empty for k < FEWEST_EFFECTS.

    Normal effects with a flat prior for their mean and for their standard deviation, averaged over the restricted
    likelihood of the latter (Rubin 1981; Gelman et al., Bayesian Data Analysis, 5.4), so that how little few data sets
    say about it widens the intervals.
    """
    if len(names) < FEWEST_EFFECTS:
        return ()
    widest = _REACH * max(float(np.ptp(effects)), float(np.sqrt(variances.max())))
    between = np.square(np.linspace(0, widest, _GRID))[:, None]  # (G, 1)
    weights = 1 / (variances + between)  # (G, k)
    total = weights.sum(1, keepdims=True)
    mean = (weights @ effects)[:, None] / total
    likelihood = 0.5 * np.log(weights).sum(1) - 0.5 * np.log(total[:, 0])
    likelihood -= 0.5 * (weights * np.square(effects - mean)).sum(1)
    share = np.exp(likelihood - likelihood.max())
    share /= share.sum()
    own = between / (between + variances)
    centre = own * effects + (1 - own) * mean
    spread = np.sqrt(own * variances + np.square(1 - own) / total)
    found = []
    for i, name in enumerate(names):
        at, sd = centre[:, i], spread[:, i]
        lo, hi = (_quantile(share, at, sd, q) for q in (0.025, 0.975))
        below = float(share @ special.ndtr(-at / sd))
        found.append(Pooled(name, float(share @ at), lo, hi, 1 - below, float(share @ own[:, i])))
    return tuple(found)


def _quantile(share: FloatArray, centre: FloatArray, spread: FloatArray, q: float) -> float:
    """Of a mixture of normal distributions, by bisection."""
    below, above = float((centre - 9 * spread).min()), float((centre + 9 * spread).max())
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        if float(share @ special.ndtr((middle - centre) / spread)) < q:
            below = middle
        else:
            above = middle
    return math.fsum((below, above)) / 2
