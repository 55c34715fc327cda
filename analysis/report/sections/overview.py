"""The tables and lines of a report, section by section; the template puts them in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd

from analysis import wording
from analysis.comparison.facts import ArmSummary
from analysis.comparison.pairwise import Comparison
from analysis.measures.exploration import roles_in_words
from analysis.measures.missing import Missing
from analysis.report.markdown import table
from analysis.runlog.manifest import Manifest
from analysis.stats.estimate import Estimate
from analysis.stats.method import FEWEST
from analysis.wording import Caution, counted, interval, number, one_line, p_value, percent, signed, with_interval

LOST_SHOWN = 20


def overall_table(c: Comparison) -> str:
    """Estimates of all pairs, one estimand a row, the headline first."""
    return estimates_table((c.overall, *c.others))


def estimates_table(estimates: Sequence[Estimate]) -> str:
    """One estimand a row."""
    headers = ["metric", "A", "B", "difference", "95% interval", "p", "pairs", "clusters", "effective", "verdict"]
    cells = [
        (e.estimand.name, *own_means(e), signed(e.estimate), interval(e.lo, e.hi), p_value(e.p),
         f"{e.n_pairs:,}", f"{e.n_clusters:,}", effective(e), _verdict(e))
        for e in estimates
    ]  # fmt: skip
    return table(headers, cells, numeric=9)


def effective(e: Estimate) -> str:
    """The effective number of independent clusters: degrees of freedom + 1."""
    return f"{e.n_effective:,.1f}" if e.se is not None else "—"


def _verdict(e: Estimate) -> str:
    """The verdict, owning up where the margin that others had is none of this metric's."""
    return e.verdict + (", no margin stated" if any(x.code == "no-margin" for x in e.cautions) else "")


def own_means(e: Estimate) -> tuple[str, str]:
    """Each arm's mean, with its own interval where there are clusters enough for it to say anything."""
    if e.n_clusters < FEWEST:
        return number(e.mean_a), number(e.mean_b)
    return with_interval(e.mean_a, e.lo_a, e.hi_a), with_interval(e.mean_b, e.lo_b, e.hi_b)


def dataset_table(c: Comparison) -> str:
    """The headline's estimand per data set."""
    return family_table("data set", c.by_dataset)


def family_size(c: Comparison) -> str:
    """How many data sets were tested together."""
    return counted(max(e.family_size for e in c.by_dataset.values()), "data set")


def seen_table(c: Comparison) -> str | None:
    """The headline's estimand by what training saw of the prompts, where that is not the same for all."""
    return family_table("prompts", c.by_seen) if len(c.by_seen) > 1 else None


def family_table(kind: str, estimates: Mapping[str, Estimate]) -> str:
    """A family of tests, a row each, with p adjusted by Holm."""
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


def declared(c: Comparison) -> str:
    """Which metric is the headline and by whose word, the method, and the role of the prompts."""
    d = c.declaration
    chosen = "declared with the call" if d.metric_declared else f"the default of protocol {c.protocol}"
    told = f"Headline metric: {d.metric.name}, {chosen}. Method: {wording.METHODS[c.overall.method]}. "
    told += "A verdict needs both p < 0.05 and an interval that excludes 0. "
    told += f"Role of the prompts, as recorded before they were used: {roles_in_words(d.roles)}."
    if d.picked is not None:
        label = "post hoc" if d.post_hoc else "a confirmatory set"
        told += f" Data sets picked with the call: {', '.join(d.picked)} ({label})."
    return told


def equivalence_table(c: Comparison) -> str | None:
    """Two one-sided tests against the margin, where one was stated."""
    if c.declaration.margin is None:
        return None
    rows = []
    for name, e in (("overall", c.overall), *c.by_dataset.items()):
        q = e.equivalence
        cells = (None, None) if q is None else (interval(q.lo, q.hi), p_value(q.p_adjusted))
        rows.append((name, *cells, "not defined" if q is None else "inside" if q.shown else "not shown to be inside"))
    return table(["data set", "90% interval", "p of the two one-sided tests", "margin"], rows, numeric=3)


