"""Ratios of sums, such as tau = tokens emitted / verification steps, as means that the cluster t can take.

Pooled over prompts, R = sum(T) / sum(S) is not a mean of per-prompt values: prompts with many steps weigh more.
Its delta-method error is that of the mean of e_i = (T_i - R S_i) / mean(S) (Deng et al. 2018), so R + e_i are
values with mean R and the right variance, and the difference of two arms over the same prompts is the difference
of their values: paired, and clustered as prompts are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.stats.cluster import FloatArray


def linearise(numerator: Any, denominator: Any) -> FloatArray:
    """(n,) values whose mean is sum(numerator) / sum(denominator) and whose variance is the delta method's.

    An observation with a zero denominator gets the ratio itself as its value. Raises ValueError if it has a numerator
    all the same, if a denominator is negative, and if all are 0.
    """
    t, s = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if not s.any() or (s < 0).any() or t[s == 0].any():
        raise ValueError(
            "a ratio of sums requires denominators >= 0, not all 0; a zero denominator requires a zero numerator"
        )
    ratio = t.sum() / s.sum()
    return ratio + (t - ratio * s) / s.mean()


def weights(denominator: Any) -> FloatArray:
    """(n,) weights of mean 1 with which observations enter a ratio of sums, for :func:`~.cluster.cluster_t`: their
    shares of the denominator."""
    s = np.asarray(denominator, dtype=np.float64)
    return s / float(s.mean())


def linearise_log(numerator: Any, denominator: Any) -> FloatArray:
    """(n,) values whose mean is the log of the ratio of sums: for ratios of ratios, such as a speed-up."""
    values = linearise(numerator, denominator)
    ratio = float(values.mean())
    return np.log(ratio) + (values - ratio) / ratio
