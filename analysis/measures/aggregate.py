"""Comparison of two runs if at least one has only totals, and what cannot be concluded from it.

Totals (vLLM's benchmark, Prometheus counters, log lines, summaries) have no rows per prompt. A run with rows is reduced
to totals as well, so that both sides are pooled ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.cautions import caution
from analysis.errors import DataError
from analysis.measures.fairness import require_same_target, same_target
from analysis.runlog.load import load
from analysis.runlog.reading import Run

PROTOCOL = "generate"
ALL = "all requests"
CANNOT = (
    "At least one side has only totals, without rows per prompt. Prompts cannot be paired, so there is no interval, no "
    "test and no verdict: a difference may come from different prompts, different output lengths, or chance."
)

NO_RATIO = "no ratio, because the load is not known to be the same"


@dataclass(frozen=True)
class Total:
    """Totals of one subset; None means not known. ``tau``: tokens per step with the bonus token; ``mean_of``: the
    unit it is averaged over, None for the pooled ratio; ``survival``: share of drafts whose first k tokens were
    accepted, k >= 1; ``ttft_s``, ``e2e_s``: median times to the first and to the last token, over successful requests.
    ``settings``: the measurement settings in the log; ``by_place``: only its place in the log identifies it, so it has
    no counterpart in another log. ``drafted``: total draft tokens."""

    subset: str
    tau: float | None
    mean_of: str | None
    steps: int | None
    acceptance: float | None
    survival: tuple[float, ...] | None
    tokens_per_s: float | None
    requests: int | None
    concurrency: int | None
    ttft_s: float | None = None
    e2e_s: float | None = None
    drafted: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    by_place: bool = False

    @property
    def k(self) -> int | None:
        """Draft tokens per step, if the totals are consistent with a constant number."""
        return self.drafted // self.steps if self.drafted and self.steps and self.drafted % self.steps == 0 else None


@dataclass(frozen=True)
class TotalsComparison:
    """``rows``: (subset, total of A, total of B); ``unmatched``: subsets without a counterpart, by side; ``notes``:
    limits of the comparison."""

    name_a: str
    name_b: str
    label_a: str
    label_b: str
    rows: tuple[tuple[str, Total, Total], ...]
    unmatched: tuple[str, ...]
    notes: tuple[str, ...]


def has_totals_alone(run: Run) -> bool:
    """Whether the run holds totals and no evaluated prompt."""
    return run.has("throughput") and not run.has("prompts")


def compare_totals(a: Run, b: Run, *, strict: bool = False) -> TotalsComparison:
    """Totals side by side: by subset if names agree, else overall if each side has one overall total.

    Raises DataError for targets that are known and different, and for runs without a subset in common; under
    ``strict`` also for an unknown target and for a subset without a counterpart.
    """
    require_same_target(a, b, strict=strict)
    sides = [totals_of(run) for run in (a, b)]
    totals = [{t.subset: t for t in side if not t.by_place} for side in sides]
    rows = [(name, totals[0][name], totals[1][name]) for name in totals[0] if name in totals[1]]
    first, second = (
        next(iter(side.values())) if len(all_of_it) == len(side) == 1 else side.get(ALL)
        for side, all_of_it in zip(totals, sides, strict=True)
    )
    if not rows and first and second:
        rows = [(ALL, first, second)]
    matched = {t.subset for _, *pair in rows for t in pair}
    unmatched = tuple(
        f"{side}: {t.subset}"
        for side, side_totals in zip("AB", sides, strict=True)
        for t in side_totals
        if t.subset not in matched
    )
    if not rows:
        by_place = any(t.by_place for side_totals in sides for t in side_totals)
        why = "; totals that are identified only by their place in a file cannot be matched" if by_place else ""
        raise DataError(
            f"{a.address} and {b.address} have no subset in common ({'; '.join(unmatched[:8])}){why}; "
            "measure both under the same load and settings, and record what was set"
        )
    if unmatched and strict:
        raise DataError(f"{a.address} and {b.address}: {unmatched[0]} has no counterpart, which --strict rejects")
    return TotalsComparison(a.name, b.name, a.label, b.label, tuple(rows), unmatched, _notes(a, b, rows, unmatched))


def _notes(a: Run, b: Run, rows: Sequence[tuple[str, Total, Total]], unmatched: Sequence[str]) -> tuple[str, ...]:
    """Limits of the comparison: conditions that differ or are not known, then the caveats of the logs."""
    kinds = {t.mean_of for _, *pair in rows for t in pair if t.tau is not None}
    notes = []
    if len(kinds) > 1:
        notes.append(
            "The two sides report different kinds of mean tokens per step, so their difference is not meaningful."
        )
    for name, x, y in rows:
        if not one_load(x, y):
            notes.append(
                f"{name}: {x.subset} in A ({_concurrency(x)}), {y.subset} in B ({_concurrency(y)}). The requests or "
                "the load may differ."
            )
        notes += [
            caution("differs", what=f"{what} ({name})", a=of_a, b=of_b).text
            for what, of_a, of_b in _settings_that_differ(x, y)
        ]
    if same_target(a.manifest.target, b.manifest.target) is None:
        notes.append(caution("unknown", what="target").text)
    if unmatched:
        notes.append(f"Excluded (no counterpart in the other run): {'; '.join(unmatched)}.")
    notes += [f"{side}: {caveat}" for side, run in (("A", a), ("B", b)) for caveat in run.manifest.caveats]
    return tuple(notes)


def _settings_that_differ(x: Total, y: Total) -> list[tuple[str, str, str]]:
    """(setting, in A, in B) for settings that both logs state and that differ: draft tokens per step, then by name."""
    known = [] if None in (x.k, y.k) else [("draft tokens per step", str(x.k), str(y.k))]
    known += [(name, x.settings[name], y.settings[name]) for name in sorted(x.settings) if name in y.settings]
    return [(name, of_x, of_y) for name, of_x, of_y in known if of_x != of_y]


def totals_of(run: Run) -> list[Total]:
    """Totals of a run: as logged, or computed from its evaluated prompts, overall and by data set."""
    return _logged(run) if has_totals_alone(run) else _pooled(run)


def _logged(run: Run) -> list[Total]:
    named: dict[int, tuple[str, Mapping[str, Any]]] = {
        int(facts["trial"]): (subset, facts)
        for evaluation in run.manifest.evaluations.values()
        for subset, facts in evaluation.datasets.items()
        if isinstance(facts, Mapping) and facts.get("trial") is not None
    }
    totals = []
    times = _medians(run)
    for row in run.read("throughput").to_pylist():
        subset, facts = named.get(row["trial"], (f"trial {row['trial']}", {}))
        drafts, accepted = row["drafts"], row["accepted"]
        tau = 1 + accepted / drafts if drafts and accepted is not None else facts.get("tau_stated")
        at = row["accepted_at"]
        totals.append(
            Total(
                subset=subset,
                tau=tau,
                mean_of=facts.get("mean_of"),
                steps=drafts,
                acceptance=accepted / row["draft_tokens"] if row["draft_tokens"] and accepted is not None else None,
                survival=tuple(n / drafts for n in at) if at and drafts else None,
                tokens_per_s=row["tokens_per_s"],
                requests=row["requests"],
                concurrency=row["concurrency"],
                drafted=row["draft_tokens"],
                settings=facts.get("settings") or {},
                by_place=bool(facts.get("by_place")),
                **times.get(row["trial"], {}),
            )
        )
    return totals


def _medians(run: Run) -> dict[int, dict[str, float | None]]:
    """By trial: the median times of its requests."""
    if not run.has("requests"):
        return {}
    rows = run.read("requests", ["trial", "status", "ttft_s", "e2e_s"]).to_pandas()
    medians = rows[rows["status"] == "ok"].groupby("trial")[["ttft_s", "e2e_s"]].median()
    return {int(str(trial)): {k: None if pd.isna(v) else float(v) for k, v in row.items()}
            for trial, row in medians.to_dict("index").items()}  # fmt: skip


def _pooled(run: Run) -> list[Total]:
    prompts = load(run, PROTOCOL).prompts
    prompts = prompts[prompts["problem"].isna()]
    groups = [(ALL, prompts), *((str(name), rows) for name, rows in prompts.groupby("dataset"))]
    return [_of_rows(name, rows) for name, rows in groups if len(rows)]


def _of_rows(name: str, rows: pd.DataFrame) -> Total:
    steps = int(rows["steps"].sum())
    tau = float(rows["tokens"].sum()) / steps
    return Total(name, tau, None, steps, None, None, None, len(rows), None)


def one_load(a: Total, b: Total) -> bool:
    """Whether both may have been measured under the same load; rates under different loads do not compare arms."""
    return a.subset == b.subset and (a.concurrency == b.concurrency or None in (a.concurrency, b.concurrency))


def _concurrency(t: Total) -> str:
    return "concurrency not stated" if t.concurrency is None else f"{t.concurrency:,} at a time"
