"""Acceptance by draft position: how often the first k drafted tokens survive verification, and where they fail.

No drafter can be accepted at a slot after the stop token or the length limit. Such a block is censored: it counts only
at the slots that it had. Survival is therefore the product-limit estimate (Kaplan and Meier 1958): the product over
slots of the share accepted among the steps that reached the slot. (The share of survivors among blocks with a slot k
would compare different blocks at every k, and could rise with k.) The estimate assumes that censored blocks would have
continued like the others. Acceptance is censored at the last slot: a longer block might have continued.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from analysis.keys import in_order
from analysis.runlog.load import Evaluated
from analysis.runlog.pairing import Pairs
from analysis.runlog.step_counts import Counts
from analysis.stats.cluster import FloatArray, Partition, cluster_t, partition
from analysis.stats.method import LEVEL
from analysis.stats.ratio import linearise

CURVE = (
    *("k", "survival", "lo", "hi", "at_risk"),
    *("conditional", "conditional_lo", "conditional_hi", "reached", "missed_vocabulary"),
)
DIFFERENCE = ("k", "difference", "lo", "hi", "n_effective")


@dataclass(frozen=True, eq=False)
class Positions:
    """Acceptance of one arm by draft position, over the paired prompts. ``curve`` has columns CURVE, a row per k:

    * ``survival``: P(accepted >= k), the product of the conditional rates up to k, with its 95% interval ``lo``,
      ``hi``; ``at_risk``: steps whose block had a slot k;
    * ``conditional``: P(accepted >= k | accepted >= k - 1), over the ``reached`` steps in which slot k was
      compared; these steps differ between arms;
    * ``missed_vocabulary``: share of the reached steps in which the drafter's vocabulary lacks the target's token; the
      rest of 1 - conditional are mismatches.
    """

    curve: pd.DataFrame

    @property
    def ceiling(self) -> float | None:
        """Tokens per step that one more slot could add at most: the survival at the last slot; None where it is 0."""
        last = float(self.curve["survival"].iloc[-1])
        return last if last > 0 else None


@dataclass(frozen=True, eq=False)
class _Slots:
    """Per prompt (n,), at one k: steps at risk, survivors, steps that reached it, misses for lack of vocabulary."""

    at_risk: Counts
    survived: Counts
    reached: Counts
    missed_vocabulary: Counts


def positions(a: Evaluated, b: Evaluated, pairs: Pairs) -> tuple[Positions, Positions, pd.DataFrame]:
    """Both arms, and the difference of survivals, B - A: a row per k of ``k``, ``difference``, ``lo``, ``hi`` and
    ``n_effective``, the effective number of clusters.

    The error of a survival is the delta method's through the product, clustered as prompts are: Greenwood's (1926)
    where every prompt is one step and one cluster, but for the factor C / (C - 1). The difference is paired by
    prompt, with a t interval. An arm's own intervals are Wilson's for its effective number of steps,
    p (1 - p) / se^2: unlike mean +- t se they stay inside 0..1 and have a width at 0 and at 1.
    """
    clusters = partition(pairs.frame["cluster"])
    slots = [_slots(arm, pairs.frame[f"row_{side}"].to_numpy()) for arm, side in ((a, "a"), (b, "b"))]
    curves: tuple[list[tuple[float, ...]], ...] = ([], [])
    differences = []
    for k, values in enumerate(zip_longest(*map(_survivals, slots)), start=1):
        for rows, of_arm, survival in zip(curves, slots, values, strict=True):
            if survival is not None:
                rows.append((k, *_row(of_arm[k], survival, of_arm[1].at_risk > 0, clusters)))
        if values[0] is not None and values[1] is not None:
            some = (slots[0][1].at_risk > 0) | (slots[1][1].at_risk > 0)
            mean = cluster_t((values[1] - values[0])[some], clusters.subset(some))
            lone = min(clusters.subset(of_arm[k].at_risk > 0).count for of_arm in slots) < 2
            bounds = (None, None) if lone else (mean.lo, mean.hi)
            differences.append((k, mean.mean, *bounds, mean.effective if mean.se else None))
    table = pd.DataFrame(differences, columns=list(DIFFERENCE)).astype(dict.fromkeys(DIFFERENCE[2:], float))
    first, second = (Positions(pd.DataFrame(rows, columns=list(CURVE))) for rows in curves)
    return first, second, table


def _slots(evaluated: Evaluated, rows: NDArray[np.int64]) -> Mapping[int, _Slots]:
    """Counts of the paired prompts, whose rows in the arm's counts are ``rows``, for k = 1..B-1."""
    counts = evaluated.counts
    slots = counts.at_risk, counts.survived, counts.reached, counts.missed_vocabulary
    which = slice(None) if in_order(rows, len(counts.steps)) else rows
    by_position = {}
    for k in range(1, counts.at_risk.shape[1] + 1):
        by_position[k] = _Slots(*(of_slot[:, k - 1][which] for of_slot in slots))
    while (
        by_position and not by_position[len(by_position)].at_risk.any()
    ):  # slots that occur only in prompts without a pair
        by_position.popitem()
    return by_position


def _survivals(slots: Mapping[int, _Slots]) -> Iterator[FloatArray]:
    """For k = 1, 2, ...: (n,) values whose mean is the product-limit estimate of survival and whose variance is the
    delta method's; NaN after the slot at which every surviving block is censored."""
    survival, deviation = 1.0, np.zeros(1)
    for s in slots.values():
        if s.reached.any():
            values = linearise(s.survived, s.reached)
            rate = float(s.survived.sum() / s.reached.sum())
            deviation = rate * deviation + survival * (values - rate)
            survival *= rate
        elif survival > 0:
            survival = np.nan
        yield survival + deviation


def _row(s: _Slots, survival: FloatArray, all_prompts: NDArray[np.bool_], clusters: Partition) -> tuple[float, ...]:
    """The columns CURVE after k. ``all_prompts``: those with any slot at risk."""
    at_risk = clusters.subset(s.at_risk > 0).count
    survived = _with_interval(survival[all_prompts], clusters.subset(all_prompts), at_risk)
    conditional, missed = (np.nan, np.nan, np.nan), np.nan
    if (some := s.reached > 0).any():
        reached = clusters.subset(some)
        conditional = _with_interval(linearise(s.survived[some], s.reached[some]), reached, reached.count)
        missed = float(s.missed_vocabulary.sum() / s.reached.sum())
    return (*survived, int(s.at_risk.sum()), *conditional, int(s.reached.sum()), missed)


def _with_interval(values: FloatArray, clusters: Partition, at_risk: int) -> tuple[float, float, float]:
    """The mean of ``values`` with Wilson's interval; ``at_risk``: the number of clusters at risk."""
    mean = cluster_t(values, clusters)
    if np.isnan(mean.mean):
        return np.nan, np.nan, np.nan
    p = min(max(mean.mean, 0.0), 1.0)
    if at_risk < 2:  # one cluster leaves everything open
        return p, 0.0, 1.0
    # without spread every cluster counts as one observation
    n = p * (1 - p) / mean.se**2 if mean.se else at_risk
    z2 = float(special.stdtrit(at_risk - 1, (1 + LEVEL) / 2)) ** 2
    centre, half = p + z2 / (2 * n), np.sqrt(max(0.0, z2 * (p * (1 - p) / n + z2 / (4 * n * n))))
    return p, max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))