def clustering(c: Comparison) -> str | None:
    """How prompts belong together, what was done about it, and what conclusions are then about; None if none do."""
    e = c.overall
    if e.n_clusters == e.n_pairs:
        return None
    sizes = c.pairs.frame["cluster"].value_counts()
    effect = f" (design effect {number(e.design_effect, 2)})" if e.design_effect is not None else ""
    told = (
        f"The {c.pairs.described} form {counted(e.n_clusters, 'cluster')}, the units of interval and p"
        f"{effect}: {_in_clusters(sizes)}. "
    )
    if len(c.by_dataset) > 1:
        by_dataset: dict[str, list[str]] = {}
        for name, rows in c.pairs.frame.groupby("dataset"):
            by_dataset.setdefault(_in_clusters(rows["cluster"].value_counts()), []).append(one_line(name))
        each = "; ".join(f"{', '.join(names)}, {words}" for words, names in by_dataset.items())
        told += f"Clusters by data set: {each}. "
    return told + (
        "Where prompts of one template, or of one original question, are a cluster, conclusions are about further "
        "templates or questions; where each prompt is its own, about further prompts drawn as these were (of prompts "
        "from one generator: its further draws)."
    )


def _in_clusters(sizes: pd.Series) -> str:
    """``79 of several prompts (at most 22), 240 of a single one``, from prompts by cluster."""
    several, single = int((sizes > 1).sum()), int((sizes == 1).sum())
    told = [f"{several:,} of several prompts (at most {sizes.max():,})"] if several else []
    return ", ".join(told + ([f"{single:,} of a single {'one' if several else 'prompt'}"] if single else []))


def heterogeneity(c: Comparison) -> str | None:
    """How much data sets differ, in words."""
    h = c.heterogeneity
    if h is None:
        return None
    return (
        f"Data sets as a sample of data sets (random effects, {h.datasets} of them): mean {signed(h.estimate)} "
        f"({interval(h.lo, h.hi)}), standard deviation between them {number(h.between_sd)}, I² "
        f"{percent(h.i_squared, 0)}; test that all are equal {wording.equals_p(h.p)}."
    )


def interaction_table(c: Comparison) -> str | None:
    """Each data set against the others."""
    if not c.interactions:
        return None
    headers = ["data set", "against", "difference of differences", "95% interval", "p", "p, Holm", "MDE", "told apart"]
    rows = [
        (i.dataset, i.against, signed(i.estimate), interval(i.lo, i.hi), p_value(i.p), p_value(i.p_adjusted),
         number(i.mde, 2), "yes" if i.shown else "no")
        for i in c.interactions
    ]  # fmt: skip
    return table(headers, rows, numeric=6)


def facts_table(c: Comparison) -> str | None:
    """What each data set is; None where nothing of it was logged."""
    found = [(d.seen, d.role, d.coverage_a, d.coverage_b, d.degenerate_a, d.degenerate_b) for d in c.datasets]
    if all(fact is None for facts in found for fact in facts):
        return None
    headers = ["data set", "prompts", "role", "vocabulary coverage, A", "B", "degenerate outputs, A", "B"]
    cells = [
        (d.name, seen, role, *map(percent, shares)) for d, (seen, role, *shares) in zip(c.datasets, found, strict=True)
    ]
    return table(headers, cells, numeric=4)


def dataset_caveats(c: Comparison) -> list[str]:
    """What is to be known of the prompts, each once. A caveat names its family itself; the data sets are named here."""
    found = []
    for d in c.datasets:
        for caveat in d.caveats:
            family, _, text = caveat.partition(": ")
            found.append((one_line(d.name), text if text and d.name.startswith(family) else caveat))
    return _grouped(found, ", ")


def _grouped(found: Iterable[tuple[str, str]], joint: str) -> list[str]:
    """``a, b: text`` for pairs of a name and a text: every text once."""
    names: dict[str, list[str]] = {}
    for name, text in found:
        names.setdefault(text, []).append(name)
    return [f"{joint.join(dict.fromkeys(of))}: {text}" for text, of in names.items()]


