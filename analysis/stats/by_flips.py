"""Few clusters, or a few that dominate: signs of whole clusters are flipped, and the interval inverts the test.

The assumption is that sums of clusters are symmetric about the mean. Given that, the test holds its level exactly,
however unequal clusters are in size and in variance.
"""

from __future__ import annotations

import math
from fractions import Fraction

from analysis.cautions import caution
from analysis.stats.flips import LATTICE, flip_above, flip_interval, flip_p
from analysis.stats.method import ALPHA, ENOUGH, LEVEL, Equivalence, Inference, Method, Sample


def applies(sample: Sample) -> bool:
    """Where fewer than ENOUGH clusters count, by their number or by what they weigh."""
    return sample.robust.effective < ENOUGH


def infer(sample: Sample) -> Inference:
    """Two-sided flip test, its inversion, and one-sided flips against the margin."""
    sums, sizes = sample.sums, sample.sizes
    p, step = flip_p(sums), _step(sample)
    interval = flip_interval(sums, sizes, LEVEL, step)
    if interval is None:
        few = caution("few-clusters", n=sample.clusters.count, least=2.0 ** (1 - sample.clusters.count))
        return Inference(Method.FLIPS, None, None, p, (few,))
    equivalence = None
    if sample.bound is not None:
        inner = flip_interval(sums, sizes, 1 - 2 * ALPHA, step)
        above, below = (flip_above(side * sums, sizes, -sample.bound) for side in (1, -1))
        equivalence = Equivalence.of(sample.bound, inner, above, below)
    return Inference(Method.FLIPS, *interval, p, sample.few_or_skewed(), equivalence)


def _step(sample: Sample) -> Fraction:
    """Of the bounds: 1/100 for integers, else a power of ten at most a hundredth of the standard error."""
    if sample.d.dtype.kind == "i" and sample.weights is None:
        return Fraction(1, LATTICE)
    assert sample.robust.se
    return Fraction(10) ** math.floor(math.log10(sample.robust.se)) / LATTICE
