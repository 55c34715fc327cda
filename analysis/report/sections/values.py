"""A comparison of one number per prompt, as lines, tables and cautions."""

from __future__ import annotations

from analysis import wording
from analysis.comparison.values import ValueComparison
from analysis.report.answers import facts
from analysis.report.sections.datasets import family_table
from analysis.report.sections.fairness import missing_rows
from analysis.report.sections.overview import estimates_table
from analysis.stats.estimate import Estimate
from analysis.wording import interval, number, one_line, p_value, signed


def headline(c: ValueComparison) -> str:
    """The conclusion in one sentence."""
    arms = [(c.label_a, c.overall.mean_a), (c.label_b, c.overall.mean_b)]
    return wording.headline(c.overall.verdict, c.estimand, arms, facts(c.overall, c.pairs.described))


def overall(c: ValueComparison) -> str:
    """Estimates over all pairs."""
    return estimates_table((c.overall, *c.others))


def method(c: ValueComparison) -> str:
    """How the interval and p were computed."""
    return wording.METHODS[c.overall.method]


def by_dataset(c: ValueComparison) -> str:
    """The estimate of each data set."""
    return family_table("data set", c.by_dataset)


def missing(c: ValueComparison) -> str | None:
    """Values on prompts without a pair, beside those with one."""
    return missing_rows(c.missing)


def _several(c: ValueComparison) -> list[tuple[str, Estimate]]:
    """The data sets; one alone is the whole."""
    return list(c.by_dataset.items()) if len(c.by_dataset) > 1 else []


def cautions(c: ValueComparison) -> list[str]:
    """Every caution once."""
    texts = [x.text for x in c.cautions]
    for name, e in (("", c.overall), *((e.estimand.name, e) for e in c.others), *_several(c)):
        texts += [f"{one_line(name)}: {x.text}" if name else x.text for x in e.cautions]
    for i in c.interactions:
        texts += [f"{one_line(i.dataset)} against {one_line(i.against)}: {x.text}" for x in i.cautions]
    texts += [x.text for x in c.heterogeneity.cautions] if c.heterogeneity is not None else []
    return list(dict.fromkeys(texts))


def lines(c: ValueComparison) -> list[str]:
    """The lines for a terminal."""
    shown = [headline(c)]
    for name, e in (*((e.estimand.name, e) for e in c.others), *_several(c)):
        shown.append(
            f"  {one_line(name)}: A {number(e.mean_a)}, B {number(e.mean_b)}, difference {signed(e.estimate)} "
            f"(95% interval {interval(e.lo, e.hi)}; p {p_value(e.p_adjusted)}; {e.n_pairs:,} pairs): {e.verdict}"
        )
    shown.append(f"Method: {method(c)}. More of {c.estimand.name} is {c.higher_is}.")
    return [*shown, *(f"caution: {one_line(text)}" for text in cautions(c))]
