"""The estimates by data set and by kind of prompt, how data sets differ, and how prompts form clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analysis import wording
from analysis.comparison.pairwise import Comparison
from analysis.report.markdown import table
from analysis.report.sections.overview import effective, own_means
from analysis.stats.datasets import Interaction
from analysis.stats.estimate import Estimate
from analysis.stats.method import FEWEST
from analysis.wording import counted, interval, number, one_line, p_value, percent, signed


def dataset_table(c: Comparison) -> str:
    """The headline's estimand per data set."""
    return family_table("data set", c.by_dataset)


def family_size(c: Comparison) -> str:
    """Number of data sets in the family of tests."""
    return counted(max(e.family_size for e in c.by_dataset.values()), "data set")


def seen_table(c: Comparison) -> str | None:
    """The headline's estimand by whether training saw the kind of prompt; None if that is the same for all prompts."""
    return family_table("prompts", c.by_seen) if len(c.by_seen) > 1 else None


def family_table(kind: str, estimates: Mapping[str, Estimate]) -> str:
    """A family of tests, one per row, with p adjusted by Holm."""
    headers = [
        kind,
        "A",
        "B",
        "difference",
        "95% interval",
        "p",
        "p, Holm",
        "pairs",
        "clusters",
        "effective",
        "MDE",
        "verdict",
    ]
    cells = [
        (name, *own_means(e), signed(e.estimate), interval(e.lo, e.hi), p_value(e.p),
         p_value(e.p_adjusted), f"{e.n_pairs:,}", f"{e.n_clusters:,}", effective(e), number(e.mde, 2), e.verdict)
        for name, e in estimates.items()
    ]  # fmt: skip
    return table(headers, cells, numeric=11)


@dataclass(frozen=True)
class ClusterCounts:
    """How prompts form clusters: clusters with several prompts, the largest of them, clusters with one prompt."""

    several: int
    largest: int
    single: int

    def __str__(self) -> str:
        parts = [f"{self.several:,} with several prompts (at most {self.largest:,})"] if self.several else []
        return ", ".join(parts + ([f"{self.single:,} with a single prompt"] if self.single else []))


def cluster_counts(c: Comparison) -> dict[str | None, ClusterCounts]:
    """The clusters of all paired prompts (None), and of each data set; empty if no two prompts share one."""
    if c.overall.n_clusters == c.overall.n_pairs:
        return {}
    frame = c.pairs.frame
    groups = [(None, frame["cluster"]), *((str(name), rows["cluster"]) for name, rows in frame.groupby("dataset"))]
    sizes = ((name, clusters.value_counts()) for name, clusters in groups)
    return {name: ClusterCounts(int((n > 1).sum()), int(n.max()), int((n == 1).sum())) for name, n in sizes}


def clustering(c: Comparison) -> str | None:
    """How prompts form clusters, and what conclusions generalise to; None if no two prompts share a cluster."""
    counts, e = cluster_counts(c), c.overall
    if not counts:
        return None
    effect = f" (design effect {number(e.design_effect, 2)})" if e.design_effect is not None else ""
    text = (
        f"The {c.pairs.described} form {counted(e.n_clusters, 'cluster')}, the units of interval and test"
        f"{effect}: {counts.pop(None)}. "
    )
    if len(c.by_dataset) > 1:
        alike: dict[str, list[str]] = {}
        for name, of_name in counts.items():
            alike.setdefault(str(of_name), []).append(one_line(name))
        each = "; ".join(f"{', '.join(names)}, {words}" for words, names in alike.items())
        text += f"Clusters by data set: {each}. "
    return text + (
        "Where prompts of the same template or original question form a cluster, conclusions generalise to other "
        "templates or questions. Where each prompt is its own cluster, they generalise to other prompts drawn the same "
        "way."
    )


def heterogeneity(c: Comparison) -> str | None:
    """Heterogeneity of the data sets, as a sentence."""
    h = c.heterogeneity
    if h is None:
        return None
    return (
        f"Random effects over {h.datasets} data sets: mean difference {signed(h.estimate)} "
        f"({interval(h.lo, h.hi)}), standard deviation between them {number(h.between_sd)}, I² "
        f"{percent(h.i_squared, 0)}; test that all are equal {wording.equals_p(h.p)} "
        f"(Welch's F with {h.datasets - 1} and {number(h.df, 1)} degrees of freedom)."
    )


