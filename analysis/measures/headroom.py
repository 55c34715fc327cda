"""What a better choice among a drafter's candidates could gain: recall of the right token, and tau of an oracle.

From the ranks of the answer's tokens in each slot's own distribution (protocol ``replay``, table ``anchors``). An
oracle that chooses the right token wherever it is among a slot's K likeliest accepts up to the first slot where it is
not; its tau is that of greedy decoding with these accepted lengths. DFlash2 motivates its path selector by these
numbers. They describe one drafter on these prompts, without intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.runlog.load import Evaluated
from analysis.runlog.pairing import Pairs
from analysis.runlog.schema import PAIR_KEY

#: Numbers of candidates; ranks are logged up to the last.
CANDIDATES = (1, 2, 4, 8, 16)
_BEYOND = np.int8(127)
_KEY = [name for name in PAIR_KEY if name != "protocol"]


@dataclass(frozen=True, eq=False)
class Headroom:
    """Of arm ``side`` over the paired answers. ``oracle``: columns k, tau (pooled); ``recall``: a row per slot, with
    the number of positions ``n`` at which it is eligible and ``recall_k`` for every k of CANDIDATES."""

    side: str
    oracle: pd.DataFrame
    recall: pd.DataFrame


def headroom(side: str, evaluated: Evaluated, pairs: Pairs) -> Headroom | None:
    """None unless the run logged ranks for every position of the paired answers."""
    if evaluated.protocol != "replay" or not evaluated.run.has("anchors") or pairs.frame.empty:
        return None
    table = evaluated.run.read("anchors", [*PAIR_KEY, "position", "ranks"])
    table = table.filter(pc.equal(table["protocol"], "replay"))
    frame = table.select([*_KEY, "position"]).to_pandas()
    numbered = pairs.frame[_KEY].assign(pair=np.arange(len(pairs.frame)))
    frame = frame.assign(row=np.arange(len(frame))).merge(numbered, on=_KEY).sort_values(["pair", "position"])
    found = table["ranks"].take(pa.array(frame["row"].to_numpy()))
    if frame.empty or found.null_count:
        return None
    ranks = _matrix(found)
    starts = np.flatnonzero(np.diff(frame["pair"].to_numpy(), prepend=-1))
    return Headroom(side, _oracle(ranks, starts), _recall(ranks))


def _matrix(ranks: pa.ChunkedArray) -> NDArray[np.int8]:
    """Ranks [n, slots], _BEYOND where a slot is not eligible."""
    array = ranks.combine_chunks()
    lengths = np.diff(array.offsets.to_numpy())
    slots = np.arange(lengths.max(initial=0))
    found = np.full((len(lengths), len(slots)), _BEYOND, dtype=np.int8)
    found[slots < lengths[:, None]] = array.flatten().to_numpy()
    return found


def _oracle(ranks: NDArray[np.int8], starts: NDArray[np.int64]) -> pd.DataFrame:
    """tau of an oracle among k candidates; ``starts``: the first row of every answer, whose positions are in order."""
    ends = np.append(starts[1:], len(ranks))
    taus = []
    for k in CANDIDATES:
        ahead = (1 + (ranks < k).cumprod(axis=1).sum(axis=1)).tolist()
        steps = 0
        for place, end in zip(starts.tolist(), ends.tolist(), strict=True):
            while place < end:
                place += ahead[place]
                steps += 1
        taus.append(len(ranks) / steps)
    return pd.DataFrame({"k": CANDIDATES, "tau": taus})


def _recall(ranks: NDArray[np.int8]) -> pd.DataFrame:
    eligible = (ranks != _BEYOND).sum(axis=0)
    shares = {f"recall_{k}": (ranks < k).sum(axis=0) / np.maximum(eligible, 1) for k in CANDIDATES}
    table = pd.DataFrame({"slot": np.arange(1, ranks.shape[1] + 1), "n": eligible, **shares})
    return table[table["n"] > 0].reset_index(drop=True)
