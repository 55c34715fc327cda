"""The glossary at the end of a report: the terms that it uses, each defined once."""

from __future__ import annotations

from collections.abc import Callable

from analysis.comparison.pairwise import Comparison

#: Term, definition, and whether a comparison uses it.
_TERMS: tuple[tuple[str, str, Callable[[Comparison], bool]], ...] = (
    (
        "95% CI",
        "confidence interval of the paired difference at 95%. The method is named under Overall.",
        lambda c: True,
    ),
    (
        "p",
        "two-sided p-value of the hypothesis of no difference. A verdict requires p < 0.05 and a CI that excludes 0.",
        lambda c: True,
    ),
    (
        "p, Holm",
        "p adjusted for the number of tests in its table (Holm 1979). Verdicts use it; the CIs are not adjusted.",
        lambda c: len(c.by_dataset) > 1,
    ),
    (
        "cluster",
        "prompts that share an original question or a template. They are not independent, so clusters are the units of "
        "interval and test.",
        lambda c: c.overall.n_clusters < c.overall.n_pairs,
    ),
    (
        "effective",
        "effective number of independent clusters: the degrees of freedom of the cluster-robust t, and one. Few large "
        "clusters, or few long answers, count as few.",
        lambda c: True,
    ),
    (
        "MDE",
        "minimum detectable effect: the true difference that such a test, within its family, finds with probability "
        "0.8.",
        lambda c: len(c.by_dataset) > 0,
    ),
    (
        "own interval of an arm",
        "the brackets behind each arm's mean: a cluster-robust t interval of that mean alone. The arms share their "
        "prompts, so these intervals may overlap although the paired difference is significant.",
        lambda c: True,
    ),
    (
        "partially pooled",
        "the difference of a data set pulled towards the mean of all, the more the fewer its prompts; *own weight* is "
        "the share of the data set's own difference. P(B better) assumes a flat prior.",
        lambda c: c.heterogeneity is not None and bool(c.heterogeneity.pooled),
    ),
    (
        "survival at k",
        "share of steps whose first k draft tokens are all accepted (product-limit estimate: a block that is cut short "
        "is censored from that slot on).",
        lambda c: not c.position_difference.empty,
    ),
    (
        "conditional at k",
        "share of accepted tokens at slot k among the steps that reached it. The arms reach a slot on different steps, "
        "so a lower conditional rate does not make an arm worse; survival does.",
        lambda c: not c.position_difference.empty,
    ),
    (
        "not in vocabulary",
        "steps that failed at a slot because the drafter's vocabulary lacks the target's token.",
        lambda c: not c.position_difference.empty,
    ),
    (
        "speed-up, pooled",
        "ratio of seconds per token after the first, total time over total tokens, paired by prompt.",
        lambda c: c.speed is not None,
    ),
    (
        "vocabulary coverage",
        "share of the target's tokens that the draft vocabulary contains.",
        lambda c: any(d.coverage_a is not None or d.coverage_b is not None for d in c.datasets),
    ),
    (
        "degenerate output",
        "an answer in which over half of the 4-grams repeat earlier ones. Loops are easy to draft.",
        lambda c: any(d.degenerate_a is not None or d.degenerate_b is not None for d in c.datasets),
    ),
)


def glossary(c: Comparison) -> list[tuple[str, str]]:
    """(term, definition) of everything that the report of ``c`` uses, the metrics first."""
    metrics = dict.fromkeys((e.estimand.name, e.estimand.definition) for e in (c.overall, *c.others))
    return [*((name, f"{definition}.") for name, definition in metrics), *((t, d) for t, d, used in _TERMS if used(c))]
