"""The overall estimate of a report: the table of estimands, what was declared, equivalence."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import wording
from analysis.comparison.pairwise import Comparison
from analysis.measures.exploration import roles_in_words
from analysis.report.markdown import table
from analysis.stats.estimate import Estimate
from analysis.stats.method import FEWEST
from analysis.wording import interval, number, p_value, percent, signed, with_interval


def overall_table(c: Comparison) -> str:
    """Estimates over all pairs, one estimand per row, the headline first."""
    return estimates_table((c.overall, *c.others))


def estimates_table(estimates: Sequence[Estimate]) -> str:
    """One estimand per row."""
    headers = ["metric", "A", "B", "difference", "95% interval", "p", "pairs", "clusters", "effective", "verdict"]
    cells = [
        (e.estimand.name, *own_means(e), signed(e.estimate), interval(e.lo, e.hi), p_value(e.p),
         f"{e.n_pairs:,}", f"{e.n_clusters:,}", effective(e), _verdict(e))
        for e in estimates
    ]  # fmt: skip
    return table(headers, cells, numeric=9)


def monitoring(c: Comparison) -> str | None:
    """What a test says that may be repeated after every prompt; None if it was not asked for."""
    s = c.sequential
    if s is None:
        return None
    units = wording.counted(s.n, "prompt" if c.overall.n_clusters == c.overall.n_pairs else "cluster")
    decided = f"0 was excluded after {s.decided_at:,} of them" if s.decided else "0 is not excluded so far"
    return (
        f"Looked at after every prompt (betting, valid at any time of stopping): {units}, mean difference "
        f"{signed(s.estimate)} ({interval(s.lo, s.hi)}), {wording.equals_p(s.p)}; {decided}. Each counts once, and a "
        f"difference lies within ±{s.bound:g} tokens."
    )


def change_table(c: Comparison) -> str | None:
    """How many prompts move in which direction, and by how much; None without pairs."""
    if not c.changes:
        return None
    rows = [
        (x.direction, f"{x.n:,}", percent(x.share), "—" if x.lo is None else f"{percent(x.lo)} to {percent(x.hi)}",
         number(x.n_effective, 1), signed(x.mean, 2), signed(x.median, 2))
        for x in c.changes
    ]  # fmt: skip
    headers = ["prompt", "prompts", "share", "95% interval", "effective", "mean of B - A", "median of B - A"]
    return table(headers, rows, numeric=6)


def effective(e: Estimate) -> str:
    """The effective number of independent clusters: degrees of freedom + 1."""
    return f"{e.n_effective:,.1f}" if e.se is not None else "—"


def _verdict(e: Estimate) -> str:
    """The verdict, noting where the margin does not apply to this metric."""
    return e.verdict + (", no margin stated" if any(x.code == "no-margin" for x in e.cautions) else "")


def own_means(e: Estimate) -> tuple[str, str]:
    """Each arm's mean, with its own interval if there are enough clusters."""
    if e.n_clusters < FEWEST:
        return number(e.mean_a), number(e.mean_b)
    return with_interval(e.mean_a, e.lo_a, e.hi_a), with_interval(e.mean_b, e.lo_b, e.hi_b)


def declared(c: Comparison) -> str:
    """The headline metric, whether it was requested, the method, and the role of the prompts."""
    d = c.declaration
    chosen = "requested explicitly" if d.metric_declared else f"the default of protocol {c.protocol}"
    text = f"Headline metric: {d.metric.name}, {chosen}. Method: {wording.METHODS[c.overall.method]}. "
    text += "A verdict requires both p < 0.05 and an interval that excludes 0. "
    text += f"Prompt role, as recorded before use: {roles_in_words(d.roles)}."
    if d.picked is not None:
        label = "post hoc" if d.post_hoc else "confirmatory"
        text += f" Data sets selected by the caller: {', '.join(d.picked)} ({label})."
    return text


def equivalence_table(c: Comparison) -> str | None:
    """Two one-sided tests against the margin; None without a margin."""
    if c.declaration.margin is None:
        return None
    rows = []
    for name, e in (("overall", c.overall), *c.by_dataset.items()):
        q = e.equivalence
        cells = (None,) * 3 if q is None else (interval(q.lo, q.hi), p_value(q.p_adjusted), effective(e))
        rows.append((name, *cells, "not defined" if q is None else "inside" if q.shown else "not shown to be inside"))
    return table(["data set", "90% interval", "p of the two one-sided tests", "effective", "margin"], rows, numeric=4)
