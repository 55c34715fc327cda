"""Several runs over the prompts that they have in common."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.runlog.pairing import Pairs
from analysis.runlog.schema import PAIR_KEY

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
