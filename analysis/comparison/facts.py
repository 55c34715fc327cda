"""Facts about the arms and data sets of a comparison, beside the estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.measures.gates import Gates
from analysis.measures.history import History
from analysis.measures.positions import Positions
from analysis.runlog.addresses import find_runs_folder
from analysis.runlog.manifest import Manifest
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.runlog.schema import DEGENERATE


@dataclass(frozen=True)
class ArmSummary:
    """One arm of a comparison. ``gates``, ``history``: None if the run has none; ``gates`` also if they are
    unusable."""

    side: str  # "A" or "B"
    name: str  # the run's folder
    label: str  # the arm's name in reports
    manifest: Manifest
    positions: Positions
    gates: Gates | None
    history: History | None
    reference: str  # the run as a command argument


@dataclass(frozen=True)
class DatasetFacts:
    """Facts about a data set. Coverage: share of the target's tokens that the arm's draft vocabulary contains;
    degenerate: share of outputs that are mostly repetition; None if not logged."""

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


def reference_of(run: Run) -> str:
    """The run as a command argument: its name if it is under the nearest ``runs/``, else its address."""
    runs = find_runs_folder()
    return run.name if runs is not None and Path(run.address).resolve() == (runs / run.name).resolve() else run.address


def labels(a: Run, b: Run) -> tuple[str, str]:
    """Distinct names of the arms: labels, else folder names, else the parts of their paths that differ, else labels
    with A and B appended."""
    paths = tuple(
        "/".join(part for part in Path(x.address).parts if part not in Path(y.address).parts)
        for x, y in ((a, b), (b, a))
    )
    for pair_of in ((a.label, b.label), (a.name, b.name), *((paths,) if all(paths) else ())):
        if pair_of[0] != pair_of[1]:
            return pair_of
    return f"{a.label} (A)", f"{b.label} (B)"


def dataset_facts(name: str, pairs: Pairs, a: Manifest, b: Manifest, protocol: str) -> DatasetFacts:
    """Facts from the paired prompts and the manifests."""
    used = ["cluster", "study_role", "seen", "repetition_a", "repetition_b"]
    rows = pairs.frame.loc[pairs.frame["dataset"] == name, used]
    recorded = [_recorded(manifest, name, protocol) for manifest in (a, b)]
    caveats = dict.fromkeys(r["caveat"] for r in recorded if r.get("caveat"))
    return DatasetFacts(
        name=name,
        pairs=len(rows),
        clusters=rows["cluster"].nunique(),
        role=_values(rows["study_role"]),
        seen=_values(rows["seen"]),
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


def _values(column: pd.Series) -> str | None:
    return ", ".join(sorted(column.dropna().unique())) or None


def _degenerate(repetition: pd.Series) -> float | None:
    known = repetition.dropna()
    return float((known > DEGENERATE).mean()) if len(known) else None