def pooled_table(c: Comparison) -> str | None:
    """Partially pooled differences of the data sets; None without any."""
    if c.heterogeneity is None or not c.heterogeneity.pooled:
        return None
    rows = [
        (p.dataset, signed(c.by_dataset[p.dataset].estimate), signed(p.estimate), interval(p.lo, p.hi),
         percent(p.p_positive), percent(p.weight, 0), effective(c.by_dataset[p.dataset]))
        for p in c.heterogeneity.pooled
    ]  # fmt: skip
    headers = ["data set", "difference", "partially pooled", "95% interval", "P(B better)", "own weight", "effective"]
    return table(headers, rows, numeric=6)


def interaction_table(c: Comparison) -> str | None:
    """Contrast of each data set with the others."""
    if not c.interactions:
        return None
    headers = ["data set", "against", "difference of differences", "95% interval", "p", "p, Holm", "effective", "MDE",
               "differs"]  # fmt: skip
    rows = [
        (i.dataset, i.against, signed(i.estimate), interval(i.lo, i.hi), p_value(i.p), p_value(i.p_adjusted),
         number(i.df + 1 if i.df else None, 1), number(i.mde, 2), _differs(i))
        for i in c.interactions
    ]  # fmt: skip
    return table(headers, rows, numeric=7)


def _differs(i: Interaction) -> str:
    if i.p is None:
        return "no test"
    return ("yes" if i.shown else "no") + (" (caution)" if i.cautions else "")


def facts_table(c: Comparison) -> str | None:
    """Facts about each data set; None if none were logged."""
    facts = [(d.seen, d.role, d.coverage_a, d.coverage_b, d.degenerate_a, d.degenerate_b) for d in c.datasets]
    if all(fact is None for of_dataset in facts for fact in of_dataset):
        return None
    headers = ["data set", "prompts", "role", "vocabulary coverage, A", "B", "degenerate outputs, A", "B"]
    cells = [
        (d.name, seen, role, *map(percent, shares)) for d, (seen, role, *shares) in zip(c.datasets, facts, strict=True)
    ]
    return table(headers, cells, numeric=4)


def dataset_caveats(c: Comparison) -> list[str]:
    """The recorded caveats of the prompts, each once, after the names of its data sets."""
    named = []
    for d in c.datasets:
        for caveat in d.caveats:
            family, _, text = caveat.partition(": ")
            named.append((one_line(d.name), text if text and d.name.startswith(family) else caveat))
    return grouped(named, ", ")


def grouped(named: Iterable[tuple[str, str]], joint: str) -> list[str]:
    """``a, b: text`` for (name, text) pairs: every text once, after its names."""
    names: dict[str, list[str]] = {}
    for name, text in named:
        names.setdefault(text, []).append(name)
    return [f"{joint.join(dict.fromkeys(of))}: {text}" for text, of in names.items()]


def explained_table(c: Comparison) -> str | None:
    """Slopes of the difference on properties of the prompts; None without any."""
    if not c.explained:
        return None
    rows = [
        (x.name, signed(x.slope), interval(x.lo, x.hi), p_value(x.p), p_value(x.p_adjusted), f"{x.n_effective:,.1f}")
        for x in c.explained
    ]
    headers = ["property", "slope per standard deviation", "95% interval", "p", "p, Holm", "effective clusters"]
    return table(headers, rows, numeric=5)


def explained_sentence(c: Comparison) -> str:
    """Which properties go with the difference."""
    found = [x for x in c.explained if x.significant]
    if not found:
        few = all(x.n_effective < FEWEST for x in c.explained)
        why = f": there are fewer than {FEWEST} effective clusters" if few else ""
        return f"No property has a slope that is statistically distinguishable from zero{why}."
    said = "; ".join(f"{'rises' if x.slope > 0 else 'falls'} with {x.name}" for x in found)
    return f"B - A {said}."
