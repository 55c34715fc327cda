"""Timing sessions: which conclusions about speed the timing design allows.

An arm timed in a single session has a single draw of the session effect (clocks, temperature, other load). Reruns of
the same model differ by several percent, and an interval over prompts does not cover that. Two designs allow a verdict:

* by turns: both arms and plain decoding alternate on every prompt of the same session, so the session effect is common
  to both (Kalibera and Jones 2013, doi 10.1145/2464157.2464160);
* repeated sessions: each arm is timed in several sessions, and their spread is part of the interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.cautions import Caution, caution
from analysis.stats.cluster import partition
from analysis.stats.estimate import Estimate
from analysis.stats.seeds import FEWEST_SEEDS, crossed
from analysis.wording import Estimand

#: A verdict requires at least this many sessions per arm.
FEWEST_SESSIONS = FEWEST_SEEDS


class Design(StrEnum):
    """Timing design of the two sides of a ratio."""

    BY_TURNS = "by turns"
    REPEATED = "repeated sessions"
    ONE_EACH = "one session each"


#: Timings by (side, mode), indexed by prompt: decode_s, tokens, and order, the first place among those of the prompt.
Modes = Mapping[tuple[str, str], pd.DataFrame]


def plain_by_turns(modes: Modes, side: str, prompts: NDArray[np.int64]) -> bool:
    """Whether the arm and plain decoding alternated on every prompt of the same session."""
    return _orders_differ(modes[side, "plain"], modes[side, "draft"], prompts)


def arms_by_turns(modes: Modes, prompts: NDArray[np.int64]) -> bool:
    """Whether both arms alternated on every prompt; they then share the timings of plain decoding."""
    return same_plain(modes, prompts) and _orders_differ(modes["A", "draft"], modes["B", "draft"], prompts)


def same_plain(modes: Modes, prompts: NDArray[np.int64]) -> bool:
    """Whether both runs contain the same timings of plain decoding for these prompts."""
    frames = [modes[side, "plain"] for side in "AB"]
    if not all(np.isin(prompts, frame.index).all() for frame in frames):
        return False
    first, second = (frame.loc[prompts, ["decode_s", "tokens"]] for frame in frames)
    return first.equals(second)


def _orders_differ(x: pd.DataFrame, y: pd.DataFrame, prompts: NDArray[np.int64]) -> bool:
    return bool((x.loc[prompts, "order"].to_numpy() != y.loc[prompts, "order"].to_numpy()).all())


def over_sessions(
    a: Sequence[NDArray[np.float64]],
    b: Sequence[NDArray[np.float64]],
    clusters: pd.Series,
    estimand: Estimand,
    subset: str | None,
) -> Estimate:
    """The estimate over sessions and prompts, crossed. ``a``, ``b``: log times per session of each arm, (n,) over the
    same prompts, whose mean is the log of seconds per token; the estimate is log(time of A / time of B)."""
    return crossed(np.stack(b), np.stack(a), partition(clusters), estimand, paired=False, subset=subset).estimate


def cautions_of(estimate: Estimate, design: Design, sessions: int) -> tuple[Caution, ...]:
    """Cautions for a ratio of times with this design; ``sessions``: the smaller number of the two arms."""
    if design is Design.ONE_EACH:
        return (*estimate.cautions, caution("one-session"))
    few = caution("few-sessions", n=sessions, least=FEWEST_SESSIONS)
    return tuple(few if c.code == "few-seeds" else c for c in estimate.cautions)
