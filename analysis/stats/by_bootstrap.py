"""Independent integers: exact bootstrap interval of the mean, with the exact sign-flip test of the prompts."""

from __future__ import annotations

from analysis.cautions import caution
from analysis.stats import exact
from analysis.stats.flips import sign_flip_p
from analysis.stats.method import ALPHA, FEWEST, LEVEL, Equivalence, Inference, Method, Sample


def applies(sample: Sample) -> bool:
    """To integers in clusters of one, all of one weight, as many as an exact convolution bears."""
    independent = sample.clusters.singletons and sample.weights is None
    return sample.d.dtype.kind == "i" and independent and sample.d.size <= exact.MAX_PAIRS


def infer(sample: Sample) -> Inference:
    """Percentile interval of the exact bootstrap distribution; equivalence by its tails."""
    mean, n, bound = exact.bootstrap_mean(sample.d), sample.d.size, sample.bound
    p = sign_flip_p(sample.d)
    if n < FEWEST:
        few = caution("few-pairs", n=n, least=2.0 ** (1 - n))
        return Inference(Method.BOOTSTRAP, *mean.interval(LEVEL), p, (few,))
    equivalence = None
    if bound is not None:
        inner = mean.interval(1 - 2 * ALPHA)
        equivalence = Equivalence.of(bound, inner, mean.at_most(-bound), mean.at_least(bound))
    return Inference(Method.BOOTSTRAP, *mean.interval(LEVEL), p, sample.few_or_skewed(), equivalence)
