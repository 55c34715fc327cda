"""Many clusters: a t with the cluster-robust standard error and its own degrees of freedom."""

from __future__ import annotations

from scipy import special

from analysis.stats.method import ALPHA, Equivalence, Inference, Method, Sample


def infer(sample: Sample) -> Inference:
    """The interval and p of ``sample.robust``; two one-sided t tests against the margin."""
    robust, bound = sample.robust, sample.bound
    assert robust.se and robust.p is not None
    equivalence = None
    if bound is not None:
        half = float(special.stdtrit(robust.df, 1 - ALPHA)) * robust.se
        below, above = (float(special.stdtr(robust.df, (s * robust.mean - bound) / robust.se)) for s in (1, -1))
        equivalence = Equivalence.of(bound, (robust.mean - half, robust.mean + half), below, above)
    return Inference(Method.T, robust.lo, robust.hi, robust.p, sample.few_or_skewed(), equivalence)
