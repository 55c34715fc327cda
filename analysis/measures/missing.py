"""Prompts without a pair: do they differ from those with a pair, and how much could they change the result?

A run may lack its hardest prompts, since those time out. The arm that has them tells how they differ from the kept
ones, and bounds what the comparison over all prompts could have been (Manski 1990, American Economic Review 80).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.cautions import Caution, caution
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.stats.cluster import Partition, partition
from analysis.stats.estimate import Estimate
from analysis.stats.method import ALPHA, LEVEL
from analysis.stats.strata import combine, stratum
from analysis.wording import BALANCED, TAU_POOLED, TAU_PROMPTS, Estimand, equals_p, interval, number, signed


@dataclass(frozen=True)
class Missing:
    """Values of one arm (tokens per step of a prompt) on prompts without a pair, beside those with one.

    ``difference`` = ``mean_lost`` - ``mean_kept``, with a 95% interval and a two-sided p by Welch's t over clusters, of
    which ``n_effective`` are effective (:func:`analysis.stats.strata.combine`); None where either side has fewer than
    two clusters or no spread.
    """

    side: str
    lost: int
    kept: int
    mean_lost: float
    mean_kept: float
    difference: float
    lo: float | None
    hi: float | None
    p: float | None
    n_effective: float | None

    @property
    def differs(self) -> bool:
        """Whether the lost prompts differ significantly from the kept ones."""
        return self.p is not None and self.p < ALPHA


@dataclass(frozen=True)
class Bounds:
    """Least and largest difference, B - A, over all prompts that an arm has a value for, if the other arm's unknown
    values lie between ``least`` and ``most``. ``filled``: prompts with one value; ``unknown``: prompts without any,
    excluded."""

    lo: float
    hi: float
    least: float
    most: float
    filled: int
    unknown: int


def missing(pairs: Pairs) -> tuple[Missing, ...]:
    """For each arm, its values on prompts that the other arm lacks; empty for an arm without such prompts."""
    found = []
    for side in "ab":
        lost = pairs.lost[pairs.lost[f"tokens_{side}"].notna()]
        if len(lost) and len(pairs.frame):
            of_lost, of_kept = _values(lost, side), _values(pairs.frame, side)
            ids = pd.concat([lost["cluster_id"], pairs.frame["cluster_id"]], ignore_index=True)
            found.append(_missing(side.upper(), of_lost, of_kept, partition(ids)))
    return tuple(found)


def bounds(
    pairs: Pairs, estimand: Estimand, most: float, subset: str | None = None, least: float = 1.0
) -> Bounds | None:
    """The bounds of the difference in ``estimand`` over the pairs and the lost prompts, of data set ``subset`` if one
    is named; None where nothing was lost or nothing was kept. Unknown values lie between ``least`` (of a step: 1 token)
    and ``most``."""
    lost, kept = (f if subset is None else f[f["dataset"] == subset] for f in (pairs.lost, pairs.frame))
    if lost.empty or kept.empty:
        return None
    has = {side: lost[f"tokens_{side}"].notna() for side in "ab"}
    filled = lost[has["a"] ^ has["b"]]
    lo, hi = (_full(kept, filled, estimand, values) for values in ((most, least), (least, most)))
    return Bounds(lo, hi, least, most, len(filled), int((~has["a"] & ~has["b"]).sum()))


def with_missing(pairs: Pairs, e: Estimate, most: float, least: float = 1.0) -> tuple[float | None, float | None]:
    """The interval of an estimate, widened by all that the prompts without a pair could change; (None, None) if that is
    not known."""
    lost = pairs.lost if e.subset is None else pairs.lost[pairs.lost["dataset"] == e.subset]
    if e.lo is None or e.hi is None or e.estimate is None or lost.empty:
        return e.lo, e.hi
    ends = (_balanced_ends if e.estimand.key.endswith(BALANCED) else _ends)(pairs, e, most, least)
    return (None, None) if ends is None else (e.lo + ends[0] - e.estimate, e.hi + ends[1] - e.estimate)


def _ends(pairs: Pairs, e: Estimate, most: float, least: float) -> tuple[float, float] | None:
    if e.estimand.key == TAU_PROMPTS.key:
        return None
    found = bounds(pairs, e.estimand, most, e.subset, least)
    return None if found is None else (found.lo, found.hi)


def _balanced_ends(pairs: Pairs, e: Estimate, most: float, least: float) -> tuple[float, float] | None:
    """Means of the bounds over data sets; None if a data set has no pair."""
    base = replace(e.estimand, key=e.estimand.key.removesuffix(BALANCED))
    names = sorted({*pairs.frame["dataset"].unique(), *pairs.lost["dataset"].unique()})
    ends = []
    for name in names:
        kept = pairs.frame[pairs.frame["dataset"] == name]
        if kept.empty:
            return None
        found = bounds(pairs, base, most, name, least)
        ends.append((found.lo, found.hi) if found else (_full(kept, pairs.lost[:0], base, (1.0, 1.0)),) * 2)
    return float(np.mean([lo for lo, _ in ends])), float(np.mean([hi for _, hi in ends]))


def most_tokens(a: Run, b: Run, pairs: Pairs) -> float:
    """The maximum tokens of a step: the larger block size, else the largest mean of any prompt."""
    evaluations = [e for run in (a, b) for e in run.manifest.evaluations.values()]
    sizes = [e.block_size for e in evaluations if e.protocol in set(pairs.frame["protocol"].unique())]
    known = [size for size in sizes if size is not None]
    if known and len(known) == len(sizes):
        return float(max(known))
    seen = [_values(rows[rows[f"tokens_{side}"].notna()], side) for rows in (pairs.frame, pairs.lost) for side in "ab"]
    return float(max(values.max() for values in seen if values.size))


def _full(kept: pd.DataFrame, filled: pd.DataFrame, estimand: Estimand, unknown: tuple[float, float]) -> float:
    """The difference over kept and filled prompts, where unknown values of A, and of B, are these."""
    means = []
    for side, other, value in (("a", "b", unknown[0]), ("b", "a", unknown[1])):
        known = filled[f"tokens_{side}"].notna()
        mine, theirs = filled[known], filled[~known]
        if estimand.key == TAU_POOLED.key:  # a lost output is assumed to be as long as the other arm's
            tokens = [kept[f"tokens_{side}"], mine[f"tokens_{side}"], theirs[f"tokens_{other}"]]
            steps = [kept[f"steps_{side}"], mine[f"steps_{side}"], theirs[f"tokens_{other}"].astype(float) / value]
            means.append(sum(float(t.sum()) for t in tokens) / sum(float(s.sum()) for s in steps))
        else:
            values = [_values(kept, side), _values(mine, side), np.full(len(theirs), value)]
            means.append(float(np.concatenate(values).mean()))
    return means[1] - means[0]


def _values(rows: pd.DataFrame, side: str) -> NDArray[np.float64]:
    """(n,) tokens per step of each prompt."""
    return rows[f"tokens_{side}"].to_numpy(dtype=float) / rows[f"steps_{side}"].to_numpy(dtype=float)


def _missing(side: str, lost: NDArray[Any], kept: NDArray[Any], clusters: Partition) -> Missing:
    of_lost = np.arange(lost.size + kept.size) < lost.size
    sides = [stratum(values, clusters, rows) for values, rows in ((lost, of_lost), (kept, ~of_lost))]
    found = combine(sides, (1, -1), LEVEL)
    lo, hi, p, effective = (found.lo, found.hi, found.p, found.effective) if found.se else (None,) * 4
    return Missing(side, lost.size, kept.size, float(lost.mean()), float(kept.mean()), found.mean, lo, hi, p, effective)


def cautions_of(found: tuple[Missing, ...], full: Bounds | None, estimate: float | None) -> tuple[Caution, ...]:
    """Cautions about the lost prompts."""
    told = [
        caution("missing-differs", arm=m.side, n=m.lost, lost=number(m.mean_lost), kept=number(m.mean_kept),
                difference=signed(m.difference), p=equals_p(m.p))
        for m in found if m.differs
    ]  # fmt: skip
    if full is not None and estimate is not None:
        told.append(
            caution(
                "missing-bounds",
                n=full.filled,
                bounds=interval(full.lo, full.hi),
                least=f"{full.least:g}",
                most=f"{full.most:g}",
                seen=signed(estimate),
            )
        )
    return tuple(told)