def survival_table(c: Comparison) -> str | None:
    """Survival per slot, both arms, with the steps at risk, and the difference."""
    if c.position_difference.empty:
        return None
    a, b = _curves(c)
    rows = []
    for row in c.position_difference.itertuples():
        first, second = a.loc[row.k], b.loc[row.k]
        bounds = "—" if pd.isna(row.lo) else f"{_points(row.lo)} to {_points(row.hi)}"
        rows.append(
            (f"{row.k}", *(f"{x['at_risk']:,.0f}" for x in (first, second)),
             *(percent(x["survival"]) for x in (first, second)), _points(row.difference), bounds)
        )  # fmt: skip
    return table(["k", "at risk, A", "B", "survival, A", "B", "difference", "95% interval"], rows, numeric=7)


def conditional_table(c: Comparison) -> str:
    """Acceptance per slot among the steps that reached it, and how many failed for lack of vocabulary."""
    arms = _curves(c)
    columns = (("reached", lambda x: f"{x:,.0f}"), ("conditional", percent), ("missed_vocabulary", percent))
    rows = [
        (f"{k}", *(told(arm.loc[k, column]) for column, told in columns for arm in arms))
        for k in c.position_difference["k"]
    ]
    headers = ["k", "reached, A", "B", "conditional, A", "B", "not in vocabulary, A", "B"]
    return table(headers, rows, numeric=7)


def _curves(c: Comparison) -> tuple[pd.DataFrame, pd.DataFrame]:
    return c.a.positions.curve.set_index("k"), c.b.positions.curve.set_index("k")


def _points(share: float) -> str:
    return "—" if pd.isna(share) else signed(100 * share, 1)


def ceilings(c: Comparison) -> list[str]:
    """What the end of the block hides, per arm: at most so much, for no step beyond it was seen."""
    told = []
    for arm in (c.a, c.b):
        last = arm.positions.curve.iloc[-1]
        if last["survival"] > 0:
            told.append(
                f"{arm.side}: all {last['k']:.0f} draft tokens are accepted in {percent(last['survival'])} of steps "
                f"({percent(last['lo'])} to {percent(last['hi'])}). A slot more could add at most "
                f"{number(last['survival'], 2)} tokens a step; how many it would add was not seen."
            )
    return told


def training_table(c: Comparison) -> str | None:
    """Where training ended."""
    arms = [arm for arm in (c.a, c.b) if arm.history is not None]
    if not arms:
        return None
    columns = ("val_accepted_length", "val_unseen_accepted_length")
    headers = ["arm", "steps", "final cross-entropy (mean of the last 5% of steps)",
               "validation accepted length, seen templates", "unseen templates"]  # fmt: skip
    rows = []
    for arm in arms:
        assert arm.history is not None
        last = [number(arm.history.final("ce"), 2), *(number(arm.history.last(column), 2) for column in columns)]
        rows.append((f"{arm.side}: {arm.label}", f"{len(arm.history.curves):,}", *last))
    return table(headers, rows, numeric=4)


def differences_table(c: Comparison) -> str:
    """What the drafters differ in by design."""
    return table(["setting or count", "A", "B"], [(d.what, d.a, d.b) for d in c.differences])


def fairness_table(c: Comparison) -> str | None:
    """What should be equal in both arms, as far as a run records it."""
    rows = [(r.label, r.a, r.b, r.status) for r in c.fairness if r.a is not None or r.b is not None]
    return table(["condition", "A", "B", "equal"], rows) if rows else None


def not_recorded(c: Comparison) -> str | None:
    """What should be equal and neither run records."""
    names = [r.label for r in c.fairness if r.a is None and r.b is None]
    return f"Not recorded in either run: {', '.join(names)}." if names else None


def lost_table(c: Comparison) -> str | None:
    """How many prompts have no pair, by data set and reason."""
    if c.pairs.lost.empty:
        return None
    counts = c.pairs.lost.groupby(["dataset", "reason"]).size()
    rows = [(dataset, reason, f"{count:,}") for (dataset, reason), count in counts.items()]
    return table(["data set", "reason", "prompts"], rows, numeric=1)


