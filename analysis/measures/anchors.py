"""Acceptance at every position of an answer, not only where decoding takes a step (protocol ``replay``).

The walk of decoding visits few positions, and which ones it visits depends on the drafter. The same drafts at all
positions are several times as many observations, at the same places of the same answers in both arms, so acceptance
can be read against the place in the answer and against how sure the target is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.runlog.load import Evaluated
from analysis.runlog.pairing import Pairs
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import cluster_t, partition
from analysis.stats.estimate import Estimate, joint, of_values, own_mean
from analysis.stats.method import LEVEL
from analysis.stats.ratio import linearise, weights
from analysis.wording import ACCEPTED_EVERYWHERE

#: Lower edges of the classes: tokens of the answer before the anchor, and nats of the target's next token.
PLACES = (0, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ENTROPIES = (0.0, 0.01, 0.1, 0.3, 1.0, 2.0)
CURVE = ("class", "n", "mean_a", "lo_a", "hi_a", "mean_b", "lo_b", "hi_b", "difference", "lo", "hi", "n_effective")
_KEY = [name for name in PAIR_KEY if name != "protocol"]


@dataclass(frozen=True, eq=False)
class Anchors:
    """Mean accepted length (bonus token counted) over all positions of the paired answers.

    ``overall``: B - A, each position weighing the same. ``precision``: how many times as many answers tau would need
    for the same standard error relative to A's mean; None where an error is 0 or unknown. ``by_place`` and
    ``by_entropy``: a row per class with columns CURVE, ``n`` positions of A, 95% intervals over prompt clusters,
    ``n_effective`` of the difference.
    """

    overall: Estimate
    precision: float | None
    by_place: pd.DataFrame
    by_entropy: pd.DataFrame


def anchors(a: Evaluated, b: Evaluated, pairs: Pairs, tau: Estimate) -> Anchors | None:
    """What both arms say at every position; None unless both logged them. ``tau``: the headline over the same pairs."""
    if a.protocol != "replay" or not (a.run.has("anchors") and b.run.has("anchors")) or pairs.frame.empty:
        return None
    rows = [_anchors(arm.run, pairs) for arm in (a, b)]
    if any(frame.empty for frame in rows):
        return None
    n = len(pairs.frame)
    clusters = pairs.frame["cluster"]
    totals = [_sums(frame, np.zeros(len(frame), dtype=np.int64), n, 1) for frame in rows]
    (count_a, sum_a), (count_b, sum_b) = ((count[:, 0], total[:, 0]) for count, total in totals)
    overall = of_values(
        linearise(sum_a, count_a),
        linearise(sum_b, count_b),
        (count_a == count_b) & (sum_a == sum_b),
        clusters,
        ACCEPTED_EVERYWHERE,
        weights=(weights(count_a), weights(count_b)),
    )
    return Anchors(
        overall=overall,
        precision=_precision(tau, overall),
        by_place=_curve(rows, "place", PLACES, pairs),
        by_entropy=_curve(rows, "entropy", ENTROPIES, pairs),
    )


def _anchors(run: Run, pairs: Pairs) -> pd.DataFrame:
    """Positions of the paired answers: ``pair`` (row of the pairs), ``place``, ``entropy``, ``length``."""
    table = run.read("anchors", [*PAIR_KEY, "position", "accepted", "entropy"])
    frame = table.filter(pc.equal(table["protocol"], "replay")).drop_columns(["protocol"]).to_pandas()
    numbered = pairs.frame[_KEY].assign(pair=np.arange(len(pairs.frame)))
    found = frame.merge(numbered, on=_KEY, how="inner")
    first = found.groupby("pair")["position"].transform("min")  # the first token of the answer
    return pd.DataFrame(
        {
            "pair": found["pair"],
            "place": found["position"] - first,
            "entropy": found["entropy"],
            "length": found["accepted"] + 1,
        }
    )


def _sums(
    rows: pd.DataFrame, classes: NDArray[np.int64], n: int, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and summed lengths, (n, count) each, by pair and class."""
    cell = rows["pair"].to_numpy() * count + classes
    counts = np.bincount(cell, minlength=n * count).reshape(n, count).astype(float)
    return counts, np.bincount(cell, rows["length"].to_numpy(), n * count).reshape(n, count).astype(float)


def _curve(rows: Sequence[pd.DataFrame], column: str, edges: Sequence[float], pairs: Pairs) -> pd.DataFrame:
    """The columns CURVE, one row per class that both arms have."""
    n = len(pairs.frame)
    of_arms = [
        _sums(frame, np.searchsorted(np.asarray(edges), frame[column], side="right") - 1, n, len(edges))
        for frame in rows
    ]
    clusters = partition(pairs.frame["cluster"])
    found = []
    for k in range(len(edges)):
        (count_a, sum_a), (count_b, sum_b) = ((count[:, k], total[:, k]) for count, total in of_arms)
        some = (count_a > 0) | (count_b > 0)
        if not (count_a.any() and count_b.any()):
            continue
        a, b = linearise(sum_a[some], count_a[some]), linearise(sum_b[some], count_b[some])
        within = clusters.subset(some)
        shares = weights(count_a[some]), weights(count_b[some])
        means = [*own_mean(a, within, shares[0]), *own_mean(b, within, shares[1])]
        difference = cluster_t(b - a, within, LEVEL, joint(shares))
        bounds = (difference.lo, difference.hi, difference.effective) if difference.se else (None,) * 3
        found.append((_label(edges, k, column), int(count_a.sum()), *means, difference.mean, *bounds))
    table = pd.DataFrame(found, columns=list(CURVE))
    return table.astype(dict.fromkeys(CURVE[2:], float))


def _label(edges: Sequence[float], k: int, column: str) -> str:
    """``17-32`` (tokens of the answer, from 1), ``0.1-0.3`` (nats)."""
    last = k + 1 == len(edges)
    if column == "place":
        return f"{edges[k] + 1:g}+" if last else f"{edges[k] + 1:g}-{edges[k + 1]:g}"
    return f"{edges[k]:g}+" if last else f"{edges[k]:g}-{edges[k + 1]:g}"


def _precision(tau: Estimate, everywhere: Estimate) -> float | None:
    if not (tau.se and everywhere.se and tau.mean_a and everywhere.mean_a):
        return None
    return float(((tau.se / tau.mean_a) / (everywhere.se / everywhere.mean_a)) ** 2)
