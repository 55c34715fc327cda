"""A test that may be looked at after every prompt: betting on the mean of bounded differences.

A fixed-sample test that is repeated as data come in rejects far more often than it promises. Here a gambler bets
against the hypothesis that the mean is m, with stakes that depend on the past alone; if m is true, the capital is a
non-negative martingale and exceeds 1 / alpha with probability alpha at most, ever (Ville 1939). The confidence sequence
is the set of all m against which the capital never did (Waudby-Smith and Ramdas 2024, hedged capital, section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analysis.stats.cluster import FloatArray
from analysis.stats.method import ALPHA

_GRID = 2001
#: No more than this share of the capital is staked, so that it never falls to 0.
_MOST = 0.5
_CHUNK = 500


@dataclass(frozen=True)
class Sequential:
    """``n`` independent units in order, each within +- ``bound``. ``lo``, ``hi``: the confidence sequence at 95% after
    all of them, valid at any time of stopping; ``e_value``: the capital against a mean of 0; ``p``: 1 over its largest
    value so far, at most 1; ``decided_at``: after how many units 0 was excluded (None: not yet)."""

    n: int
    bound: float
    estimate: float
    lo: float
    hi: float
    e_value: float
    p: float
    decided_at: int | None

    @property
    def decided(self) -> bool:
        """Whether 0 has been excluded at some time, which later data do not undo."""
        return self.decided_at is not None


def sequential(differences: FloatArray, bound: float) -> Sequential:
    """Of (n,) independent differences with one mean, in the order in which they came, n >= 1.

    Raises ValueError for differences beyond +- ``bound``, for which the promise would not hold.
    """
    d = np.asarray(differences, dtype=np.float64)
    if not d.size or not bound > 0 or np.abs(d).max() > bound * (1 + 1e-12):
        raise ValueError(f"betting requires at least one difference, all of them within +- {bound}")
    x = np.clip((d / bound + 1) / 2, 0.0, 1.0)  # in 0..1, a mean of 0 is 1/2
    stakes = _stakes(x)
    means = np.linspace(0, 1, _GRID)
    alive, capital = np.ones(_GRID, bool), np.zeros((2, _GRID))  # logarithms, for and against a larger mean
    null, found, most = _GRID // 2, None, 0.0
    with np.errstate(divide="ignore"):
        caps = _MOST / means, _MOST / (1 - means)
    for start in range(0, d.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        away = x[part, None] - means
        up = capital[0] + np.log1p(np.minimum(stakes[part, None], caps[0]) * away).cumsum(0)
        down = capital[1] + np.log1p(-np.minimum(stakes[part, None], caps[1]) * away).cumsum(0)
        hedged = np.logaddexp(up, down) - math.log(2)
        alive &= (hedged < math.log(1 / ALPHA)).all(0)
        most = max(most, float(hedged[:, null].max()))
        if found is None and (over := hedged[:, null] >= math.log(1 / ALPHA)).any():
            found = start + int(over.argmax()) + 1
        capital = np.stack([up[-1], down[-1]])
    inside = np.flatnonzero(alive)
    # an interval of the grid's width around what is left; where nothing is left, around the estimate
    ends = (inside[0] - 1, inside[-1] + 1) if inside.size else (round(float(x.mean()) * (_GRID - 1)),) * 2
    lo, hi = (float(bound * (2 * min(max(end, 0), _GRID - 1) / (_GRID - 1) - 1)) for end in ends)
    last = float(np.logaddexp(capital[0, null], capital[1, null]) - math.log(2))
    e_value = math.exp(min(last, 700.0))
    return Sequential(d.size, float(bound), float(d.mean()), lo, hi, e_value, math.exp(-most), found)


def _stakes(x: FloatArray) -> FloatArray:
    """(n,) stakes, each from the values before it: sqrt(2 log(2 / alpha) / (variance t log(1 + t)))."""
    t = np.arange(1, x.size + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum(np.square(x - mean))) / (t + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.asarray(np.sqrt(2 * math.log(2 / ALPHA) / (before * t * np.log1p(t))))
