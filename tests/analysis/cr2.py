"""An independent CR2: n x n matrices, square roots of inverses, eigenvalues. Slow, and close to the papers."""

from __future__ import annotations

import numpy as np


def dense(values, groups, icc):
    """CR2 variance and degrees of freedom with n x n matrices: the regression on a constant, adjustment matrices as
    square roots of inverses, eigenvalues of the quadratic form under the working covariance."""
    x, groups = np.asarray(values, float), np.asarray(groups)
    n = x.size
    residual_maker = np.eye(n) - np.full((n, n), 1 / n)
    same = groups[:, None] == groups[None, :]
    working = np.where(same, icc, 0.0) + (1 - icc) * np.eye(n)
    scores = []
    for g in np.unique(groups):
        inside = groups == g
        values_of, vectors = np.linalg.eigh(residual_maker[np.ix_(inside, inside)])
        adjusted = vectors @ np.diag(values_of**-0.5) @ vectors.T
        scores.append(np.ones(inside.sum()) @ adjusted @ residual_maker[inside] / n)
    scores = np.array(scores)
    eigenvalues = np.linalg.eigvalsh(scores @ working @ scores.T)
    return float(((scores @ x) ** 2).sum()), float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())
