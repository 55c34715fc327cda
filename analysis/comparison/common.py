"""Several runs over the prompts that they have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.comparison.question import headline_of
from analysis.errors import DataError
from analysis.measures.fairness import require_same_target
from analysis.runlog.identities import load_sound
from analysis.runlog.pairing import Pairs, pair
from analysis.runlog.reading import Run
from analysis.runlog.schema import PAIR_KEY
from analysis.stats.cluster import FloatArray, without_rounding
from analysis.stats.estimate import values_of, weights_of
from analysis.wording import Estimand

_OF_THE_PROMPT = ("dataset", "cluster_id", "seen")


def common_prompts(pairs: Sequence[Pairs]) -> list[pd.DataFrame]:
    """A frame per run, the first run of all ``pairs`` then the second of each: PAIR_KEY, dataset, cluster_id, seen,
    tokens, steps, over the prompts of all pairs in key order."""
    key = list(PAIR_KEY)
    keys = pairs[0].frame[key]
    for other in pairs[1:]:
        keys = keys.merge(other.frame[key], on=key)
    columns = [*key, *_OF_THE_PROMPT]
    first = pairs[0].frame[[*columns, "tokens_a", "steps_a"]]
    others = [p.frame[[*columns, "tokens_b", "steps_b"]] for p in pairs]
    named = [frame.set_axis([*columns, "tokens", "steps"], axis=1) for frame in (first, *others)]
    return [keys.merge(frame, on=key).sort_values(key, ignore_index=True) for frame in named]


def side_by_side(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Frames of :func:`common_prompts` as pairs, with tokens_a, steps_a, tokens_b, steps_b."""
    return a.assign(tokens_a=a["tokens"], steps_a=a["steps"], tokens_b=b["tokens"], steps_b=b["steps"])


@dataclass(frozen=True, eq=False)
class Common:
    """Several runs over the prompts that all have: ``frame`` as of :func:`common_prompts`; ``values`` by the address of
    a run, (n,), whose means are its metric; ``counts`` likewise, its tokens and steps (n, 2); ``weights``, (n,) of mean
    1, of all runs together (None: all the same)."""

    protocol: str
    estimand: Estimand
    frame: pd.DataFrame
    values: Mapping[str, FloatArray]
    counts: Mapping[str, NDArray[Any]]
    weights: FloatArray | None

    def tied(self, contrast: Mapping[str, float]) -> NDArray[np.bool_]:
        """Prompts without a difference in the sum over runs, each times its factor in ``contrast``, (n,): the factors
        of equal counts cancel (of two runs, their counts are equal), or with one step each the tokens themselves do.
        By counts, because linearised ratios differ even there."""
        factors = np.array(list(contrast.values()), dtype=float)
        counts = np.stack([self.counts[address] for address in contrast])
        if (counts[..., 1] == 1).all():
            terms = factors[:, None] * counts[..., 0]
            return np.asarray(without_rounding(terms.sum(axis=0), terms) == 0)
        left = [factors @ (counts == one).all(axis=2) for one in counts]
        return np.all([without_rounding(rest, factors) == 0 for rest in left], axis=0)


def common_values(runs: Sequence[Run], protocol: str | None, metric: str | None) -> Common:
    """Raises DataError for runs of different targets, without a common protocol, or without a common prompt."""
    first, *others = runs
    for other in others:
        require_same_target(first, other, strict=False)
    headlines = {headline_of(first, other, protocol, metric) for other in others}
    if len(headlines) > 1:
        names = ", ".join(sorted(name for name, _ in headlines))
        raise DataError(f"the runs have different protocols in common ({names}); choose one with --protocol")
    ((chosen, estimand),) = headlines
    evaluated = [load_sound(run, chosen) for run in runs]
    frames = common_prompts([pair(evaluated[0], other) for other in evaluated[1:]])
    if frames[0].empty:
        raise DataError("no prompt has a value in every run")
    sides = [side_by_side(frame, frame) for frame in frames]
    values = {run.address: values_of(side, estimand)[1].astype(float) for run, side in zip(runs, sides, strict=True)}
    of_runs = [weights_of(side, estimand) for side in sides]
    weights = None if None in of_runs else np.mean([w[1] for w in of_runs if w], axis=0)
    counts = {run.address: frame[["tokens", "steps"]].to_numpy() for run, frame in zip(runs, frames, strict=True)}
    return Common(chosen, estimand, frames[0], values, counts, weights)
