"""A comparison for machines: ``result.json``, as ``result.schema.json`` describes it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparison.factorial import Factorial
from analysis.comparison.facts import ArmSummary
from analysis.comparison.matrix import Matrix
from analysis.comparison.pairwise import Comparison
from analysis.comparison.scaling import Scaling
from analysis.comparison.seed_study import SeedComparison
from analysis.comparison.values import ValueComparison
from analysis.measures.aggregate import TotalsComparison
from analysis.measures.serving import Serving
from analysis.measures.times_alone import TimesComparison
from analysis.wording import Estimand

RESULT_VERSION = 1


def to_json(comparison: Comparison, *, title: str | None = None, question: str | None = None) -> str:
    """Strict JSON (null for undefined values), floats to 12 significant digits."""
    c = comparison
    result = {
        "kind": "comparison",
        "protocol": c.protocol,
        "declaration": c.declaration,
        "estimands": [dataclasses.asdict(e.estimand) for e in (c.overall, *c.others)],
        "arms": {arm.side.lower(): _arm(arm) for arm in (c.a, c.b)},
        "overall": c.overall,
        "others": c.others,
        "by_dataset": c.by_dataset,
        "by_seen": c.by_seen,
        "heterogeneity": c.heterogeneity,
        "interactions": c.interactions,
        "datasets": c.datasets,
        "position_difference": c.position_difference,
        "speed": c.speed,
        "outputs": c.outputs,
        "throughput": c.throughput,
        "anchors": c.anchors,
        "headroom": c.headroom,
        "explained": c.explained,
        "changes": c.changes,
        "shift": c.shift,
        "sequential": c.sequential,
        "baseline": c.baseline,
        "published": c.published,
        "benchmarks": c.benchmarks,
        "controls": c.controls,
        "gain": c.gain,
        "pairs": {
            "pairs": len(c.pairs.frame),
            "prompts": c.pairs.prompts,
            "evaluated_a": c.pairs.evaluated_a,
            "evaluated_b": c.pairs.evaluated_b,
            "coverage": c.pairs.coverage,
            "lost": c.pairs.lost,
            "missing": c.missing,
            "full_set": c.full_set,
        },
        "fairness": c.fairness,
        "differences": c.differences,
        "cautions": c.cautions,
    }
    return _dump(result, title, question)


def matrix_json(matrix: Matrix, *, title: str | None = None, question: str | None = None) -> str:
    """Several arms against the first; each comparison has its own result.json in its folder."""
    arms = [
        {"name": c.b.name, "label": c.b.label, "overall": overall, "by_dataset": each}
        for c, overall, each in zip(matrix.comparisons, matrix.overall, matrix.by_dataset, strict=True)
    ]
    first = matrix.comparisons[0].a
    result: dict[str, Any] = {"kind": "matrix", "first": {"name": first.name, "label": first.label}, "arms": arms}
    return _dump(result | {"ranking": matrix.ranking}, title, question)


def seeds_json(study: SeedComparison, *, title: str | None = None, question: str | None = None) -> str:
    """Several trainings per arm."""
    return _dump(
        {"kind": "seeds", **{f.name: getattr(study, f.name) for f in dataclasses.fields(study)}}, title, question
    )


def factorial_json(found: Factorial, *, title: str | None = None, question: str | None = None) -> str:
    """A factorial of arms."""
    return _dump({"kind": "factorial", **_without(found)}, title, question)


def scaling_json(found: Scaling) -> str:
    """What scales."""
    return _dump({"kind": "scaling", **_without(found)}, None, None)


def serving_json(found: Serving, *, title: str | None = None, question: str | None = None) -> str:
    """A serving experiment."""
    return _dump({"kind": "serving", **_without(found)}, title, question)


def totals_json(comparison: TotalsComparison) -> str:
    """Runs of which at least one has only totals."""
    rows = [{"subset": subset, "a": of_a, "b": of_b} for subset, of_a, of_b in comparison.rows]
    return _dump({"kind": "totals", **_without(comparison, "rows"), "rows": rows}, None, None)


def times_json(comparison: TimesComparison) -> str:
    """Runs of which at least one has only times of prompts."""
    return _dump({"kind": "times", **_without(comparison)}, None, None)


def values_json(c: ValueComparison) -> str:
    """One number per prompt."""
    pairs = {
        "pairs": len(c.pairs.frame),
        "prompts": c.pairs.prompts,
        "evaluated_a": c.pairs.evaluated_a,
        "evaluated_b": c.pairs.evaluated_b,
        "coverage": c.pairs.coverage,
        "lost": c.pairs.lost,
        "missing": c.missing,
        "full_set": c.full_set,
    }
    left_out = ("pairs", "missing", "full_set", "estimand")
    found = {f.name: getattr(c, f.name) for f in dataclasses.fields(c) if f.name not in left_out}
    return _dump({"kind": "values", "estimand": dataclasses.asdict(c.estimand), "pairs": pairs, **found}, None, None)


def _without(
    comparison: TotalsComparison | TimesComparison | Factorial | Scaling | Serving, *left_out: str
) -> dict[str, Any]:
    return {f.name: getattr(comparison, f.name) for f in dataclasses.fields(comparison) if f.name not in left_out}


def _dump(result: Mapping[str, Any], title: str | None, question: str | None) -> str:
    whole = {"result_version": RESULT_VERSION, "title": title, "question": question, **result}
    return json.dumps(as_json(whole), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _arm(arm: ArmSummary) -> dict[str, Any]:
    return {
        "name": arm.name,
        "label": arm.label,
        "positions": arm.positions,
        "gates": arm.gates.table if arm.gates is not None else None,
    }


def as_json(value: Any) -> Any:
    """Dataclasses, frames, mappings, sequences and numbers as plain JSON values; an estimand as its key."""
    if isinstance(value, Estimand):
        return value.key
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, pd.DataFrame):
        return [as_json(row) for row in value.to_dict("records")]
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return as_json(value.tolist())
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if value is None or value is pd.NA:
        return None
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else None
    return str(value) if isinstance(value, str) else value
