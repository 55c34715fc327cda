"""Serving trials of two arms: throughput ratios block by block.

A block is one interleaved repetition: both arms on the same machine, minutes apart. The unit is the block, not the
request: a log-ratio per block, and an interval over blocks. Every trial is shown. With fewer than six blocks there is
no verdict, because a sign-flip test of blocks cannot reach p < 0.05 (Kalibera and Jones 2020, arXiv 2007.10899).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.runlog.reading import Run
from analysis.stats.estimate import Estimate, of_values
from analysis.stats.families import adjust
from analysis.stats.method import FEWEST, Method
from analysis.wording import THROUGHPUT, Verdict

TRIALS = ("side", "concurrency", "block", "trial", "order", "status", "reason", "tokens_per_s", "output_hash")
#: The arm that decodes without a drafter, in the ``arm`` column.
PLAIN = "plain"
#: Status of a successful trial; other trials are shown with their reason and excluded.
DONE = "ok"


@dataclass(frozen=True)
class ThroughputRatio:
    """B over A at one concurrency: ``ratios`` per block, ``estimate`` their geometric mean, t interval and p on logs,
    p adjusted by Holm over concurrencies; ``verdict`` is None with fewer than six blocks."""

    concurrency: int | None
    blocks: tuple[int, ...]
    ratios: tuple[float, ...]
    estimate: float
    lo: float | None
    hi: float | None
    p: float | None
    verdict: Verdict | None


@dataclass(frozen=True, eq=False)
class Throughput:
    """``trials``: every trial of both arms, including failed ones, with columns TRIALS; ``ratios``: one per
    concurrency."""

    trials: pd.DataFrame
    ratios: tuple[ThroughputRatio, ...]


def throughput(a: Run, b: Run) -> Throughput | None:
    """None unless both runs have serving trials of their own arm."""
    frames = [_trials(run, side) for run, side in ((a, "A"), (b, "B"))]
    if any(frame.empty for frame in frames):
        return None
    trials = pd.concat(frames, ignore_index=True)
    good = trials[(trials["status"] == DONE) & (trials["tokens_per_s"] > 0) & trials["block"].notna()]
    logs = good.assign(log=np.log(good["tokens_per_s"].astype(float)))
    means = logs.pivot_table(index=["concurrency", "block"], columns="side", values="log", dropna=False)
    if not {"A", "B"} <= set(means.columns):
        return Throughput(trials, ())
    levels = [
        (level, blocks.droplevel(0)) for level, blocks in means.dropna(subset=["A", "B"]).groupby(level=0, dropna=False)
    ]
    estimates = adjust([block_estimate(blocks) for _, blocks in levels])
    return Throughput(trials, tuple(_ratio(*level, e) for level, e in zip(levels, estimates, strict=True)))


def _trials(run: Run, side: str) -> pd.DataFrame:
    """Trials of the run's own arm: all but plain decoding's; none of a run that holds several arms."""
    if not run.has("throughput"):
        return pd.DataFrame(columns=list(TRIALS))
    table = run.read("throughput").to_pandas(integer_object_nulls=True)
    table = table[table["arm"] != PLAIN].assign(side=side)
    if table["arm"].nunique() > 1:  # an experiment of several arms, which analysis.serving reports on
        return pd.DataFrame(columns=list(TRIALS))
    return table[list(TRIALS)].sort_values(["concurrency", "block", "trial"], ignore_index=True)


def block_estimate(blocks: pd.DataFrame) -> Estimate:
    """B - A of logarithms, columns A and B, a block a row: a t interval over blocks."""
    a, b = blocks["A"].to_numpy(), blocks["B"].to_numpy()
    return of_values(a, b, a == b, map(str, blocks.index), THROUGHPUT, by=Method.T)


def _ratio(concurrency: float, blocks: pd.DataFrame, e: Estimate) -> ThroughputRatio:
    estimate, lo, hi = (None if x is None else math.exp(x) for x in (e.estimate, e.lo, e.hi))
    assert estimate is not None
    return ThroughputRatio(
        concurrency=None if pd.isna(concurrency) else int(concurrency),
        blocks=tuple(int(block) for block in blocks.index),
        ratios=tuple(float(r) for r in np.exp(blocks["B"] - blocks["A"])),
        estimate=estimate,
        lo=lo,
        hi=hi,
        p=e.p_adjusted,
        verdict=e.verdict if len(blocks) >= FEWEST else None,
    )
