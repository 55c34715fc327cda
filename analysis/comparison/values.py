"""Comparison of two arms with one number per prompt, treated like any other metric and named by the user.

Whole numbers go through the exact methods, others through the cluster-robust t (:mod:`analysis.stats.inference`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import fsspec
import numpy as np
import pandas as pd

from analysis.cautions import Caution, caution
from analysis.comparison.question import margin_of, require_coverage
from analysis.display import Shown
from analysis.errors import UsageError
from analysis.importers.values import Values
from analysis.keys import natural
from analysis.measures.missing import Bounds, Missing, bounds, missing
from analysis.measures.missing import cautions_of as missing_cautions
from analysis.runlog.load import NO_VALUE, Evaluated
from analysis.runlog.manifest import Manifest
from analysis.runlog.pairing import Pairs, pair
from analysis.runlog.reading import Run
from analysis.runlog.step_counts import Steps
from analysis.stats.datasets import (
    Heterogeneity,
    Interaction,
    balanced_mean,
    disagreement,
    heterogeneity,
    interactions,
)
from analysis.stats.estimate import Estimate, of_pairs
from analysis.stats.families import adjust
from analysis.wording import Estimand, Verdict

PROTOCOL = "values"
Direction = Literal["better", "worse"]
#: Direction of known metrics, if the user does not state one.
_KNOWN: Mapping[str, Direction] = {
    **dict.fromkeys(
        ["accepted_length", "acceptance_length", "tau", "tokens_per_step", "tokens_per_s", "tokens_per_second",
         "throughput", "speedup", "acceptance_rate"], "better"
    ),
    **dict.fromkeys(
        ["latency", "latency_s", "latency_ms", "seconds", "e2e_s", "ttft_s", "ttft_ms", "tpot_ms", "itl_ms", "loss"],
        "worse",
    ),
}  # fmt: skip
_FLIPPED = {Verdict.A_BETTER: Verdict.B_BETTER, Verdict.B_BETTER: Verdict.A_BETTER}


@dataclass(frozen=True, eq=False, repr=False)
class ValueComparison(Shown):
    """The comparison of two arms by one number per prompt, B against A, over the prompts that both have.

    ``higher_is``: whether more of the metric is better or worse; verdicts follow it, differences are B - A as they are.
    ``others``: the metric with data sets weighing the same, where there are several. ``by_dataset``: a family adjusted
    by Holm. ``missing``, ``full_set``: of prompts without a pair (:mod:`analysis.measures.missing`).
    """

    name_a: str
    name_b: str
    label_a: str
    label_b: str
    estimand: Estimand
    higher_is: Direction
    margin: float | None
    overall: Estimate
    others: tuple[Estimate, ...]
    by_dataset: Mapping[str, Estimate]
    heterogeneity: Heterogeneity | None
    interactions: tuple[Interaction, ...]
    pairs: Pairs
    missing: tuple[Missing, ...]
    full_set: Bounds | None
    cautions: tuple[Caution, ...]

    protocol = PROTOCOL

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The headline, the other estimands, then the data sets."""
        return (self.overall, *self.others, *self.by_dataset.values())

    def to_frame(self) -> pd.DataFrame:
        """One row per estimate."""
        names = ["subset", "method", "mean_a", "mean_b", "estimate", "lo", "hi", "p", "p_adjusted"]
        names += ["n_pairs", "n_clusters"]
        rows = [{"estimand": e.estimand.key, **{n: getattr(e, n) for n in names}} for e in self.estimates]
        return pd.DataFrame(rows).assign(verdict=[str(e.verdict) for e in self.estimates])


def direction_of(value: str, higher_is: Direction | None) -> Direction:
    """Whether more of the metric is better or worse. Raises UsageError if neither the user nor its name states it."""
    found = higher_is or _KNOWN.get(value.lower())
    if found is None:
        raise UsageError(
            f"it is not known whether more of '{value}' is better; state --higher-is better or --higher-is worse"
        )
    return found


