"""A comparison as Markdown: sentences and tables for the template ``templates/report.md.j2``.

Names come from files and may hold anything, so every cell and every name is escaped here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2
import pandas as pd

from analysis import wording
from analysis.comparison import ArmSummary, Comparison
from analysis.estimate import Estimate
from analysis.figures import Plot
from analysis.manifest import Manifest
from analysis.schema import GATE_QUANTITIES
from analysis.wording import counted, interval, number, one_line, p_value, percent, signed

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$&!])")
_LOST_SHOWN = 20


def escape(text: object) -> str:
    """``text`` as literal Markdown on one line: nothing in it starts markup, HTML, maths or a new cell."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], numeric: int = 0) -> str:
    """A Markdown table with escaped cells; None is a dash; the last ``numeric`` columns are set right."""
    lines = [list(map(escape, headers))]
    lines.append(["---" if i < len(headers) - numeric else "---:" for i in range(len(headers))])
    lines += [["—" if cell is None else escape(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def render(comparison: Comparison, plots: Sequence[Plot], *, title: str | None, question: str | None) -> str:
    """The whole report.md. Figures are referred to as ``figures/<name>.png``."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("analysis"),
        autoescape=False,  # Markdown; escape() is applied to every name
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["md"] = escape
    c = comparison
    text = environment.get_template("report.md.j2").render(
        c=c,
        title=title or f"{c.b.label} against {c.a.label}",
        question=question,
        headline=headline(c),
        headlines_by_dataset=[dataset_sentence(name, e) for name, e in c.by_dataset.items()],
        method=wording.METHODS[c.overall.method],
        clustering=clustering(c.overall),
        overall_table=estimates_table(c, [(e.estimand, e) for e in (c.overall, *c.others)]),
        estimands=[e.estimand for e in (c.overall, *c.others)],
        dataset_table=dataset_table(c),
        facts_table=facts_table(c),
        caveats=[(d.name, caveat) for d in c.datasets for caveat in d.caveats],
        plots={plot.name: plot for plot in plots},
        gate_tables=[(arm, gate_table(arm)) for arm in (c.a, c.b) if arm.gates is not None],
        training_table=training_table(c),
        differences_table=table(["setting or count", "A", "B"], [(d.what, d.a, d.b) for d in c.differences]),
        fairness_table=table(["condition", "A", "B", "equal"], [(r.label, r.a, r.b, r.status) for r in c.fairness]),
        lost_table=lost_table(c.pairs.lost),
        lost_shown=c.pairs.lost.head(_LOST_SHOWN),
        cautions=cautions(c),
        not_covered=[x.text for x in c.cautions if x.code == "one-seed"],
        provenance_table=provenance_table(c),
        run_caveats=[(arm.side, caveat) for arm in (c.a, c.b) for caveat in arm.manifest.caveats],
    )
    return re.sub(r"\n{3,}", "\n\n", text)  # sections that are left out leave no gap


def headline(c: Comparison) -> str:
    """The conclusion in one sentence."""
    e = c.overall
    pairs = counted(e.n_pairs, "prompt")
    if e.n_clusters < e.n_pairs:
        pairs += f" in {counted(e.n_clusters, 'cluster')}"
    facts = (
        f"a difference of {signed(e.estimate)} (95% interval {interval(e.lo, e.hi)}; {wording.equals_p(e.p)}; {pairs})"
    )
    return wording.headline(e.verdict, c.estimand, [(c.a.label, e.mean_a), (c.b.label, e.mean_b)], facts)


def dataset_sentence(name: str, e: Estimate) -> str:
    """One data set's conclusion, short: ``gsm: B better, +0.15 (+0.07 to +0.22)``."""
    return f"{one_line(name)}: {e.verdict}, {signed(e.estimate)} ({interval(e.lo, e.hi)})"


def clustering(e: Estimate) -> str | None:
    """What was done about prompts that belong together, if any do."""
    if e.n_clusters == e.n_pairs:
        return None
    effect = f" (design effect {number(e.design_effect, 2)})" if e.design_effect is not None else ""
    return (
        f"The {counted(e.n_pairs, 'prompt')} come from {counted(e.n_clusters, 'cluster')} (one template, or one "
        f"original question, each), and interval and p treat whole clusters as the units{effect}."
    )


def estimates_table(c: Comparison, rows: Sequence[tuple[Any, Estimate]]) -> str:
    """Estimates of all pairs, one estimand a row."""
    headers = ["metric", "A", "B", "difference", "95% interval", "p", "pairs", "clusters", "verdict"]
    cells = [
        (metric.name, number(e.mean_a), number(e.mean_b), signed(e.estimate), interval(e.lo, e.hi), p_value(e.p),
         f"{e.n_pairs:,}", f"{e.n_clusters:,}", e.verdict)
        for metric, e in rows
    ]  # fmt: skip
    return table(headers, cells, numeric=8)


def dataset_table(c: Comparison) -> str:
    """The headline's estimand per data set."""
    headers = ["data set", "A", "B", "difference", "95% interval", "p", "p, Holm", "pairs", "clusters", "verdict"]
    cells = [
        (name, number(e.mean_a), number(e.mean_b), signed(e.estimate), interval(e.lo, e.hi), p_value(e.p),
         p_value(e.p_adjusted), f"{e.n_pairs:,}", f"{e.n_clusters:,}", e.verdict)
        for name, e in c.by_dataset.items()
    ]  # fmt: skip
    return table(headers, cells, numeric=9)


def facts_table(c: Comparison) -> str:
    """What each data set is."""
    headers = ["data set", "prompts", "role", "vocabulary coverage, A", "B", "degenerate outputs, A", "B"]
    cells = [
        (d.name, d.seen, d.role, *map(percent, (d.coverage_a, d.coverage_b, d.degenerate_a, d.degenerate_b)))
        for d in c.datasets
    ]
    return table(headers, cells, numeric=4)


def gate_table(arm: ArmSummary) -> str:
    """Means with intervals per role and target layer."""
    assert arm.gates is not None
    headers = ["tokens", "layer", *(q.replace("_", " ") for q in GATE_QUANTITIES)]
    rows = []
    for (role, layer), of_layer in arm.gates.table.groupby(["role", "layer"]):
        by_quantity = of_layer.set_index("quantity")
        cells = [_mean_with_interval(by_quantity.loc[quantity]) for quantity in GATE_QUANTITIES]
        rows.append((role, layer, *cells))
    return table(headers, rows, numeric=1 + len(GATE_QUANTITIES))


def _mean_with_interval(row: pd.Series) -> str:
    digits = 3 if abs(row["mean"]) < 10 else 1
    if pd.isna(row["lo"]):
        return number(row["mean"], digits)
    return f"{number(row['mean'], digits)} ({number(row['lo'], digits)} to {number(row['hi'], digits)})"


def training_table(c: Comparison) -> str | None:
    """Where training ended."""
    arms = [arm for arm in (c.a, c.b) if arm.history is not None]
    if not arms:
        return None
    columns = ("loss", "val_accepted_length", "val_unseen_accepted_length")
    headers = ["arm", "steps", "last loss", "validation accepted length, seen templates", "unseen templates"]
    rows = []
    for arm in arms:
        assert arm.history is not None
        last = [number(arm.history.last(column), 2) for column in columns]
        rows.append((f"{arm.side}: {arm.label}", f"{len(arm.history.curves):,}", *last))
    return table(headers, rows, numeric=4)


def lost_table(lost: pd.DataFrame) -> str | None:
    """How many prompts have no pair, by data set and reason."""
    if lost.empty:
        return None
    counts = lost.groupby(["dataset", "reason"]).size()
    rows = [(dataset, reason, f"{count:,}") for (dataset, reason), count in counts.items()]
    return table(["data set", "reason", "prompts"], rows, numeric=1)


def cautions(c: Comparison) -> list[str]:
    """Every warning once, those of an estimate with what it is about."""
    whole = [x.text for x in c.cautions if x.code != "one-seed"]
    overall = [f"Overall: {x.text}" for e in (c.overall, *c.others) for x in e.cautions]
    by_dataset = [f"{name}: {x.text}" for name, e in c.by_dataset.items() for x in e.cautions]
    return list(dict.fromkeys([*whole, *overall, *by_dataset]))


def provenance_table(c: Comparison) -> str:
    """Where the numbers come from: the runs' own record, nothing of the machine that reports."""
    a, b = (_provenance(arm) for arm in (c.a, c.b))
    return table(["record", "A", "B"], [(key, a[key], b[key]) for key in a if a[key] is not None or b[key] is not None])


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
        "target": target.id if target else None,
        "note on the target": target.note if target else None,
        "checkpoint (sha256)": checkpoint[:12] if checkpoint else None,
        "evaluations": ", ".join(sorted(m.evaluations)) or None,
        "commit": environment.git_commit[:12] if environment.git_commit else None,
        "versions": versions or None,
        "device": environment.device,
        "threads": environment.threads,
    }
