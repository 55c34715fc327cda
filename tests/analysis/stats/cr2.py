"""An independent CR2: n x n matrices, square roots of inverses, eigenvalues. Slow, and close to the papers."""

from __future__ import annotations

import numpy as np


def dense(values, groups, icc, weights=None):
    """CR2 variance and degrees of freedom with n x n matrices: each cluster's score scaled so that its square is
    unbiased if observations are independent, eigenvalues of the quadratic form under the working covariance."""
    x, groups = np.asarray(values, float), np.asarray(groups)
    n = x.size
    w = np.ones(n) if weights is None else np.asarray(weights, float)
    residual_maker = np.eye(n) - np.outer(w, np.ones(n)) / n  # of values: each less its share of the mean
    same = groups[:, None] == groups[None, :]
    working = np.where(same, icc * np.outer(w, w), 0.0) + (1 - icc) * np.diag(w)
    scores = []
    for g in np.unique(groups):
        score = (groups == g).astype(float) @ residual_maker
        independent = score @ np.diag(w) @ score
        scores.append(score * np.sqrt(w[groups == g].sum() / independent) / n)
    scores = np.array(scores)
    eigenvalues = np.linalg.eigvalsh(scores @ working @ scores.T)
    return float(((scores @ x) ** 2).sum()), float(eigenvalues.sum() ** 2 / (eigenvalues**2).sum())


def by_matrix_roots(values, groups):
    """CR2 variance with adjustment matrices as inverse square roots of blocks of the residual maker."""
    x, groups = np.asarray(values, float), np.asarray(groups)
    n = x.size
    residual_maker = np.eye(n) - np.full((n, n), 1 / n)
    total = 0.0
    for g in np.unique(groups):
        inside = groups == g
        values_of, vectors = np.linalg.eigh(residual_maker[np.ix_(inside, inside)])
        adjusted = vectors @ np.diag(values_of**-0.5) @ vectors.T
        total += float(np.ones(inside.sum()) @ adjusted @ residual_maker[inside] @ x) ** 2
    return total / n**2


def likeliest_icc(values, groups, weights=None):
    """Over 0, 0.05, ..., 0.95 and 0.99: the largest normal likelihood of the residuals, by the whole covariance. Means
    of clusters enter unshrunk, over the root of one less their share."""
    x, groups = np.asarray(values, float), np.asarray(groups)
    w = np.ones(x.size) if weights is None else np.asarray(weights, float)
    residual = (x - x.mean()) / w
    best, found = -np.inf, 0.0
    for icc in [*(np.arange(20) / 20), 0.99]:
        quadratic = logdet = 0.0
        for g in np.unique(groups):
            inside = groups == g
            own, share = w[inside], w[inside].sum() / x.size
            mean = own @ residual[inside] / own.sum()
            unshrunk = residual[inside] - mean + mean / np.sqrt(1 - share)
            covariance = icc * np.ones((own.size, own.size)) + (1 - icc) * np.diag(1 / own)
            quadratic += unshrunk @ np.linalg.solve(covariance, unshrunk)
            logdet += np.linalg.slogdet(covariance)[1]
        likelihood = -0.5 * (x.size * np.log(quadratic / x.size) + logdet)
        best, found = max((best, found), (likelihood, icc))
    return found