def missing_table(c: Comparison) -> str | None:
    """Values on prompts without a pair beside those on prompts with one."""
    return missing_rows(c.missing)


def missing_rows(found: Sequence[Missing]) -> str | None:
    """A row per arm that has values of prompts without a pair."""
    if not found:
        return None
    rows = [
        (m.side, f"{m.lost:,}", number(m.mean_lost), f"{m.kept:,}", number(m.mean_kept), signed(m.difference),
         interval(m.lo, m.hi), p_value(m.p))
        for m in found
    ]  # fmt: skip
    headers = ["arm", "without a pair", "its mean", "with a pair", "its mean", "difference", "95% interval", "p"]
    return table(headers, rows, numeric=7)


def cautions(c: Comparison) -> list[str]:
    """Every warning once, with all that it is about; those of the whole comparison are about nothing in particular."""
    told: dict[str, list[str]] = {x.text: [] for x in c.cautions if x.code != "one-seed"}
    for what, found in _concerned(c):
        for x in found:
            about = told.setdefault(x.text, [])
            about += [what] if what and what not in about else []
    return [f"{'; '.join(about)}: {text}" if about else text for text, about in told.items()]


def _concerned(c: Comparison) -> Iterator[tuple[str, Sequence[Caution]]]:
    """The warnings of everything that was estimated, with its name."""
    for e in (c.overall, *c.others):
        yield one_line(e.estimand.name).capitalize(), e.cautions
    for name, e in (*c.by_dataset.items(), *c.by_seen.items()):
        yield one_line(name), e.cautions
    for control in c.controls:
        yield f"B against {one_line(control.label)}", control.lost.cautions
        yield f"{one_line(control.label)} against A", control.kept.cautions
    for ratio in c.speed.ratios if c.speed is not None else ():
        yield "Speed" if ratio.subset is None else f"Speed on {one_line(ratio.subset)}", ratio.cautions
    if c.heterogeneity is not None:
        yield "", c.heterogeneity.cautions


def not_covered(c: Comparison) -> list[str]:
    """What no interval here speaks about."""
    told = [x.text for x in c.cautions if x.code == "one-seed"]
    told.append("Nor do they cover another target, other decoding settings, or prompts of another kind.")
    if c.speed is not None or c.throughput is not None or (c.baseline is not None and c.baseline.speedups):
        told.append("Those of times do not cover another machine, or another session of timing on this one.")
    return told


def provenance_table(c: Comparison) -> str:
    """Where the numbers come from: the runs' own record, nothing of the machine that reports."""
    a, b = (_provenance(arm) for arm in (c.a, c.b))
    return table(["record", "A", "B"], [(key, a[key], b[key]) for key in a if a[key] is not None or b[key] is not None])


def run_caveats(c: Comparison) -> list[str]:
    """What the runs say about themselves, each once."""
    return _grouped(((arm.side, caveat) for arm in (c.a, c.b) for caveat in arm.manifest.caveats), " and ")


def _provenance(arm: ArmSummary) -> Mapping[str, object]:
    m: Manifest = arm.manifest
    environment, target = m.environment, m.target
    versions = ", ".join(f"{name} {version}" for name, version in sorted(environment.versions.items()))
    checkpoint = m.drafter.checkpoint_sha256 if m.drafter else None
    return {
        "run": arm.name,
        "status": m.status,
        "made by": m.created_by,
        "parent": m.parent,
        "variant": m.variant,
        "imported from": "; ".join(f"{s.path} ({s.bytes:,} bytes, sha256 {s.sha256[:12]})" for s in m.sources or ())
        or None,
        "target": target.id if target else None,
        "note on the target": target.note if target else None,
        "checkpoint (sha256)": checkpoint[:12] if checkpoint else None,
        "evaluations": ", ".join(sorted(m.evaluations)) or None,
        "commit": environment.git_commit[:12] if environment.git_commit else None,
        "versions": versions or None,
        "device": environment.device,
        "threads": environment.threads,
    }
