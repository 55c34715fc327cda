"""Two runs in, one frozen result out: ``compare_runs(a, b)``. Rendering is elsewhere (report, plots)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from analysis import wording
from analysis.errors import DataError
from analysis.estimate import Estimate, of_integers, of_ratios
from analysis.fairness import (
    ArmDifference,
    FairnessRow,
    cautions_of,
    compare_arms,
    design_differences,
    require_same_target,
)
from analysis.families import adjust
from analysis.gates import Gates, summarise
from analysis.history import History, load_history
from analysis.load import Evaluated, load, protocols
from analysis.manifest import Manifest
from analysis.pair import Pairs, pair
from analysis.positions import survival
from analysis.runlog import Run
from analysis.wording import Caution, Estimand, caution

#: Outputs with more repeated 4-grams than this are counted as degenerate: loops inflate acceptance.
DEGENERATE = 0.5


@dataclass(frozen=True)
class ArmSummary:
    """One arm of a comparison. ``gates``, ``history``: None if the run has none (or, gates, unusable ones)."""

    side: str  # "A" or "B"
    name: str  # the run's folder
    label: str  # how reports call the arm
    manifest: Manifest
    survival: pd.DataFrame
    gates: Gates | None
    history: History | None


@dataclass(frozen=True)
class DatasetFacts:
    """What a data set is, beside its estimate. Coverage: share of the target's tokens that the draft vocabulary of
    the arm holds; degenerate: share of outputs that mostly repeat themselves; None where it was not logged."""

    name: str
    pairs: int
    clusters: int
    role: str | None
    seen: str | None
    coverage_a: float | None
    coverage_b: float | None
    degenerate_a: float | None
    degenerate_b: float | None
    caveats: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """What two runs say about each other, B against A, over the prompts that both have.

    ``overall`` is the headline; ``others`` are further estimands of the same pairs; ``by_dataset`` is the headline's
    estimand per data set, a family adjusted by Holm. ``cautions`` concern the comparison as a whole; each estimate
    carries its own.
    """

    a: ArmSummary
    b: ArmSummary
    protocol: str
    estimand: Estimand
    overall: Estimate
    others: tuple[Estimate, ...]
    by_dataset: Mapping[str, Estimate]
    datasets: tuple[DatasetFacts, ...]
    pairs: Pairs
    fairness: tuple[FairnessRow, ...]
    differences: tuple[ArmDifference, ...]
    cautions: tuple[Caution, ...]

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """Every estimate: the headline, the other estimands, then the data sets."""
        return (self.overall, *self.others, *self.by_dataset.values())

    def to_frame(self) -> pd.DataFrame:
        """One row per estimate; cautions as their codes."""
        names = [field.name for field in fields(Estimate)]
        rows = [{name: getattr(estimate, name) for name in names} for estimate in self.estimates]
        for row in rows:
            row["estimand"] = row["estimand"].key
            row["verdict"] = str(row["verdict"])
            row["cautions"] = ", ".join(c.code for c in row["cautions"])
        return pd.DataFrame(rows, columns=names)


def compare_runs(
    run_a: Run | Path | str,
    run_b: Run | Path | str,
    *,
    protocol: str | None = None,
    min_coverage: float = 0.95,
    strict: bool = False,
    allow_incomplete: bool = False,
) -> Comparison:
    """Compare two runs: is B better than A, by how much, on which data sets.

    A run is a Run, a path, an fsspec address or a name under ``runs/``. ``protocol``: ``generate`` (headline pooled
    tau) or ``prefix`` (headline mean accepted length); by default the first of them that both runs have.

    Raises DataError for runs that cannot be read or compared: unfinished (unless ``allow_incomplete``), targets known
    and different, no common prompts, pairs under ``min_coverage`` of the smaller run; and under ``strict`` also for
    any lost prompt, an unknown target, and unusable gates.
    """
    a, b = (r if isinstance(r, Run) else Run.open(r, allow_incomplete=allow_incomplete) for r in (run_a, run_b))
    require_same_target(a, b, strict=strict)
    protocol = protocol or _common_protocol(a, b)
    evaluated_a, evaluated_b = load(a, protocol), load(b, protocol)
    pairs = pair(evaluated_a, evaluated_b, min_coverage=min_coverage, strict=strict)
    estimand, *further = _ESTIMANDS[protocol]
    names = sorted({*pairs.frame["dataset"], *pairs.lost["dataset"]})
    per_dataset = adjust([_estimate(pairs.frame, estimand, name) for name in names])
    gates_a, gates_b, unusable = _gates(evaluated_a, evaluated_b, strict)
    rows = compare_arms(a, b, protocol)
    label_a, label_b = _labels(a, b)
    return Comparison(
        a=ArmSummary("A", a.name, label_a, a.manifest, *_curves(evaluated_a, pairs, gates_a)),
        b=ArmSummary("B", b.name, label_b, b.manifest, *_curves(evaluated_b, pairs, gates_b)),
        protocol=protocol,
        estimand=estimand,
        overall=_estimate(pairs.frame, estimand),
        others=tuple(_estimate(pairs.frame, other) for other in further),
        by_dataset=dict(zip(names, per_dataset, strict=True)),
        datasets=tuple(_facts(name, pairs, a.manifest, b.manifest, protocol) for name in names),
        pairs=pairs,
        fairness=rows,
        differences=design_differences(a.manifest, b.manifest),
        cautions=(*_unfinished(a, b), *_lost(pairs), *cautions_of(rows), *unusable, caution("one-seed")),
    )


_ESTIMANDS = {
    "generate": (wording.TAU_POOLED, wording.TAU_MEAN),
    "prefix": (wording.ACCEPTED_LENGTH,),
}


def _common_protocol(a: Run, b: Run) -> str:
    in_a, in_b = protocols(a), protocols(b)
    for protocol in _ESTIMANDS:
        if protocol in in_a & in_b:
            return protocol
    raise DataError(
        f"{a.address} and {b.address} were evaluated under no common protocol "
        f"({', '.join(sorted(in_a)) or 'none'}; {', '.join(sorted(in_b)) or 'none'}); evaluate both under one"
    )


def _estimate(frame: pd.DataFrame, estimand: Estimand, dataset: str | None = None) -> Estimate:
    rows = frame if dataset is None else frame[frame["dataset"] == dataset]
    tokens = rows["tokens_a"].to_numpy(), rows["tokens_b"].to_numpy()
    if estimand is wording.ACCEPTED_LENGTH:
        return of_integers(*tokens, rows["cluster_id"], estimand, dataset)
    steps = rows["steps_a"].to_numpy(), rows["steps_b"].to_numpy()
    return of_ratios(tokens, steps, rows["cluster_id"], estimand, dataset)


def _gates(a: Evaluated, b: Evaluated, strict: bool) -> tuple[Gates | None, Gates | None, tuple[Caution, ...]]:
    """Both arms' gates, or, if either is unusable, neither and why."""
    found = summarise(a), summarise(b)
    unusable = tuple(f for f in found if isinstance(f, Caution))
    if unusable and strict:
        raise DataError(f"{unusable[0].text} --strict allows no such run")
    first, second = (None if unusable or isinstance(f, Caution) else f for f in found)
    return first, second, unusable


