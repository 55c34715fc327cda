"""Several arms against each other: a test of every pair, letters that summarise the tests, and bootstrap ranks.

All arms are compared over the prompts that they have in common. The differences of all pairs are one family,
adjusted by Holm. Letters (compact letter display): two arms that share a letter are not significantly different.
Ranks: how often each arm takes each place in a bootstrap of prompt clusters; ties share places.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.stats.cluster import Partition, partition
from analysis.stats.estimate import Estimate, cluster_column, of_pairs
from analysis.stats.families import adjust
from analysis.wording import TAU_POOLED, Estimand, Verdict

#: Number of bootstrap draws: WEIGHTS cluster weights in total, within these bounds.
WEIGHTS, FEWEST_DRAWS, MOST_DRAWS = 10**8, 500, 10_000
_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class RankedPair:
    """The estimate of ``first`` - ``second``, positions in :attr:`Ranking.arms`, adjusted within all pairs."""

    first: int
    second: int
    estimate: Estimate

    @property
    def differs(self) -> bool:
        """Whether one of the two is significantly better."""
        return self.estimate.verdict in (Verdict.A_BETTER, Verdict.B_BETTER)


@dataclass(frozen=True)
class Ranking:
    """Arms from the largest mean to the smallest.

    ``means``: (k,) of the headline's metric over the common prompts; ``letters``: per arm; ``pairs``: all k (k - 1)/2;
    ``ranks``: (k, k) probability that an arm has a place, first place first; ``draws`` of the bootstrap, 0 with fewer
    than two clusters (``ranks`` is then empty).
    """

    arms: tuple[str, ...]
    means: tuple[float, ...]
    letters: tuple[str, ...]
    pairs: tuple[RankedPair, ...]
    ranks: tuple[tuple[float, ...], ...]
    draws: int
    prompts: int
    clusters: int


def rank(arms: Sequence[str], frames: Sequence[pd.DataFrame], estimand: Estimand) -> Ranking:
    """Rank ``arms``, k >= 2 labels, by ``frames``: one per arm with columns tokens, steps, cluster_id, all over the
    same prompts in the same order."""
    clusters = partition(frames[0][cluster_column(frames[0])])
    sums = np.stack([_sums(frame, estimand, clusters) for frame in frames])
    means = sums[:, 0].sum(axis=1) / sums[:, 1].sum(axis=1)
    order = sorted(range(len(arms)), key=lambda i: (-means[i], arms[i]))
    frames, sums = [frames[i] for i in order], sums[order]
    drawn = list(combinations(range(len(arms)), 2))
    adjusted = adjust([of_pairs(_joined(frames[j], frames[i]), estimand) for i, j in drawn])
    pairs = tuple(RankedPair(i, j, e) for (i, j), e in zip(drawn, adjusted, strict=True))
    ranks, draws = _ranks(sums) if clusters.count > 1 else ((), 0)
    return Ranking(
        arms=tuple(arms[i] for i in order),
        means=tuple(float(means[i]) for i in order),
        letters=letters(len(arms), [(p.first, p.second) for p in pairs if p.differs]),
        pairs=pairs,
        ranks=ranks,
        draws=draws,
        prompts=len(frames[0]),
        clusters=clusters.count,
    )


def letters(arms: int, different: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """Compact letter display by insertion and absorption (Piepho 2004, J. Comput. Graph. Stat. 13:456): arms share a
    letter exactly if their pair is not in ``different``. Arms and letters are both in order."""
    columns = [frozenset(range(arms))]
    for pair in different:
        split = [part for c in columns for part in ([c - {i} for i in pair] if set(pair) <= c else [c])]
        columns = [c for c in dict.fromkeys(split) if not any(c < other for other in split)]
    columns.sort(key=sorted)
    return tuple("".join(_letter(n) for n, column in enumerate(columns) if arm in column) for arm in range(arms))


def _letter(number: int) -> str:
    """a to z, then a1 to z1 and so on."""
    again, place = divmod(number, 26)
    return string.ascii_lowercase[place] + (str(again) if again else "")


def _sums(frame: pd.DataFrame, estimand: Estimand, clusters: Partition) -> NDArray[np.float64]:
    """(2, C): numerator and denominator of the metric, summed per cluster."""
    tokens, steps = (frame[name].to_numpy(dtype=np.float64) for name in ("tokens", "steps"))
    pooled = estimand is TAU_POOLED
    return np.stack([clusters.sums(tokens if pooled else tokens / steps), clusters.sums(steps if pooled else steps**0)])


def _joined(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    return a.assign(tokens_a=a["tokens"], steps_a=a["steps"], tokens_b=b["tokens"], steps_b=b["steps"])


def _ranks(sums: NDArray[np.float64]) -> tuple[tuple[tuple[float, ...], ...], int]:
    """Shares of places over draws of clusters with replacement; ``sums``: (k, 2, C). The generator is seeded by the
    data, so that the same inputs give the same shares."""
    arms, _, count = sums.shape
    draws = int(np.clip(WEIGHTS // count, FEWEST_DRAWS, MOST_DRAWS))
    seed = int.from_bytes(hashlib.sha256(np.ascontiguousarray(sums).tobytes()).digest()[:8], "big")
    rng, shares = np.random.default_rng(seed), np.zeros((arms, arms))
    for start in range(0, draws, step := max(1, _AT_ONCE // count)):
        here = min(step, draws - start)
        chosen = rng.integers(0, count, (here, count)) + count * np.arange(here)[:, None]
        weights = np.bincount(chosen.ravel(), minlength=here * count).reshape(here, count)
        of_arms = (weights @ sums[:, 0].T) / (weights @ sums[:, 1].T)
        above = (of_arms[:, None, :] > of_arms[:, :, None]).sum(axis=2)  # arms that are better, (draws, k)
        equal = (of_arms[:, None, :] == of_arms[:, :, None]).sum(axis=2)  # with itself
        for place in range(arms):
            shares[:, place] += (((above <= place) & (place < above + equal)) / equal).sum(axis=0)
    return tuple(tuple(float(x) for x in row / draws) for row in shares), draws
