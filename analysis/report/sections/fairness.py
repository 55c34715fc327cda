"""Where the numbers come from: training, conditions that should be equal, excluded prompts, provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis.comparison.facts import ArmSummary
from analysis.comparison.pairwise import Comparison
from analysis.measures.missing import Missing
from analysis.report.markdown import table
from analysis.report.sections.datasets import grouped
from analysis.runlog.manifest import Manifest
from analysis.wording import interval, number, p_value, signed

LOST_SHOWN = 20


def training_table(c: Comparison) -> str | None:
    """The state of each training at its end."""
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
    """Differences between the drafters by design."""
    return table(["setting or count", "A", "B"], [(d.what, d.a, d.b) for d in c.differences])


def fairness_table(c: Comparison) -> str | None:
    """Conditions that should be equal in both arms, as far as a run records them."""
    rows = [(r.label, r.a, r.b, r.status) for r in c.fairness if r.a is not None or r.b is not None]
    return table(["condition", "A", "B", "equal"], rows) if rows else None


def not_recorded(c: Comparison) -> str | None:
    """Conditions that should be equal and that neither run records."""
    names = [r.label for r in c.fairness if r.a is None and r.b is None]
    return f"Not recorded in either run: {', '.join(names)}." if names else None


def lost_table(c: Comparison) -> str | None:
    """Number of prompts without a pair, by data set and reason."""
    if c.pairs.lost.empty:
        return None
    counts = c.pairs.lost.groupby(["dataset", "reason"]).size()
    rows = [(dataset, reason, f"{count:,}") for (dataset, reason), count in counts.items()]
    return table(["data set", "reason", "prompts"], rows, numeric=1)


def missing_table(c: Comparison) -> str | None:
    """Values on prompts without a pair, beside those on prompts with a pair."""
    return missing_rows(c.missing)


def missing_rows(missing: Sequence[Missing]) -> str | None:
    """One row per arm that has values on prompts without a pair."""
    if not missing:
        return None
    rows = [
        (m.side, f"{m.lost:,}", number(m.mean_lost), f"{m.kept:,}", number(m.mean_kept), signed(m.difference),
         interval(m.lo, m.hi), p_value(m.p), number(m.n_effective, 1))
        for m in missing
    ]  # fmt: skip
    headers = ["arm", "without a pair", "mean", "with a pair", "mean", "difference", "95% interval", "p",
               "effective"]  # fmt: skip
    return table(headers, rows, numeric=8)


def provenance_table(c: Comparison) -> str:
    """Provenance of the numbers, from the runs' own records; nothing about the machine that writes the report."""
    a, b = (_provenance(arm) for arm in (c.a, c.b))
    return table(["record", "A", "B"], [(key, a[key], b[key]) for key in a if a[key] is not None or b[key] is not None])


def run_caveats(c: Comparison) -> list[str]:
    """The caveats recorded by the runs, each once."""
    return grouped(((arm.side, caveat) for arm in (c.a, c.b) for caveat in arm.manifest.caveats), " and ")


def _provenance(arm: ArmSummary) -> Mapping[str, object]:
    m: Manifest = arm.manifest
    environment, target = m.environment, m.target
    versions = ", ".join(f"{name} {version}" for name, version in sorted(environment.versions.items()))
    checkpoint = m.drafter.checkpoint_sha256 if m.drafter else None
    return {
        "run": arm.name,
        "status": m.status,
        "made by": m.created_by,
        "imported from": "; ".join(f"{s.path} ({s.bytes:,} bytes, sha256 {s.sha256[:12]})" for s in m.sources or ())
        or None,
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