def compare_values(
    a: Values,
    b: Values,
    value: str,
    *,
    unit: str | None = None,
    higher_is: Direction | None = None,
    labels: Sequence[str | None] = (None, None),
    margin: float | None = None,
    datasets: Sequence[str] | None = None,
    min_coverage: float = 0.95,
    strict: bool = False,
) -> ValueComparison:
    """Compare two arms by the value ``value`` of their prompts. Raises UsageError for invalid options, DataError
    as :func:`analysis.runlog.pairing.pair` does, and for tables without ids that differ in length."""
    margin = margin_of(margin)
    require_coverage(min_coverage)
    direction = direction_of(value, higher_is)
    if a.by_order != b.by_order:
        raise UsageError(
            f"{(a if a.by_order else b).address}: the column of prompt ids is missing, which the other table has"
        )
    if a.by_order and len(a.rows) != len(b.rows):
        raise UsageError(
            f"{a.address} and {b.address} have no prompt ids, and {len(a.rows)} against {len(b.rows)} rows: "
            "rows cannot be paired by order; add a column prompt_id"
        )
    estimand = Estimand(value, value, f"the column '{value}' of each prompt, averaged over prompts", unit or "")
    first, second = (_picked(_evaluated(arm), datasets) for arm in (a, b))
    pairs = pair(first, second, min_coverage=min_coverage, strict=strict)
    names = sorted({*pairs.frame["dataset"].unique(), *pairs.lost["dataset"].unique()}, key=natural)
    overall = of_pairs(pairs.frame, estimand, margin=margin)
    by_dataset = adjust([of_pairs(pairs.frame, estimand, name, margin) for name in names])
    balanced = balanced_mean(pairs.frame, estimand, margin)
    absent = missing(pairs)
    least, most = _range(pairs)
    full = bounds(pairs, estimand, most, least=least)
    cautions = [caution("values-by-order")] if a.by_order else []
    cautions += missing_cautions(absent, full, overall.estimate)
    cautions += disagreement(overall, balanced, dict(zip(names, by_dataset, strict=True)))
    cautions.append(caution("values-alone"))
    if lost := len(pairs.lost):
        counts = pairs.lost["reason"].value_counts().sort_index()
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
        cautions.insert(0, caution("pairs-lost", n=lost, total=lost + len(pairs.frame), reasons=reasons))
    return ValueComparison(
        name_a=a.name,
        name_b=b.name,
        label_a=labels[0] or a.name,
        label_b=labels[1] or b.name,
        estimand=estimand,
        higher_is=direction,
        margin=margin,
        overall=_judged(overall, direction),
        others=tuple(_judged(e, direction) for e in (balanced,) if e is not None),
        by_dataset={name: _judged(e, direction) for name, e in zip(names, by_dataset, strict=True)},
        heterogeneity=heterogeneity(pairs.frame, dict(zip(names, by_dataset, strict=True))),
        interactions=interactions(pairs.frame, estimand),
        pairs=pairs,
        missing=absent,
        full_set=full,
        cautions=tuple(cautions),
    )


def _judged(e: Estimate, direction: Direction) -> Estimate:
    return e if direction == "better" else replace(e, verdict=_FLIPPED.get(e.verdict, e.verdict))


def _picked(evaluated: Evaluated, datasets: Sequence[str] | None) -> Evaluated:
    if not datasets:
        return evaluated
    known = set(evaluated.prompts["dataset"])
    if unknown := sorted(set(datasets) - known):
        raise UsageError(
            f"{evaluated.run.address}: unknown data set {', '.join(unknown)} (available: {', '.join(sorted(known))})"
        )
    return replace(evaluated, prompts=evaluated.prompts[evaluated.prompts["dataset"].isin(datasets)])


def _evaluated(arm: Values) -> Evaluated:
    """The values as rows of prompts with one step each, so that the mean over prompts is the metric."""
    rows, n = arm.rows, len(arm.rows)
    nothing = np.zeros((n, 0), np.uint16)
    ones = np.ones(n, np.int64)
    prompts = rows[["prompt_id", "turn", "sample", "dataset", "cluster_id"]].assign(
        protocol=PROTOCOL, category=None, study_role=None, seen=None, repetition=np.nan, row=np.arange(n), steps=ones,
        tokens=rows["value"], problem=None,
    )  # fmt: skip
    prompts.loc[prompts["tokens"].isna(), "problem"] = NO_VALUE
    run = Run(arm.address, Manifest(name=arm.name, created_by="a table of values"), fsspec.filesystem("file"), arm.name)
    return Evaluated(run, PROTOCOL, prompts, Steps(ones, ones, ones, nothing, nothing, nothing, nothing))


def _range(pairs: Pairs) -> tuple[float, float]:
    """The smallest and the largest value in either arm."""
    seen = [f[f"tokens_{side}"].dropna() for f in (pairs.frame, pairs.lost) for side in "ab"]
    values = np.concatenate([column.to_numpy(dtype=float) for column in seen])
    return float(values.min()), float(values.max())