def _curves(
    evaluated: Evaluated, pairs: Pairs, found: Gates | None
) -> tuple[pd.DataFrame, Gates | None, History | None]:
    return survival(evaluated, pairs), found, load_history(evaluated.run)


def _labels(a: Run, b: Run) -> tuple[str, str]:
    """Names that tell the arms apart: labels, else folder names, else A and B beside them."""
    for pair_of in ((a.label, b.label), (a.name, b.name)):
        if pair_of[0] != pair_of[1]:
            return pair_of
    return f"{a.label} (A)", f"{b.label} (B)"


def _unfinished(*runs: Run) -> tuple[Caution, ...]:
    return tuple(
        caution("unfinished", run=run.name, status=run.manifest.status)
        for run in runs
        if run.manifest.status != "complete"
    )


def _lost(pairs: Pairs) -> tuple[Caution, ...]:
    if pairs.lost.empty:
        return ()
    counts = pairs.lost["reason"].value_counts().sort_index()
    reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    total = len(pairs.frame) + len(pairs.lost)
    return (caution("pairs-lost", n=len(pairs.lost), total=total, reasons=reasons),)


def _facts(name: str, pairs: Pairs, a: Manifest, b: Manifest, protocol: str) -> DatasetFacts:
    rows = pairs.frame[pairs.frame["dataset"] == name]
    recorded = [_recorded(manifest, name, protocol) for manifest in (a, b)]
    caveats = dict.fromkeys(r["caveat"] for r in recorded if r.get("caveat"))
    return DatasetFacts(
        name=name,
        pairs=len(rows),
        clusters=rows["cluster_id"].nunique(),
        role=_only(rows["study_role"]),
        seen=_only(rows["seen"]),
        coverage_a=recorded[0].get("vocabulary_coverage"),
        coverage_b=recorded[1].get("vocabulary_coverage"),
        degenerate_a=_degenerate(rows["repetition_a"]),
        degenerate_b=_degenerate(rows["repetition_b"]),
        caveats=tuple(caveats),
    )


def _recorded(manifest: Manifest, dataset: str, protocol: str) -> Mapping[str, Any]:
    for evaluation in manifest.evaluations.values():
        if evaluation.protocol == protocol and dataset in evaluation.datasets:
            return evaluation.datasets[dataset]
    return {}


def _only(column: pd.Series) -> str | None:
    values = sorted(column.dropna().unique())
    return ", ".join(values) or None


def _degenerate(repetition: pd.Series) -> float | None:
    known = repetition.dropna()
    return float((known > DEGENERATE).mean()) if len(known) else None
