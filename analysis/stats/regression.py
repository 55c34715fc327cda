"""A slope with CR2 standard error: least squares of few coefficients over clustered observations.

Coefficients that are of no interest (an intercept per data set) are absorbed: what counts is the slope on the part of x
that they leave. Its leverage and theirs make residuals smaller than errors, most where a cluster is large or its x
extreme; CR2 undoes that per cluster, and the degrees of freedom are Satterthwaite's under independent errors (Bell and
McCaffrey 2002; Pustejovsky and Tipton 2018). Costs O(n r^2) for r coefficients; no n x n matrix is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.stats.cluster import FloatArray, Partition, without_rounding
from analysis.stats.exact import SMALLEST_P

# An eigenvalue of a cluster's leverage this near 1: the cluster alone decides a coefficient, and its residuals say
# nothing about that.
_ALL = 1 - 1e-9


@dataclass(frozen=True)
class Slope:
    """``slope`` with standard error, t interval, p and degrees of freedom; ``df`` + 1 is its effective number of
    clusters."""

    slope: float
    se: float
    lo: float
    hi: float
    p: float
    df: float

    @property
    def effective(self) -> float:
        """Effective number of independent clusters."""
        return self.df + 1


def slope(x: FloatArray, y: FloatArray, groups: Partition, clusters: Partition, level: float = 0.95) -> Slope | None:
    """Of ``y`` on ``x``, (n,) each, with an intercept per group; None without variation of both within groups, or with
    fewer than three clusters."""
    if clusters.count < 3 or x.size <= groups.count + 1:
        return None
    inner_x, inner_y = (without_rounding(v - (groups.sums(v) / groups.sizes)[groups.index], v) for v in (x, y))
    squares = float(np.square(inner_x).sum())
    if not np.ptp(inner_x) > 1e-9 or not inner_y.any():
        return None
    estimate = float(inner_x @ inner_y) / squares
    residual = without_rounding(inner_y - estimate * inner_x, y)
    scores, df = _scores(inner_x / math.sqrt(squares), residual, groups, clusters)
    se = math.sqrt(float(np.square(scores).sum()) / squares)
    half = float(special.stdtrit(df, (1 + level) / 2)) * se
    p = max(2 * float(special.stdtr(df, -abs(estimate) / se)), SMALLEST_P) if se > 0 else 1.0
    return Slope(estimate, se, estimate - half, estimate + half, p, df)


def _scores(unit: FloatArray, residual: FloatArray, groups: Partition, clusters: Partition) -> tuple[FloatArray, float]:
    """(C,) adjusted scores u_c' A_c e_c, A_c = (I - H_c)^(-1/2), and the degrees of freedom of their sum of squares.

    ``unit``: x within groups, of length 1. The hat matrix is H = Q Q' with Q the unit and an indicator per group over
    the root of its size. With g_c = A_c u_c, the Gram matrix of (I - H)_c' g_c is diag(g_c' g_c) - b_c' b_d,
    b_c = Q_c' g_c, of which the traces are wanted.
    """
    order = np.argsort(clusters.index, kind="stable")
    ends = np.cumsum(clusters.sizes)
    scores, lengths, images = (
        np.zeros(clusters.count),
        np.zeros(clusters.count),
        np.zeros((clusters.count, groups.count + 1)),
    )
    for c, rows in enumerate(np.split(order, ends[:-1])):
        present, own = np.unique(groups.index[rows], return_inverse=True)
        q = np.zeros((rows.size, present.size + 1))
        q[:, 0] = unit[rows]
        q[np.arange(rows.size), own + 1] = 1 / np.sqrt(groups.sizes[present])[own]
        # A = I + Q V diag(((1 - s)^(-1/2) - 1) / s) V' Q' from the few eigenvalues s of Q'Q
        values, vectors = np.linalg.eigh(q.T @ q)
        factor = np.where(
            values > 1e-12, (1 / np.sqrt(1 - np.minimum(values, _ALL)) - 1) / np.maximum(values, 1e-12), 0.5
        )
        factor[values > _ALL] = -1 / values[values > _ALL]  # projected out
        adjusted = unit[rows] + q @ (vectors @ (factor * (vectors.T @ (q.T @ unit[rows]))))
        scores[c], lengths[c] = adjusted @ residual[rows], adjusted @ adjusted
        images[c, np.concatenate([[0], present + 1])] = q.T @ adjusted
    trace = float(lengths.sum() - np.square(images).sum())
    crossed = images.T @ images
    squares = float(
        np.square(lengths).sum() - 2 * (lengths * np.square(images).sum(axis=1)).sum() + np.square(crossed).sum()
    )
    return scores, trace**2 / squares if squares > 0 else 1.0
