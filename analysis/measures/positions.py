"""Acceptance by draft position: how often the first k drafted tokens survive verification, and where they fail.

No drafter can be accepted at a slot after the stop token or the length limit. Such a block is censored: it counts only
at the slots that it had. Survival is therefore the product-limit estimate (Kaplan and Meier 1958): the product over
slots of the share accepted among the steps that reached the slot. (The share of survivors among blocks with a slot k
would compare different blocks at every k, and could rise with k.) The estimate assumes that censored blocks would have
continued like the others. Acceptance is censored at the last slot: a longer block might have continued.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from analysis.keys import in_order
from analysis.runlog.load import Evaluated
from analysis.runlog.pairing import Pairs
from analysis.runlog.step_counts import Counts, Steps
from analysis.stats.cluster import FloatArray, Partition, cluster_t, partition
from analysis.stats.method import LEVEL
from analysis.stats.ratio import linearise, weights

CURVE = (
    *("k", "survival", "lo", "hi", "at_risk", "n_effective"),
    *("conditional", "conditional_lo", "conditional_hi", "reached", "conditional_n_effective", "missed_vocabulary"),
)
DIFFERENCE = ("k", "difference", "lo", "hi", "n_effective", "df")


@dataclass(frozen=True, eq=False)
class Positions:
    """Acceptance of one arm by draft position, over the paired prompts. ``curve`` has columns CURVE, a row per k:

    * ``survival``: P(accepted >= k), the product of the conditional rates up to k, with its 95% interval ``lo``,
      ``hi``; ``at_risk``: steps whose block had a slot k; ``n_effective``: effective number of clusters, one more than
      its degrees of freedom, NaN without spread between clusters;
    * ``conditional``: P(accepted >= k | accepted >= k - 1), over the ``reached`` steps in which slot k was
      compared, with ``conditional_n_effective``; these steps differ between arms;
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


@dataclass(frozen=True, eq=False)
class _Survival:
    """At one k: ``values`` (n,) whose mean is the product-limit estimate and whose variance is the delta method's, and
    ``variance``, Greenwood's (1926), (n,) by the prompts that contribute it."""

    values: FloatArray
    variance: FloatArray


def positions(a: Evaluated, b: Evaluated, pairs: Pairs) -> tuple[Positions, Positions, pd.DataFrame]:
    """Both arms, and the difference of survivals, B - A: a row per k of ``k``, ``difference``, ``lo``, ``hi``,
    ``n_effective``, the effective number of clusters, and ``df``, the degrees of freedom of its t.

    The error of a survival is the delta method's through the product, clustered as prompts are, CR2 with
    Satterthwaite's degrees of freedom (:func:`analysis.stats.cluster.cluster_t`). A prompt's weight is its share of
    Greenwood's variance, each slot's part divided by steps at risk: its share of the steps where no block is cut. The
    difference is paired by prompt, with a t interval. An arm's own intervals are Wilson's for its effective number of
    steps, p (1 - p) / se^2: unlike mean +- t se they stay inside 0..1 and have a width at 0 and at 1.
    """
    rows = [pairs.frame[f"row_{side}"].to_numpy() for side in "ab"]
    return of_counts((a.counts, b.counts), rows, partition(pairs.frame["cluster"]))


def of_counts(
    counts: Sequence[Steps], rows: Sequence[NDArray[np.int64]], clusters: Partition
) -> tuple[Positions, Positions, pd.DataFrame]:
    """The same from both arms' counts, of which ``rows``, (n,) of each, are the paired prompts."""
    slots = [_slots(*arm) for arm in zip(counts, rows, strict=True)]
    curves: tuple[list[tuple[float, ...]], ...] = ([], [])
    differences = []
    for k, found in enumerate(zip_longest(*map(_survivals, slots)), start=1):
        for curve, of_arm, survival in zip(curves, slots, found, strict=True):
            if survival is not None:
                curve.append((k, *_row(of_arm[k], survival, clusters)))
        if found[0] is not None and found[1] is not None:
            values, variance = found[1].values - found[0].values, found[0].variance + found[1].variance
            mean = cluster_t(values, clusters, LEVEL, _shares(variance))
            lone = min(clusters.subset(of_arm[k].at_risk > 0).count for of_arm in slots) < 2
            bounds = (None, None) if lone else (mean.lo, mean.hi)
            units = (mean.effective, mean.df) if mean.se and not lone else (None, None)
            differences.append((k, mean.mean, *bounds, *units))
    table = pd.DataFrame(differences, columns=list(DIFFERENCE)).astype(dict.fromkeys(DIFFERENCE[2:], float))
    first, second = (Positions(pd.DataFrame(curve, columns=list(CURVE))) for curve in curves)
    return first, second, table


def _slots(counts: Steps, rows: NDArray[np.int64]) -> Mapping[int, _Slots]:
    """Counts of the paired prompts, whose rows in the arm's counts are ``rows``, for k = 1..B-1."""
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


def _survivals(slots: Mapping[int, _Slots]) -> Iterator[_Survival]:
    """For k = 1, 2, ...; NaN after the slot at which every surviving block is censored."""
    survival, deviation, variance = 1.0, np.zeros(1), np.zeros(1)
    for s in slots.values():
        if s.reached.any():
            values, total = linearise(s.survived, s.reached), float(s.reached.sum())
            rate = float(s.survived.sum() / total)
            deviation = rate * deviation + survival * (values - rate)
            # Greenwood's sum, term by term: by steps at risk, not by those that reached the slot, which are an outcome
            own = survival**2 * rate * (1 - rate) / total
            variance = rate**2 * variance + own * s.at_risk / float(s.at_risk.sum())
            survival *= rate
        elif survival > 0:
            survival = np.nan
        yield _Survival(survival + deviation, variance)


def _shares(variance: FloatArray) -> FloatArray | None:
    """(n,) weights of mean 1; None without variance, where no weight is wanted."""
    return weights(variance) if variance.any() else None


def _row(s: _Slots, survival: _Survival, clusters: Partition) -> tuple[float, ...]:
    """The columns CURVE after k."""
    at_risk = clusters.subset(s.at_risk > 0).count
    *survived, effective = _with_interval(survival.values, clusters, at_risk, _shares(survival.variance))
    conditional, missed = (np.nan, np.nan, np.nan, np.nan), np.nan
    if (some := s.reached > 0).any():
        reached, of_steps = clusters.subset(some), s.reached[some]
        conditional = _with_interval(linearise(s.survived[some], of_steps), reached, reached.count, weights(of_steps))
        missed = float(s.missed_vocabulary.sum() / s.reached.sum())
    *rates, of_rates = conditional
    return (*survived, int(s.at_risk.sum()), effective, *rates, int(s.reached.sum()), of_rates, missed)


def _with_interval(
    values: FloatArray, clusters: Partition, at_risk: int, shares: FloatArray | None
) -> tuple[float, float, float, float]:
    """The mean of ``values`` with Wilson's interval and the effective number of clusters; ``at_risk``: the number of
    clusters at risk."""
    mean = cluster_t(values, clusters, LEVEL, shares)
    if np.isnan(mean.mean):
        return np.nan, np.nan, np.nan, np.nan
    p = min(max(mean.mean, 0.0), 1.0)
    if at_risk < 2:  # one cluster leaves everything open
        return p, 0.0, 1.0, np.nan
    # without spread every cluster counts as one observation
    n, df = (p * (1 - p) / mean.se**2, mean.df) if mean.se else (at_risk, at_risk - 1)
    z2 = float(special.stdtrit(df, (1 + LEVEL) / 2)) ** 2
    centre, half = p + z2 / (2 * n), np.sqrt(max(0.0, z2 * (p * (1 - p) / n + z2 / (4 * n * n))))
    lo, hi = max(0.0, (centre - half) / (1 + z2 / n)), min(1.0, (centre + half) / (1 + z2 / n))
    return p, lo, hi, mean.effective if mean.se else np.nan
